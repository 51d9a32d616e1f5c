"""From a corpus file to an index folder, one document at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from searchqa_services.search.engine.bm25 import write_parts
from searchqa_services.search.engine.corpus import read_corpus
from searchqa_services.search.engine.corpus_tokens import CorpusTokens
from searchqa_services.search.engine.documents import DocumentWriter
from searchqa_services.search.engine.errors import CorpusError
from searchqa_services.search.engine.fingerprint import Manifest
from searchqa_services.search.engine.folder import new_folder
from searchqa_services.search.engine.params import BM25Params

Progress = Callable[[str, int], None]
"""Called with the stage (``read``, ``score``, ``write``) and the documents read so far."""

logger = logging.getLogger(__name__)
_REPORT_EVERY = 1000


def build_index(
    corpus_path: str | Path,
    out_path: str | Path,
    params: BM25Params | None = None,
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
) -> Manifest:
    """Index a corpus file into a folder that ``BM25Index.load`` reads.

    The documents go straight to the disk; the token ids stay in memory until they are scored.

    Args:
        corpus_path: JSONL, plain or gzip; see ``corpus``.
        out_path: The index folder; it appears when it is complete.
        params: What decides the index.
        progress: Told how far the build is.
        overwrite: Replace an existing ``out_path``.

    Raises:
        CorpusError: A line is malformed, an id is missing or repeated, or nothing can be indexed.
        IndexExists: ``out_path`` exists and ``overwrite`` is false.
    """
    params = params or BM25Params()
    report = progress or (lambda stage, documents: None)
    tokens = CorpusTokens(params)
    with new_folder(Path(out_path), overwrite=overwrite) as folder:
        with DocumentWriter(folder) as writer:
            _collect(corpus_path, writer, tokens, report)
        report("score", len(tokens))
        postings = tokens.score()
        report("write", len(tokens))
        manifest = params.manifest(len(tokens), tokens.empty, writer.digest)
        write_parts(folder, manifest, tokens.vocabulary, postings)
    if tokens.empty:
        logger.warning("%d of %d documents have no word to index", tokens.empty, len(tokens))
    return manifest


def _collect(
    corpus_path: str | Path, writer: DocumentWriter, tokens: CorpusTokens, report: Progress
) -> None:
    for number, document in read_corpus(corpus_path):
        try:  # the status is the line number, which only the reader knows
            tokens.add(document)
        except CorpusError as error:
            raise CorpusError(f"{corpus_path} line {number}: {error}") from error
        writer.add(document)
        if len(tokens) % _REPORT_EVERY == 0:
            report("read", len(tokens))
