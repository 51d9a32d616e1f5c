"""A scripted, as clumsy as wanted, player of demo-world questions in Search-R1 tags.

It records episodes for a supervised warm start and is the oracle of tests. It knows the question,
which relations it asks for, the wordings of the world and the prior over answers; facts it reads
from the observations it is given, never from passages it has not retrieved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from searchqa.errors import ConfigError
from searchqa.types import Question
from searchqa.world_facts import KINDS, WorldConfig, prior_of
from searchqa.world_passages import read_passage
from searchqa.world_wordings import RELATIONS

UNKNOWN = "unknown"
"""The answer where nothing was read and nothing can be guessed."""

_DOCUMENT = re.compile(r'Doc \d+\(Title: "?(.*?)"?\) (.*?)(?:</information>)?$', re.MULTILINE)

_HOP = frozenset({"entity", "relation", "answer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Clumsiness:
    """How a demonstration falls short; every number is a probability."""

    depth_weights: tuple[float, ...] = (0.4, 0.3, 0.3)
    """Weights of attempting 0, 1, 2 ... searches; empty: always as many as the question needs."""
    follow: float = 0.15
    """That a search after the first goes to the right entity, and not to another of the last
    passage (a person where there is one)."""
    mode: float = 0.9
    """That a guess is the likeliest value; else it is drawn from the prior."""
    copy: float = 1.0
    """That, where the value asked for was not read, one of its kind is copied from the last
    passage if it has one; else it is guessed."""

    misread: float = 0.0
    """That the value asked for, though read, is mistaken for another value of the passage."""

    def __post_init__(self) -> None:
        for name in ("follow", "mode", "copy", "misread"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be 0 to 1")
        weights = self.depth_weights
        if weights and (min(weights) < 0.0 or not 0.0 < sum(weights) < float("inf")):
            raise ConfigError(
                f"depth_weights are {weights}, but they must be at least 0 and not all 0"
            )


FAULTLESS = Clumsiness(depth_weights=(), follow=1.0)
"""As many searches as the question needs, each to the right entity."""


def oracle_action(question: Question, turn: int) -> str:
    """The right action of turn ``turn`` (from 0): the hop's search, then the gold answer.

    Raises:
        ConfigError: The question is not from the demo world.
    """
    chain = _chain(question)
    if turn < len(chain):
        return search_action(chain[turn]["entity"])
    return answer_action(question.golden_answers[0])


def search_action(query: str) -> str:
    """A search in Search-R1 tags."""
    return f"<search> {query} </search>"


def answer_action(answer: str) -> str:
    """An answer in Search-R1 tags."""
    return f"<answer> {answer} </answer>"


class Demonstrator:
    """Plays one question; feed ``act`` each observation in turn, the prompt first.

    Example:
        >>> from searchqa.world import World
        >>> question = World().questions("train", types=["bridge"], limit=1)[0]
        >>> player = Demonstrator(question, np.random.default_rng(0), FAULTLESS)
        >>> player.act(question.text).startswith("<search> ")
        True
    """

    def __init__(
        self,
        question: Question,
        rng: np.random.Generator,
        clumsiness: Clumsiness | None = None,
        world: WorldConfig | None = None,
    ) -> None:
        """A player of ``question``.

        Args:
            question: From the demo world; its chain says what to look for.
            rng: Source of all of its chance; the depth is drawn here.
            clumsiness: How it falls short; the default ``Clumsiness()``.
            world: Whose prior guesses are drawn from; the default world.

        Raises:
            ConfigError: The question is not from the demo world.
        """
        self._question = question
        self._chain = _chain(question)
        self._rng = rng
        self._clumsiness = clumsiness or Clumsiness()
        self._mode_share = (world or WorldConfig()).mode_share
        self._queries: list[str] = []
        self._facts: dict[str, str] = {}
        self._values: list[str] = []
        weights = np.asarray(self._clumsiness.depth_weights, dtype=np.float64)
        self.depth = len(self._chain)
        if len(weights):
            self.depth = int(rng.choice(len(weights), p=weights / weights.sum()))

    def act(self, observation: str) -> str:
        """The next action, given what the environment said last."""
        if self._queries:
            self._read(observation)
        if len(self._queries) >= self.depth:
            return answer_action(self._answer())
        query = self._next_query()
        self._queries.append(query)
        return search_action(query)

    def _read(self, observation: str) -> None:
        """Take the facts of the passage that was searched for, and the value of this hop."""
        found: Sequence[tuple[str, str]] = _DOCUMENT.findall(observation)
        texts = [text for title, text in found if title == self._queries[-1]]
        texts += [text for _, text in found[:1]]
        self._facts = read_passage(texts[0])[1] if texts else {}
        hop = min(len(self._queries), len(self._chain)) - 1
        self._values.append(self._facts.get(self._chain[hop]["relation"], ""))

    def _next_query(self) -> str:
        turn = len(self._queries)
        if turn < len(self._chain) and self._is_named(turn):
            return self._chain[turn]["entity"]
        # Past the end of the chain the right entity is the one that was just looked at.
        right = self._values[-1] if turn < len(self._chain) else self._queries[-1]
        if right and self._rng.random() < self._clumsiness.follow:
            return right
        return self._elsewhere(right)

    def _is_named(self, turn: int) -> bool:
        """Whether the question itself names this hop's entity, so that nothing must be read."""
        return turn == 0 or self._chain[turn]["entity"] != self._chain[turn - 1]["answer"]

    def _elsewhere(self, right: str) -> str:
        """Another entity of the last passage, a person where there is one."""
        others = {
            value: RELATIONS[name].value
            for name, value in self._facts.items()
            if name in RELATIONS and RELATIONS[name].value in KINDS and value != right
        }
        people = [value for value, kind in others.items() if kind == "person"]
        return self._pick(people or list(others) or [self._queries[-1]])

    def _answer(self) -> str:
        if "rule" in self._question.metadata:
            return self._compare(str(self._question.metadata["rule"]))
        asked = self._chain[-1]["relation"]
        if asked in self._facts:
            others = [value for name, value in self._facts.items() if name not in (asked, "title")]
            wrong = others and self._rng.random() < self._clumsiness.misread
            return self._pick(others) if wrong else self._facts[asked]
        kind = RELATIONS[asked].value
        same_kind = [
            value
            for name, value in self._facts.items()
            if name in RELATIONS and RELATIONS[name].value == kind
        ]
        if same_kind and self._rng.random() < self._clumsiness.copy:
            return self._pick(same_kind)
        return self._guess(asked)

    def _compare(self, rule: str) -> str:
        """The comparison's answer from the values read on both sides, or a coin."""
        half = len(self._chain) // 2
        complete = len(self._values) >= len(self._chain)
        values = [self._values[half - 1], self._values[2 * half - 1]] if complete else ["", ""]
        if rule == "same":
            if all(values):
                return "yes" if values[0] == values[1] else "no"
            return self._pick(["yes", "no"])
        if not complete:
            return self._pick([hop["entity"] for hop in self._chain[::2]]) if half == 1 else UNKNOWN
        things = [self._queries[half - 1], self._queries[2 * half - 1]]
        if all(value.isdigit() for value in values):
            return things[0] if int(values[0]) < int(values[1]) else things[1]
        return self._pick(things)

    def _guess(self, relation: str) -> str:
        prior = prior_of(relation, self._mode_share)
        if not prior:
            return UNKNOWN
        values = list(prior)
        if self._rng.random() < self._clumsiness.mode:
            return values[0]
        shares = np.fromiter(prior.values(), dtype=np.float64)
        return values[int(self._rng.choice(len(values), p=shares / shares.sum()))]

    def _pick(self, values: Sequence[str]) -> str:
        return values[int(self._rng.integers(len(values)))]


def _chain(question: Question) -> Sequence[Mapping[str, str]]:
    chain: Sequence[Mapping[str, str]] = question.metadata.get("chain", ())
    if chain and all(isinstance(hop, Mapping) and hop.keys() >= _HOP for hop in chain):
        return chain
    raise ConfigError(
        f"Question {question.id} has no chain of hops with {', '.join(sorted(_HOP))}; "
        "demonstrations need questions of the demo world"
    )
