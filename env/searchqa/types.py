"""The values that cross a boundary: questions and passages in, calls, segments and episodes out.

Everything is frozen, slotted and keyword-only. Text is a view here: the environment knows no
tokenizer, so nothing in this module holds token ids except what a learner wrote into a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One retrievable document."""

    id: str
    """Unique in its corpus."""
    title: str
    """Without quotes; may be empty."""
    text: str
    """Body, without the title."""

    @property
    def contents(self) -> str:
        """The wire form of Search-R1 and FlashRAG: ``"Title"`` in quotes, newline, body."""
        return f'"{self.title}"\n{self.text}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question with its accepted answers."""

    id: str
    """Unique in its split."""
    text: str
    """The question as asked."""
    golden_answers: tuple[str, ...]
    """At least one, none empty; the reward is the best over them."""
    hops: int = 0
    """Facts that must be chained to reach the answer; 0 where unknown."""
    type: str = ""
    """Kind of question, such as ``bridge`` or ``comparison``; empty where unknown."""
    source: str = ""
    """Data set and split, such as ``demo/train``."""
    supporting: tuple[str, ...] = ()
    """Ids of the passages that hold the chained facts, in order; empty where unknown."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the data set says; JSON-able."""
