"""Questions of the generated world, made one by one from numbered candidates.

A candidate is an entity with one place on its kind's menu. A split is a keyed walk over all
candidates, so order is shuffled, any number of questions can be taken from a world of any size,
and a question's id and words do not depend on which others were asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from searchqa.types import Question
from searchqa.world_facts import KINDS, Layout
from searchqa.world_paths import Path, menu
from searchqa.world_random import Permutation, derive_key, mix
from searchqa.world_wordings import Comparison, chain_text, comparison_text, noun_phrase

Hops: TypeAlias = "list[dict[str, str]]"
"""The lookups of a question, in order."""
_TRIES = 64
_CACHED = 1 << 14


class _Candidate(NamedTuple):
    """A question that may be asked, if the world has its facts."""

    number: int
    """Among all candidates of the world; the number in the question's id."""
    entity: int
    """What the question starts from."""
    path: Path


class QuestionMaker:
    """Makes the questions of one world; caches what it looked up, within a bound."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self._layout = layout
        self._facts = lru_cache(maxsize=_CACHED)(layout.facts)
        self._title = lru_cache(maxsize=_CACHED)(layout.title)
        purposes = ["order", "words", "partner", "coin"]
        purposes += [f"{kind}/{group.name}" for kind in KINDS for group in menu(kind)]
        self._keys = {name: derive_key(seed, f"questions/{name}") for name in purposes}
        self._places = [[(g, turn) for g in menu(k) for turn in range(g.quota)] for k in KINDS]
        self._starts: list[int] = []
        self._total = 0
        for kind, places in zip(KINDS, self._places, strict=True):
            self._starts.append(self._total)
            self._total += layout.sizes[kind] * len(places)

    def walk(self, split: str, wanted: Callable[[Path], bool]) -> Iterator[Question]:
        """The questions of ``split`` whose path is ``wanted``, in the world's shuffled order."""
        for candidate in self._candidates(split, wanted):
            if candidate.path.comparison:
                made = self._compare(candidate, candidate.path.comparison)
            else:
                made = self._chain(candidate)
            if made:
                yield _question(split, candidate, *made)

    def _candidates(self, split: str, wanted: Callable[[Path], bool]) -> Iterator[_Candidate]:
        verdicts = [[[wanted(p) for p in g.paths] for g, _ in places] for places in self._places]
        hopeful = [[any(row) for row in rows] for rows in verdicts]
        for number in map(Permutation(self._keys["order"], self._total), range(self._total)):
            block = bisect_right(self._starts, number) - 1
            kind, places = KINDS[block], self._places[block]
            member, place = divmod(number - self._starts[block], len(places))
            entity = self._layout.starts[kind] + member
            if not hopeful[block][place] or self._layout.split_of(kind, member) != split:
                continue
            group, turn = places[place]
            start = mix(self._keys[f"{kind}/{group.name}"], member)
            chosen = (start + turn) % len(group.paths)
            if verdicts[block][place][chosen]:
                yield _Candidate(number, entity, group.paths[chosen])

    def _chain(self, candidate: _Candidate) -> tuple[str, str, Hops] | None:
        hops = self._follow(candidate.entity, candidate.path.relations)
        if hops is None:
            return None
        choice = mix(self._keys["words"], candidate.number)
        text = chain_text(hops[0]["entity"], candidate.path.relations, choice)
        return text, hops[-1]["answer"], hops

    def _follow(self, entity: int, relations: tuple[str, ...]) -> Hops | None:
        """The hops along ``relations``; None where a fact is missing or the chain turns back."""
        hops: Hops = []
        visited = {entity}
        title = self._title(entity)
        for name in relations:
            value = self._facts(entity).get(name)
            if value is None or value in visited:
                return None
            answer = value if isinstance(value, str) else self._title(value)
            hop = {"entity": title, "passage_id": str(entity), "relation": name, "answer": answer}
            hops.append(hop)
            if isinstance(value, int):
                entity, title = value, answer
                visited.add(value)
        return hops

    def _compare(
        self, candidate: _Candidate, comparison: Comparison
    ) -> tuple[str, str, Hops] | None:
        sides = self._sides(candidate, comparison.rule == "same")
        if sides is None:
            return None
        relations = candidate.path.relations
        choice = mix(self._keys["words"], candidate.number)
        named = [hops[0]["entity"] for hops in sides]
        if len(relations) > 1:
            named = [noun_phrase(title, relations[0], choice >> 8) for title in named]
        text = comparison_text(named[0], named[1], comparison, choice)
        return text, _verdict(comparison.rule, *(hops[-1] for hops in sides)), sides[0] + sides[1]

    def _sides(self, candidate: _Candidate, may_agree: bool) -> tuple[Hops, Hops] | None:
        """Hops of both sides: a partner of the same kind and split, tried until it fits.

        Where the values may agree, a hashed coin says whether they shall, so that yes and no are
        about as frequent. The sides share no passage.
        """
        entity, relations = candidate.entity, candidate.path.relations
        mine = self._follow(entity, relations)
        if mine is None:
            return None
        agree = may_agree and bool(mix(self._keys["coin"], candidate.number) & 1)
        kind, number = self._layout.locate(entity)
        split = self._layout.split_of(kind, number)
        for attempt in range(_TRIES):
            draw = mix(self._keys["partner"], candidate.number * _TRIES + attempt)
            other = self._layout.member(kind, split, draw)
            theirs = self._follow(other, relations) if other is not None else None
            if theirs is None or mine[-1]["passage_id"] == theirs[-1]["passage_id"]:
                continue
            if agree == (mine[-1]["answer"] == theirs[-1]["answer"]):
                return mine, theirs
        return None


def _verdict(rule: str, one: dict[str, str], two: dict[str, str]) -> str:
    """The answer of a comparison, from the last hop of each side."""
    if rule == "same":
        return "yes" if one["answer"] == two["answer"] else "no"
    return min(one, two, key=lambda hop: int(hop["answer"]))["entity"]


def _question(split: str, candidate: _Candidate, text: str, answer: str, hops: Hops) -> Question:
    path = candidate.path
    rule = {"rule": path.comparison.rule} if path.comparison else {}
    return Question(
        id=f"demo-{split}-{candidate.number:06d}",
        text=text,
        golden_answers=(answer,),
        hops=path.hops,
        type=path.type,
        source=f"demo/{split}",
        supporting=tuple(hop["passage_id"] for hop in hops),
        metadata={"chain": hops, "relations": list(path.relations), **rule},
    )
