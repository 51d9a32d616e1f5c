"""The values that cross a boundary: questions and passages in, calls, segments and episodes out.

Everything is frozen, slotted and keyword-only. Text is a view here: the environment knows no
tokenizer, so nothing in this module holds token ids except what a learner wrote into a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


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
    """Whatever else the data set says; JSON-able, never changed."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Question:
        """A copy is the question itself: ``gymnasium.make`` deep-copies lists of thousands."""
        return self


class Status(StrEnum):
    """Where an episode stands, or why it ended."""

    RUNNING = "running"
    """Not ended yet; what an outer wrapper's truncation leaves behind, too."""
    ANSWERED = "answered"
    """The agent gave an answer (``terminated``)."""
    TURN_LIMIT = "turn_limit"
    """The last turn passed without an answer (``truncated``)."""
    ERROR_SEARCH = "error_search"
    """The search failed and the episode was voided (``truncated``, not valid)."""
    EXTERNAL = "external"
    """Ended from outside by :meth:`SearchQAEnv.abandon` (``truncated``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One retrieved passage, as the search returned it."""

    id: str
    """Passage id; empty where the service gives none."""
    contents: str
    """First line is the title as stored (quotes included), the rest is the body."""
    score: float
    """Higher is better; 0.0 where the service gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCall:
    """One query the agent asked, and what came of it."""

    turn: int
    """Model turn it was asked in, from 1."""
    query: str
    """As sent to the search: inner whitespace collapsed."""
    status: Literal["ok", "empty", "over_budget", "failed"]
    """``empty`` was executed and found nothing; the last two were never executed."""
    ids: tuple[str, ...] = ()
    """Passage ids by rank."""
    ranks: tuple[int, ...] = ()
    """From 1."""
    scores: tuple[float, ...] = ()
    """One for each id."""
    hit: bool = False
    """A golden answer occurs in the returned passages, in the part that was shown."""
    supporting: tuple[str, ...] = ()
    """Which of the question's supporting passages were returned, shown whole or cut."""
    repeated: bool = False
    """The same query was executed earlier in this episode."""
    truncated: bool = False
    """Passages were cut to fit the observation limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of the transcript from one hand."""

    source: Literal["prompt", "model", "environment"]
    """Who wrote it; only ``model`` is ever parsed, scored or trained on."""
    text: str
    """Exactly as shown to the agent, or as it counted."""
    role: str = ""
    """Of an ``environment`` segment: ``continue``, ``user`` or ``tool``."""
    token_ids: tuple[int, ...] = ()
    """Sampled ids, when a learner wrote the record."""
    logprobs: tuple[float, ...] = ()
    """One for each token id."""
    version: int = -1
    """Policy version that sampled it; -1 where unknown."""
    tokenizer_hash: str = ""
    """Which tokenizer the ids belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How one reply of the agent was read."""

    action: Literal["search", "answer", "invalid"]
    """What it was taken for."""
    reason: str = ""
    """Why it was invalid; empty otherwise."""
    consumed_chars: int = 0
    """Length of the part that counted: the action and all before it."""
    dropped_chars: int = 0
    """Length of what followed and was thrown away."""
    fabricated: bool = False
    """The agent wrote an observation of its own, in the part that counted or after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One finished episode; :mod:`searchqa.record` turns it into a JSON line and back."""

    question: Question
    """What was asked."""
    segments: tuple[Segment, ...]
    """Prompt first, then model and environment in turn; joined they are the transcript."""
    turns: tuple[Turn, ...]
    """One for each ``model`` segment."""
    calls: tuple[SearchCall, ...]
    """Every query in order, executed or not."""
    counts: Mapping[str, int]
    """The ``num_*`` counters of the environment's ``info``."""
    structure: str
    """Signature such as ``S1h S2m A``."""
    stratum: str
    """Key of the structural stratum, as the environment computed it."""
    answer: str
    """What the agent answered; empty without one."""
    reward: float
    """Sum of ``reward_parts``."""
    reward_parts: Mapping[str, float]
    """By name of the reward."""
    status: Status
    """Why it ended."""
    valid: bool
    """False when the infrastructure failed; such an episode must not be trained on."""
    protocol: str
    """Name of the action protocol."""
    index_fingerprint: str = ""
    """What was searched; empty where the search does not tell."""
    seed: int = -1
    """Seed of the reset; -1 when there was none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Limits and options that shaped the episode; JSON-able."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further top-level keys other producers wrote; kept as they are."""
