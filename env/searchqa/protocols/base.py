"""What an action protocol is: one object that knows both directions of the conversation.

It writes the prompt, reads the agent's reply, and renders search results, so that prompt, parser
and stop strings can never disagree. Protocols hold no state; one instance serves all episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from searchqa.types import SearchHit

InvalidReason = Literal[
    "no_action", "unclosed_tag", "unopened_tag", "empty_query", "tag_in_query", "query_too_long"
]
"""Why a reply holds no action that can be carried out."""


@dataclass(frozen=True, slots=True)
class Search:
    """The agent asks for passages."""

    queries: tuple[str, ...]
    """At least one, none empty."""
    consumed: int
    """Characters of the reply that count."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The agent answers; the episode ends."""

    text: str
    """May be empty, which scores 0."""
    consumed: int
    """Characters of the reply that count."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """The reply holds no action; the agent is told how to act."""

    reason: InvalidReason
    consumed: int
    """Characters of the reply that count."""


Action = Search | Answer | Invalid


@dataclass(frozen=True, slots=True)
class Rendered:
    """Search results as text."""

    text: str
    truncated: bool
    """Passages were cut or left out to fit."""


class ActionProtocol(Protocol):
    """Both directions of a conversation."""

    @property
    def name(self) -> str:
        """Registry name, such as ``search_r1``."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings at which a sampler should stop; each completes an action."""
        ...

    @property
    def role(self) -> str:
        """Role of the text a step returns: ``continue``, ``user`` or ``tool``."""
        ...

    @property
    def min_observation_chars(self) -> int:
        """Smallest limit that :meth:`render` can keep."""
        ...

    def prompt(self, question: str) -> str:
        """The published prompt for a question."""
        ...

    def parse(self, text: str) -> Action:
        """Read a reply; total: every string is a Search, an Answer or Invalid."""
        ...

    def render(self, results: Sequence[Sequence[SearchHit]], max_chars: int | None) -> Rendered:
        """Write the results of each query as the observation, within ``max_chars``."""
        ...

    def fabricated(self, text: str) -> bool:
        """Whether the agent wrote an observation of its own into a reply."""
        ...

    def invalid_message(self, reason: InvalidReason) -> str:
        """What the agent is told after an invalid reply."""
        ...

    def over_budget_message(self) -> str:
        """What the agent is told when its search budget is used up."""
        ...
