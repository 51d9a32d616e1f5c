"""What every search engine promises, whatever it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from searchqa_services.search.engine.documents import Document


@dataclass(frozen=True, slots=True)
class Hit:
    """One document found for one query."""

    document: Document
    """The document as indexed."""
    score: float
    """Always above 0; higher is better; comparable within one index only."""
    rank: int
    """Place in the list, from 0."""


class Index(Protocol):
    """A searchable corpus. Implementations are immutable and safe to search from many threads."""

    @property
    def fingerprint(self) -> str:
        """Hash of all that decides results: equal fingerprints answer alike."""
        ...

    @property
    def size(self) -> int:
        """Number of documents."""
        ...

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Return one list per query, in order, each best first and at most ``top_k`` long.

        Equal scores are ordered by document order, so the first k hits are the same for every
        larger ``top_k``. A query without a known word has an empty list.
        """
        ...
