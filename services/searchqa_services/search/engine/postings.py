"""The sparse score matrix and the kernel that searches it.

bm25s computes each term's score in each document once, at build time; a search then adds up the
posting lists of its terms. The kernel is ours because selecting by argmax is some 70 times faster
than bm25s' partition of a mostly-zero vector, and gives ties by document order for free.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ARGMAX_LIMIT = 16
"""Above this many hits, sorting the matching documents beats scanning for each maximum."""


@dataclass(frozen=True, slots=True)
class Postings:
    """Scores of V terms in N documents, P non-zero entries, grouped by term."""

    starts: NDArray[np.int64]
    """Shape [V + 1]: entries of term t are ``starts[t]:starts[t + 1]``."""
    documents: NDArray[np.int32]
    """Shape [P]: document of each entry, ascending within a term."""
    scores: NDArray[np.float32]
    """Shape [P]: BM25 score of the term in that document."""

    def accumulate(self, terms: Iterable[int], totals: NDArray[np.float32]) -> None:
        """Set ``totals`` (shape [N]) to the summed scores of a query's terms.

        A term that occurs n times in the query counts n times.
        """
        totals.fill(0.0)
        for term, times in Counter(terms).items():
            span = slice(int(self.starts[term]), int(self.starts[term + 1]))
            part = self.scores[span] if times == 1 else self.scores[span] * np.float32(times)
            np.add.at(totals, self.documents[span], part)


def build_postings(
    documents: list[array[int]],
    vocabulary: dict[str, int],
    *,
    k1: float,
    b: float,
    method: str,
) -> Postings:
    """Score every term in every document with bm25s.

    Args:
        documents: Token ids of each document, in document order.
        vocabulary: Token to id, ids 0..V-1.
        k1: Term frequency saturation.
        b: Length normalisation.
        method: A bm25s scoring method without scores for absent terms.
    """
    import bm25s  # not needed to search a finished index, and slow to import

    # In float64, so that the result does not depend on numpy's promotion rules; stored as float32.
    model = bm25s.BM25(k1=k1, b=b, method=method, dtype="float64")
    model.index((documents, vocabulary), create_empty_token=False, show_progress=False)
    matrix = model.scores
    return Postings(
        starts=np.asarray(matrix["indptr"], dtype=np.int64),
        documents=np.asarray(matrix["indices"], dtype=np.int32),
        scores=np.asarray(matrix["data"], dtype=np.float32),
    )


def top(totals: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
    """Return up to ``k`` (document, score) pairs with a positive score, best first.

    Ties go to the earlier document. ``totals`` is used up.
    """
    return _by_argmax(totals, k) if k <= ARGMAX_LIMIT else _by_sort(totals, k)


def _by_argmax(totals: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for _ in range(min(k, len(totals))):
        best = int(totals.argmax())
        score = float(totals[best])
        if score <= 0.0:
            break
        found.append((best, score))
        totals[best] = 0.0
    return found


def _by_sort(totals: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
    matching = np.flatnonzero(totals > 0.0)
    scores = totals[matching]
    if k < len(matching):
        bar = np.partition(scores, len(scores) - k)[len(scores) - k]
        matching, scores = matching[scores >= bar], scores[scores >= bar]
    order = np.argsort(-scores, kind="stable")[:k]
    return [(int(matching[i]), float(scores[i])) for i in order]
