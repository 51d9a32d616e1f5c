"""What decides a BM25 index besides its corpus."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, Self

from searchqa_services.search.engine import tokenizer
from searchqa_services.search.engine.errors import InvalidParameter
from searchqa_services.search.engine.fingerprint import FORMAT, Manifest

METHODS = ("lucene", "robertson", "atire")
"""The bm25s methods that give no score to absent terms, which a sparse matrix needs."""


@dataclass(frozen=True)
class BM25Params:
    """What decides an index besides its corpus; all of it is in the fingerprint."""

    k1: float = 1.5
    """Term frequency saturation, >= 0."""
    b: float = 0.75
    """Length normalisation, 0 (none) to 1 (full)."""
    method: Literal["lucene", "robertson", "atire"] = "lucene"
    """Formula, by bm25s' names."""
    lowercase: bool = True
    """Whether case is folded."""
    stopwords: Literal["en"] | None = "en"
    """Drop English function words, or nothing."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.k1) and self.k1 >= 0):
            raise InvalidParameter(f"k1 must be a finite number of at least 0, not {self.k1}")
        if not 0 <= self.b <= 1:
            raise InvalidParameter(f"b must lie between 0 and 1, not {self.b}")
        if self.method not in METHODS:
            names = ", ".join(METHODS)
            raise InvalidParameter(f"method must be one of {names}, not {self.method!r}")
        if self.stopwords not in ("en", None):
            raise InvalidParameter(f"stopwords must be 'en' or None, not {self.stopwords!r}")

    def manifest(self, documents: int, empty: int, sha256: str) -> Manifest:
        """Return the manifest of an index over a corpus with these parameters."""
        return Manifest(
            format=FORMAT,
            corpus={"documents": documents, "empty": empty, "sha256": sha256},
            tokenizer=tokenizer.describe(lowercase=self.lowercase, stopwords=self.stopwords),
            bm25={"k1": float(self.k1), "b": float(self.b), "method": self.method},
            bm25s=version("bm25s"),
        )

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """Read the parameters back from a checked manifest."""
        kept: dict[str, Any] = {k: manifest.tokenizer[k] for k in ("lowercase", "stopwords")}
        return cls(**manifest.bm25, **kept)
