"""The core: one episode as a state machine, free of I/O.

``act`` reads the agent's reply and returns the queries to run; ``observe`` takes their results and
returns the text the environment adds. Nothing here does HTTP, sleeps or draws random numbers, so
the synchronous, the vector and the asynchronous environment are thin shells over the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from searchqa.errors import EpisodeError, SearchProtocolError
from searchqa.protocols.base import Action, ActionProtocol, Answer, Invalid, Rendered, Search
from searchqa.scoring import REWARDS, contains_answer
from searchqa.spaces import well_formed
from searchqa.structure import COUNTERS, StratumKey, call_token, signature, stratum
from searchqa.types import Episode, Question, SearchCall, SearchHit, Segment, Status, Turn

_KINDS: Mapping[type[Action], Literal["search", "answer", "invalid"]] = {
    Search: "search",
    Answer: "answer",
    Invalid: "invalid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every episode of an environment."""

    protocol: ActionProtocol
    template: str | None = None
    """Prompt with ``{question}`` in it; None for the protocol's own."""
    reward: str = "em"
    """Name in :data:`searchqa.scoring.REWARDS`."""
    max_searches: int = 4
    max_turns: int = 5
    top_k: int = 3
    max_query_chars: int = 2000
    max_observation_chars: int | None = None
    stratum: StratumKey = "num_searches"

    def prompt(self, question: Question) -> str:
        """The first text the agent sees."""
        if self.template is None:
            return self.protocol.prompt(question.text)
        return self.template.replace("{question}", question.text)

    def settings(self) -> dict[str, Any]:
        """What shaped the episode, for its record."""
        return {
            "max_searches": self.max_searches,
            "max_turns": self.max_turns,
            "top_k": self.top_k,
            "max_query_chars": self.max_query_chars,
            "max_observation_chars": self.max_observation_chars,
            "reward": self.reward,
            "stratum_key": self.stratum if isinstance(self.stratum, str) else "custom",
        }


@dataclass(frozen=True, slots=True)
class _Before:
    """All that one turn may change, as it was before."""

    lengths: tuple[int, int, int, int]
    """Of segments, turns, calls and tokens, which only ever grow."""
    counts: dict[str, int]
    asked: frozenset[str]
    found: frozenset[str]
    status: Status
    answer: str
    reward_parts: dict[str, float]


class EpisodeMachine:
    """One episode. Call :meth:`act` and :meth:`observe` in turn until :attr:`done`."""

    def __init__(
        self, question: Question, rules: Rules, *, seed: int = -1, index_fingerprint: str = ""
    ) -> None:
        self.question = question
        self.rules = rules
        self.seed = seed
        self.index_fingerprint = index_fingerprint
        self.status = Status.RUNNING
        self.answer = ""
        self.reward_parts: dict[str, float] = {rules.reward: 0.0}
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.counts["num_supporting"] = 0 if question.supporting else -1
        self.segments = [Segment(source="prompt", text=well_formed(rules.prompt(question)))]
        self.turns: list[Turn] = []
        self.calls: list[SearchCall] = []
        self._tokens: list[str] = []
        self._asked: set[str] = set()
        self._found: set[str] = set()
        self._granted: tuple[str, ...] = ()
        self._refused: tuple[str, ...] = ()
        self._feedback = ""
        self._waiting = False
        self._before = self._snapshot()

    @property
    def prompt(self) -> str:
        """The first text the agent sees."""
        return self.segments[0].text

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.status is not Status.RUNNING

    @property
    def valid(self) -> bool:
        """False when the infrastructure failed."""
        return self.status is not Status.ERROR_SEARCH

    @property
    def reward(self) -> float:
        """Sum of the reward parts; 0.0 before the end."""
        return sum(self.reward_parts.values())

    @property
    def structure(self) -> str:
        """Signature so far, such as ``S1h S2m A``."""
        return signature(self._tokens)

    @property
    def stratum(self) -> str:
        """Stratum so far."""
        return stratum(self.rules.stratum, self.counts, self.structure)

    def act(self, text: str) -> tuple[str, ...]:
        """Read one reply of the agent.

        Args:
            text: The whole reply.

        Returns:
            Queries to run now; empty when there is nothing to search.

        Raises:
            EpisodeError: The episode has ended, or :meth:`observe` is due.
        """
        if self.done:
            raise EpisodeError(f"the episode has ended ({self.status}); call reset() before step()")
        if self._waiting:
            raise EpisodeError("the last action waits for its results; call observe() first")
        self._before = self._snapshot()
        try:  # a protocol that fails leaves the episode as it was
            return self._act(well_formed(text))
        except BaseException:
            self.retract()
            raise

    def _act(self, text: str) -> tuple[str, ...]:
        action = self.rules.protocol.parse(text)
        if isinstance(action, Search) and max(map(len, action.queries)) > self._max_query:
            action = Invalid("query_too_long", action.consumed)
        self._record_turn(text, action)
        self._waiting = True
        if isinstance(action, Answer):
            self._answer(action.text)
        elif isinstance(action, Search):
            self._grant(action.queries)
        else:
            self._reject(action)
        return self._granted

    def observe(self, results: Sequence[Sequence[SearchHit]] = ()) -> str:
        """Take the results of the granted queries and go on.

        Args:
            results: One list of hits for each query :meth:`act` returned, in order.

        Returns:
            The text the environment adds; empty at the end of the episode.

        Raises:
            EpisodeError: :meth:`act` is due, or the number of lists is wrong.
            SearchProtocolError: A score is no finite number.

        After any error :meth:`retract` takes the turn back.
        """
        if not self._waiting:
            raise EpisodeError("there is no action to observe; call act() first")
        if len(results) != len(self._granted):
            raise EpisodeError(
                f"{len(self._granted)} queries need as many lists of hits, got {len(results)}"
            )
        text = self._execute(results) if self._granted else self._feedback
        text += self._refuse()
        self._settle()
        if not self.done and self.counts["num_turns"] >= self.rules.max_turns:
            self._end(Status.TURN_LIMIT)
        if self.done:
            return ""
        role = self.rules.protocol.role
        self.segments.append(Segment(source="environment", text=text, role=role))
        return text

    def retract(self) -> None:
        """Forget the last :meth:`act` and what :meth:`observe` made of it; it may be repeated."""
        before = self._before
        segments, turns, calls, tokens = before.lengths
        del self.segments[segments:], self.turns[turns:], self.calls[calls:], self._tokens[tokens:]
        self.counts, self.reward_parts = before.counts.copy(), before.reward_parts.copy()
        self._asked, self._found = set(before.asked), set(before.found)
        self.status, self.answer = before.status, before.answer
        self._settle()

    def void(self) -> None:
        """End the episode because the granted queries could not be executed.

        The reward stays 0.0 and the episode is not valid: nobody may train on it.
        """
        for query in self._granted:
            self.counts["num_failed"] += 1
            self.counts["num_attempted"] += 1
            self._add(SearchCall(turn=len(self.turns), query=query, status="failed"))
        self._refuse()
        self._settle()
        self.status = Status.ERROR_SEARCH

    def abandon(self) -> None:
        """End the episode from outside, for instance when the agent's context is full."""
        if self.done:
            raise EpisodeError(f"the episode has already ended ({self.status})")
        self._refuse()
        self._settle()
        self._end(Status.EXTERNAL)

    def episode(self) -> Episode:
        """The finished episode.

        Raises:
            EpisodeError: It still runs.
        """
        if not self.done:
            raise EpisodeError("the episode still runs; there is no record before its end")
        return Episode(
            question=self.question,
            segments=tuple(self.segments),
            turns=tuple(self.turns),
            calls=tuple(self.calls),
            counts=dict(self.counts),
            structure=self.structure,
            stratum=self.stratum,
            answer=self.answer,
            reward=self.reward,
            reward_parts=dict(self.reward_parts),
            status=self.status,
            valid=self.valid,
            protocol=self.rules.protocol.name,
            index_fingerprint=self.index_fingerprint,
            seed=self.seed,
            settings=self.rules.settings(),
        )

    def _snapshot(self) -> _Before:
        return _Before(
            (len(self.segments), len(self.turns), len(self.calls), len(self._tokens)),
            self.counts.copy(),
            frozenset(self._asked),
            frozenset(self._found),
            self.status,
            self.answer,
            self.reward_parts.copy(),
        )

    def _settle(self) -> None:
        """Nothing of the last action is left to do."""
        self._granted, self._refused, self._feedback, self._waiting = (), (), "", False

    @property
    def _max_query(self) -> int:
        return self.rules.max_query_chars

    def _record_turn(self, text: str, action: Action) -> None:
        counted = text[: action.consumed]
        turn = Turn(
            action=_KINDS[type(action)],
            reason=action.reason if isinstance(action, Invalid) else "",
            consumed_chars=action.consumed,
            dropped_chars=len(text) - action.consumed,
            fabricated=self.rules.protocol.fabricated(text),
        )
        self.turns.append(turn)
        self.segments.append(Segment(source="model", text=counted))
        self.counts["num_turns"] += 1
        self.counts["num_fabricated"] += turn.fabricated
        self.counts["num_dropped_chars"] += turn.dropped_chars

    def _answer(self, text: str) -> None:
        self.answer = text
        self._tokens.append("A")
        self._end(Status.ANSWERED)

    def _reject(self, action: Invalid) -> None:
        self.counts["num_invalid"] += 1
        self._tokens.append(f"X{len(self.turns)}")
        self._feedback = self.rules.protocol.invalid_message(action.reason)

    def _grant(self, queries: tuple[str, ...]) -> None:
        """Grant what the budget allows; on the last turn that is nothing."""
        last = self.counts["num_turns"] >= self.rules.max_turns
        left = 0 if last else self.rules.max_searches - self.counts["num_searches"]
        self._granted, self._refused = queries[:left], queries[left:]

    def _refuse(self) -> str:
        """Record the queries that were not granted, after the granted ones; say that they were."""
        for query in self._refused:
            self.counts["num_over_budget"] += 1
            self.counts["num_attempted"] += 1
            self._add(SearchCall(turn=len(self.turns), query=query, status="over_budget"))
        return self.rules.protocol.over_budget_message() if self._refused else ""

    def _execute(self, results: Sequence[Sequence[SearchHit]]) -> str:
        rendered = self.rules.protocol.render(results, self.rules.max_observation_chars)
        for query, hits in zip(self._granted, results, strict=True):
            self._count_search(self._call(query, hits, rendered))
        return rendered.text

    def _call(self, query: str, hits: Sequence[SearchHit], rendered: Rendered) -> SearchCall:
        golds = self.question.golden_answers
        ids = tuple(hit.id for hit in hits)
        if not all(math.isfinite(hit.score) for hit in hits):
            raise SearchProtocolError(f"the search for {query!r} gave a score that is not finite")
        shown = not rendered.truncated or contains_answer(rendered.text, golds)
        return SearchCall(
            turn=len(self.turns),
            query=query,
            status="ok" if hits else "empty",
            ids=ids,
            ranks=tuple(range(1, len(hits) + 1)),
            scores=tuple(hit.score for hit in hits),
            hit=shown and any(contains_answer(hit.contents, golds) for hit in hits),
            supporting=tuple(i for i in ids if i in self.question.supporting),
            repeated=query.casefold() in self._asked,
            truncated=rendered.truncated and bool(hits),
        )

    def _count_search(self, call: SearchCall) -> None:
        self._asked.add(call.query.casefold())
        self._found.update(call.supporting)
        self.counts["num_searches"] += 1
        self.counts["num_attempted"] += 1
        self.counts["num_empty"] += call.status == "empty"
        self.counts["num_repeated"] += call.repeated
        self.counts["num_hits"] += call.hit
        if self.question.supporting:
            self.counts["num_supporting"] = len(self._found)
        self._add(call)

    def _add(self, call: SearchCall) -> None:
        self.calls.append(call)
        self._tokens.append(call_token(call))

    def _end(self, status: Status) -> None:
        self.status = status
        name = self.rules.reward
        self.reward_parts[name] = REWARDS[name](self.answer, self.question.golden_answers)
