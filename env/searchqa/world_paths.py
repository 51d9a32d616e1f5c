"""What is asked of the entities of the generated world: the paths of each kind.

A path is a chain of one to four relations, or a comparison of one fact of two things. There are
thousands; every entity gets a few of each sort from its kind's menu, and all of the demo's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from string import Formatter

from searchqa.world_facts import KINDS, WORKS
from searchqa.world_passages import PHRASINGS
from searchqa.world_wordings import COMPARISONS, DEMO_RELATIONS, RELATIONS, Comparison

TYPES = ("single", "bridge", "comparison")
MAX_HOPS = 4
# The last value is in the passage one hop earlier, or is where the chain came from.
_SHORTCUTS = frozenset(
    {("birth_city", "city_country"), ("company_city", "city_country"), ("capital", "city_country")}
)


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
class Group:
    """Paths of one sort; every entity of the kind gets ``quota`` neighbours of a hashed start."""

    name: str
    paths: tuple[Path, ...]
    quota: int


@cache
def relations_of(kind: str) -> tuple[str, ...]:
    """The relations that entities of ``kind`` have, sorted: the slots of its phrasings."""
    slots = {
        name
        for phrasing in PHRASINGS[kind]
        for _, name, _, _ in Formatter().parse(phrasing)
        if name
    }
    return tuple(sorted(slots - {"title"}))


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
def menu(kind: str) -> tuple[Group, ...]:
    """What is asked of every entity of ``kind``: all demo chains, and a path of each other sort."""
    two = chains(kind, 2)
    demo = tuple(path for path in two if path.names <= DEMO_RELATIONS)
    other = tuple(path for path in two if path not in demo)
    groups = (
        Group("demo", demo, len(demo)),
        Group("single", chains(kind, 1), 1),
        Group("two", other, 1),
        Group("three", chains(kind, 3), 1),
        Group("four", chains(kind, 4), 1),
        Group("comparison", comparisons(kind), 1),
    )
    # Longer chains start from works; from people, half the world, they would crowd out the rest.
    skipped = {"three", "four"} if kind == "person" else set()
    return tuple(group for group in groups if group.paths and group.name not in skipped)
