"""BM25 over a corpus in memory or memory-mapped from disk.

Both forms run the same tokenizer and kernel, so an in-process search and a served one agree to
the bit. An index is immutable: search it from as many threads as you like.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchqa_services.search.engine import tokenizer
from searchqa_services.search.engine.corpus_tokens import CorpusTokens
from searchqa_services.search.engine.documents import (
    DiskDocuments,
    Document,
    DocumentWriter,
    clean,
    corpus_digest,
)
from searchqa_services.search.engine.errors import IndexMismatch, InvalidParameter
from searchqa_services.search.engine.fingerprint import (
    Manifest,
    check_files,
    describe_files,
    read_manifest,
)
from searchqa_services.search.engine.folder import new_folder
from searchqa_services.search.engine.layout import (
    MANIFEST_FILE,
    POSTINGS_FILE,
    SCORES_FILE,
    STARTS_FILE,
    VOCABULARY_FILE,
)
from searchqa_services.search.engine.params import BM25Params
from searchqa_services.search.engine.postings import Postings, top
from searchqa_services.search.engine.protocol import Hit

__all__ = ["BM25Index", "BM25Params", "Document", "Hit", "write_parts"]


class BM25Index:
    """A BM25 index; satisfies ``protocol.Index``."""

    def __init__(
        self,
        manifest: Manifest,
        documents: Sequence[Document],
        vocabulary: dict[str, int],
        postings: Postings,
    ) -> None:
        """Put the parts together; use ``from_documents`` or ``load`` instead."""
        self.manifest = manifest
        self.params = BM25Params.from_manifest(manifest)
        self.fingerprint = manifest.fingerprint
        self.size = len(documents)
        self.documents = documents
        self.vocabulary = vocabulary
        self.postings = postings
        self._tokenize = tokenizer.make_tokenizer(
            lowercase=self.params.lowercase, stopwords=self.params.stopwords
        )
        # Spare score buffers: pop and append are atomic, so each search holds one alone.
        self._spare: deque[NDArray[np.float32]] = deque()

    @classmethod
    def from_documents(
        cls, documents: Iterable[Document], params: BM25Params | None = None
    ) -> BM25Index:
        """Index documents in memory.

        Raises:
            CorpusError: An id occurs twice, or there is no token at all.
        """
        params = params or BM25Params()
        kept = tuple(map(clean, documents))
        corpus = CorpusTokens(params)
        for document in kept:
            corpus.add(document)
        postings = corpus.score()
        manifest = params.manifest(len(kept), corpus.empty, corpus_digest(kept))
        return cls(manifest, kept, corpus.vocabulary, postings)

    @classmethod
    def load(cls, path: str | Path) -> BM25Index:
        """Memory-map an index folder after checking it against its fingerprint.

        Raises:
            IndexMissing: There is no index.
            IndexMismatch: Its tokenizer, parameters, format or files are not what they must be.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        check_files(folder, manifest)
        try:  # the status is a damaged index: a file has its size but not its form
            words: list[str] = json.loads((folder / VOCABULARY_FILE).read_bytes())
            postings = Postings(
                starts=_mapped(folder / STARTS_FILE),
                documents=_mapped(folder / POSTINGS_FILE),
                scores=_mapped(folder / SCORES_FILE),
            )
            documents = DiskDocuments(folder)
        except ValueError as error:
            raise IndexMismatch(f"index {folder} is damaged ({error}); rebuild it") from error
        vocabulary = {word: number for number, word in enumerate(words)}
        return cls(manifest, documents, vocabulary, postings)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the index folder that ``load`` reads, all of it or nothing.

        Raises:
            IndexExists: ``path`` exists and ``overwrite`` is false.
        """
        with new_folder(Path(path), overwrite=overwrite) as folder:
            with DocumentWriter(folder) as writer:
                for document in self.documents:
                    writer.add(document)
            write_parts(folder, self.manifest, self.vocabulary, self.postings)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Return one list of hits per query, in order; see ``protocol.Index``.

        Args:
            queries: Any strings; empty and unknown ones have an empty list.
            top_k: Most hits per query; more than there are documents is fine.

        Raises:
            InvalidParameter: ``top_k`` is negative.
        """
        if top_k < 0:
            raise InvalidParameter(f"top_k must be at least 0, not {top_k}")
        totals = self._buffer()
        found = [self._search_one(query, top_k, totals) for query in queries]
        self._spare.append(totals)
        return found

    def _buffer(self) -> NDArray[np.float32]:
        try:  # the status of an empty pool is a new buffer
            return self._spare.pop()
        except IndexError:
            return np.zeros(self.size, dtype=np.float32)

    def _search_one(self, query: str, top_k: int, totals: NDArray[np.float32]) -> list[Hit]:
        known = self.vocabulary
        terms = [known[token] for token in self._tokenize(query) if token in known]
        if not terms:
            return []
        self.postings.accumulate(terms, totals)
        found = top(totals, top_k)
        return [Hit(self.documents[i], score, rank) for rank, (i, score) in enumerate(found)]

    def __deepcopy__(self, memo: dict[int, Any]) -> BM25Index:
        """Return itself: an immutable index need not be copied with the settings that hold it."""
        return self


def write_parts(
    folder: Path, manifest: Manifest, vocabulary: dict[str, int], postings: Postings
) -> None:
    """Write everything of an index folder but the documents; the manifest last."""
    words = json.dumps(list(vocabulary), ensure_ascii=False)
    (folder / VOCABULARY_FILE).write_text(words, encoding="utf-8")
    np.save(folder / STARTS_FILE, postings.starts)
    np.save(folder / POSTINGS_FILE, postings.documents)
    np.save(folder / SCORES_FILE, postings.scores)
    complete = replace(manifest, files=describe_files(folder))
    (folder / MANIFEST_FILE).write_text(complete.to_json(), encoding="utf-8")


def _mapped(path: Path) -> NDArray[Any]:
    # asarray drops the memmap subclass, whose slicing is several times slower.
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
