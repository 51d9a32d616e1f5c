"""Does an index hold what its manifest says, and does it find its own documents?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from searchqa_services.search.engine.bm25 import BM25Index
from searchqa_services.search.engine.fingerprint import check_files, read_manifest

SAMPLE = 50
TOP_K = 3


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of ``verify_index``."""

    documents: int
    """Documents in the index."""
    sampled: int
    """Titled documents that were looked for, evenly spread over the corpus."""
    found: int
    """Of these, found among the first three hits for their own title. Titles shared by many
    passages lower it; near 0 means that tokens of queries and documents do not meet."""


def verify_index(path: str | Path) -> VerifyReport:
    """Read every byte of an index and search for a sample of its titles.

    Raises:
        IndexMissing: There is no index.
        IndexMismatch: Something differs from the manifest.
    """
    folder = Path(path)
    check_files(folder, read_manifest(folder), contents=True)
    index = BM25Index.load(folder)
    step = max(1, index.size // SAMPLE)
    documents = [index.documents[i] for i in range(0, index.size, step)][:SAMPLE]
    titled = [document for document in documents if document.title]
    results = index.search([document.title for document in titled], TOP_K)
    found = sum(
        any(hit.document.id == document.id for hit in hits)
        for document, hits in zip(titled, results, strict=True)
    )
    return VerifyReport(documents=index.size, sampled=len(titled), found=found)
