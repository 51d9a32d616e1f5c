"""Questions of the generated world: which paths are asked from which entity, and in what words.

A path is a chain of one to four relations, or a comparison of two things. All candidates, an
entity with one slot of its kind's menu, are numbered; a split is a keyed walk over those numbers,
so order is shuffled, any number of questions can be taken from a world of any size, and a
question's id does not depend on which others were asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from string import Formatter
from typing import TypeAlias

from searchqa.types import Question
from searchqa.world_facts import KINDS, WORKS, Layout
from searchqa.world_passages import PHRASINGS
from searchqa.world_random import Permutation, derive_key, mix
from searchqa.world_wordings import (
    COMPARISONS,
    DEMO_RELATIONS,
    RELATIONS,
    Comparison,
    chain_text,
    comparison_text,
    noun_phrase,
)

SPLITS = ("train", "validation", "test")
Made: TypeAlias = "tuple[str, str, list[dict[str, str]]]"
"""Text, answer and hops of a question."""
_TRIES = 64
# The value is already in the passage one hop earlier, or is where the chain came from.
_SHORTCUTS = {
    ("birth_city", "city_country"),
    ("company_city", "city_country"),
    ("capital", "city_country"),
}


@dataclass(frozen=True, slots=True)
class Path:
    """What is asked of an entity: a chain of relations, or one fact compared with a partner's."""

    relations: tuple[str, ...]
    """The relations in order; for a comparison those of one side."""
    comparison: Comparison | None = None
    """How the two sides are compared; None for a chain."""

    @property
    def hops(self) -> int:
        """Facts to look up."""
        return len(self.relations) * (2 if self.comparison else 1)

    @property
    def type(self) -> str:
        """``single`` (one hop), ``bridge`` (a longer chain) or ``comparison``."""
        if self.comparison:
            return "comparison"
        return "single" if len(self.relations) == 1 else "bridge"

    @property
    def names(self) -> frozenset[str]:
        """Its relations, and for a comparison its rule besides."""
        rule = {self.comparison.rule} if self.comparison else set()
        return frozenset(self.relations) | rule


@dataclass(frozen=True, slots=True)
class Slot:
    """One place on a kind's menu: the ``turn``-th path, from a hashed start, of a group."""

    group: tuple[Path, ...]
    turn: int


@cache
def relations_of(kind: str) -> tuple[str, ...]:
    """The relations that entities of ``kind`` have, in a fixed order."""
    names: dict[str, None] = {}
    for phrasing in PHRASINGS[kind]:
        names.update(dict.fromkeys(n for _, n, _, _ in Formatter().parse(phrasing) if n))
    return tuple(sorted(names.keys() - {"title"}))


@cache
def chains(kind: str, hops: int) -> tuple[Path, ...]:
    """All chains of ``hops`` relations from an entity of ``kind``, without shortcuts."""
    paths: list[tuple[str, ...]] = [(name,) for name in relations_of(kind)]
    for _ in range(hops - 1):
        paths = [
            (*path, name)
            for path in paths
            if (reached := RELATIONS[path[-1]].value) in KINDS
            for name in relations_of(reached)
            if (path[-1], name) not in _SHORTCUTS
        ]
    return tuple(Path(path) for path in paths)


def comparisons(kind: str) -> tuple[Path, ...]:
    """All comparisons between entities of ``kind``, or between people one relation away."""
    own = relations_of(kind)
    roles = [name for name in own if RELATIONS[name].value == "person"] if kind in WORKS else []
    person = relations_of("person")
    return tuple(
        Path((*lead, comparison.relation), comparison)
        for comparison in COMPARISONS
        for lead, facts in [((), own), *(((role,), person) for role in roles)]
        if comparison.relation in facts
    )


@cache
def menu(kind: str) -> tuple[Slot, ...]:
    """What is asked of every entity of ``kind``: all demo chains, and a few of each other sort."""
    two = chains(kind, 2)
    demo = tuple(path for path in two if path.names <= DEMO_RELATIONS)
    groups = [
        (demo, len(demo)),
        (chains(kind, 1), 2),
        (tuple(path for path in two if path not in demo), 2),
        (chains(kind, 3), 2),
        (chains(kind, 4), 2),
        (comparisons(kind), 2),
    ]
    few = 1 if kind == "person" else 2
    return tuple(
        Slot(group, turn)
        for group, quota in groups
        for turn in range(min(len(group), quota if group is demo else few))
    )


class QuestionMaker:
    """Makes the questions of one world, candidate by candidate."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self._layout = layout
        self._facts = lru_cache(maxsize=1 << 16)(layout.facts)
        self._title = lru_cache(maxsize=1 << 16)(layout.title)
        self._keys = {
            name: derive_key(seed, f"questions/{name}") for name in ("order", "path", "words", "b")
        }
        self._starts: list[int] = []
        total = 0
        for kind in KINDS:
            self._starts.append(total)
            total += layout.sizes[kind] * len(menu(kind))
        self._total = total

    def walk(self, split: str, wanted: Callable[[Path], bool]) -> Iterator[Question]:
        """The questions of ``split`` whose path is ``wanted``, in the world's shuffled order."""
        for position in map(Permutation(self._keys["order"], self._total), range(self._total)):
            place = bisect_right(self._starts, position) - 1
            kind = KINDS[place]
            number, item = divmod(position - self._starts[place], len(menu(kind)))
            slot = menu(kind)[item]
            entity = self._layout.starts[kind] + number
            if self.split_of(entity) != split:
                continue
            start = mix(self._keys["path"], entity * 8 + slot.group[0].hops)
            path = slot.group[(start + slot.turn) % len(slot.group)]
            if wanted(path) and (question := self._make(split, position, entity, path)):
                yield question

    def split_of(self, entity: int) -> str:
        """The split whose questions may name this entity: 80, 10 and 10 in a hundred."""
        draw = self._layout.hashed("split", entity) % 10
        return SPLITS[max(0, draw - 7)]

    def _make(self, split: str, number: int, entity: int, path: Path) -> Question | None:
        choice = mix(self._keys["words"], number)
        if path.comparison:
            made = self._compare(entity, path, path.comparison, number, choice)
        else:
            made = self._chain(entity, path, choice)
        if made is None:
            return None
        text, answer, hops = made
        rule = {"rule": path.comparison.rule} if path.comparison else {}
        return Question(
            id=f"demo-{split}-{number:06d}",
            text=text,
            golden_answers=(answer,),
            hops=path.hops,
            type=path.type,
            source=f"demo/{split}",
            supporting=tuple(hop["passage_id"] for hop in hops),
            metadata={"chain": hops, "relations": list(path.relations), **rule},
        )

    def _chain(self, entity: int, path: Path, choice: int) -> Made | None:
        hops = self._follow(entity, path.relations)
        if hops is None:
            return None
        return chain_text(self._title(entity), path.relations, choice), hops[-1]["answer"], hops

    def _follow(self, entity: int, relations: tuple[str, ...]) -> list[dict[str, str]] | None:
        """The hops along ``relations``; None where a fact is missing or the chain turns back."""
        hops: list[dict[str, str]] = []
        visited = {entity}
        for name in relations:
            value = self._facts(entity).get(name)
            if value is None or value in visited:
                return None
            answer = value if isinstance(value, str) else self._title(value)
            hops.append(
                {
                    "entity": self._title(entity),
                    "passage_id": str(entity),
                    "relation": name,
                    "answer": answer,
                }
            )
            if isinstance(value, int):
                entity = value
                visited.add(value)
        return hops

    def _compare(
        self, entity: int, path: Path, comparison: Comparison, number: int, choice: int
    ) -> Made | None:
        found = self._partner(entity, path, comparison, number)
        if found is None:
            return None
        mine, theirs = found
        sides = [mine[0]["entity"], theirs[0]["entity"]]
        things = [hops[-1]["entity"] for hops in found]
        if len(path.relations) == 2:
            sides = [noun_phrase(side, path.relations[0], choice >> 8) for side in sides]
        values = [hops[-1]["answer"] for hops in found]
        if comparison.rule == "same":
            answer = "yes" if values[0] == values[1] else "no"
        else:
            answer = things[0] if int(values[0]) < int(values[1]) else things[1]
        return comparison_text(sides[0], sides[1], comparison, choice), answer, mine + theirs

    def _partner(
        self, entity: int, path: Path, comparison: Comparison, number: int
    ) -> tuple[list[dict[str, str]], list[dict[str, str]]] | None:
        """Hops of both sides: a partner of the same kind and split, tried until it fits.

        For ``same`` a hashed coin says whether the values should agree, so that yes and no are
        about as frequent; for ``earlier`` the years must differ.
        """
        mine = self._follow(entity, path.relations)
        kind, _ = self._layout.locate(entity)
        agree = comparison.rule == "same" and bool(mix(self._keys["b"], number) & 1)
        for attempt in range(_TRIES if mine else 0):
            draw = mix(self._keys["b"], (number + 1) * _TRIES + attempt)
            other = self._layout.starts[kind] + draw % self._layout.sizes[kind]
            if other == entity or self.split_of(other) != self.split_of(entity):
                continue
            theirs = self._follow(other, path.relations)
            if mine and theirs and agree == (mine[-1]["answer"] == theirs[-1]["answer"]):
                return mine, theirs
        return None
