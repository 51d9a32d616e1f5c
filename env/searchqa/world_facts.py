"""Entities of the generated world and their facts, each a pure function of (config, index).

Entities are numbered in blocks by kind. A fact is drawn by hashing (seed, relation, number), so
nothing is stored and any entity of a world of millions costs the same few microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from searchqa.errors import ConfigError
from searchqa.world_names import Names
from searchqa.world_random import Permutation, Skewed, derive_key, falling_shares, mix
from searchqa.world_words import (
    COUNTRIES,
    CURRENCIES,
    INSTRUMENTS,
    LANGUAGES,
    PRODUCTS,
    SCRIPTS,
    SEAS,
    TRADES,
    YEARS,
)

KINDS = (
    "country",
    "language",
    "river",
    "city",
    "university",
    "film",
    "novel",
    "song",
    "company",
    "person",
)
WORKS = KINDS[5:9]
SPLITS = ("train", "validation", "test")
_DEAL = (*["train"] * 8, "validation", "test")
_BLOCK = len(_DEAL)
MIN_PASSAGES = 500
MAX_PASSAGES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """What a world is made from; equal configs give equal bytes."""

    passages: int = 4000
    """Passages, one an entity; 500 to 2**31."""
    seed: int = 0
    """Seed of every name, fact and question; at least 0."""
    mode_share: float = 0.36
    """Share of the likeliest value of each skewed relation; 0.25 to 0.9. The others fall as 1/2,
    1/3, 1/4 ..., so that guessing the mode is right this often."""

    def __post_init__(self) -> None:
        if not MIN_PASSAGES <= self.passages <= MAX_PASSAGES:
            raise ConfigError(
                f"passages is {self.passages}, but a world has {MIN_PASSAGES} to {MAX_PASSAGES}"
            )
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}, but it must be at least 0")
        if not 0.25 <= self.mode_share <= 0.9:
            raise ConfigError(f"mode_share is {self.mode_share}, but it must be 0.25 to 0.9")


_ORDERS: Mapping[str, tuple[str, ...]] = {
    "birth_country": COUNTRIES,
    "mother_tongue": LANGUAGES,
    "profession": TRADES,
    "instrument": INSTRUMENTS,
    # Reversed, so that what a work's own passage says is seldom what is true of its people.
    **{f"{work}_country": COUNTRIES[::-1] for work in ("film", "novel", "song")},
    **{f"{work}_language": LANGUAGES[::-1] for work in ("film", "novel", "company")},
    **{f"{work}_hero": TRADES[::-1] for work in ("film", "novel", "song")},
    "song_instrument": INSTRUMENTS[::-1],
    "product": PRODUCTS,
    "sea": SEAS,
    "script": SCRIPTS,
}
_EVEN: Mapping[str, tuple[str, ...]] = {
    "company_country": COUNTRIES,
    "city_country": COUNTRIES,
    "official_language": LANGUAGES,
    "currency": CURRENCIES,
    "birth_year": YEARS,
    "film_year": YEARS,
    "novel_year": YEARS,
    "university_year": YEARS,
}


def prior_of(relation: str, mode_share: float) -> dict[str, float]:
    """The distribution that the values of ``relation`` are drawn from, likeliest first.

    Empty for relations whose values are people, cities and the like: they cannot be guessed.
    """
    if relation in _ORDERS:
        order = _ORDERS[relation]
        return dict(zip(order, falling_shares(len(order), mode_share), strict=True))
    even = _EVEN.get(relation, ())
    return dict.fromkeys(even, 1.0 / len(even)) if even else {}


def block_sizes(passages: int) -> dict[str, int]:
    """How many entities of each kind a world of this size has; the people are the rest."""
    sizes = {
        "country": len(COUNTRIES),
        "language": len(LANGUAGES),
        "river": max(12, passages // 100),
        "city": max(2 * len(COUNTRIES), 3 * passages // 100),
        "university": max(12, 3 * passages // 200),
        **dict.fromkeys(WORKS, 19 * passages // 200),
    }
    return {**sizes, "person": passages - sum(sizes.values())}


Facts: TypeAlias = "dict[str, int | str]"
"""By relation name: an entity's number, or a literal."""

_LEADING = {"film": "director", "novel": "author", "song": "singer", "company": "founder"}
_OTHERS = {
    "film": ("actor", "composer"),
    "novel": ("illustrator",),
    "song": ("producer",),
    "company": ("chief",),
}
_VALUES = {kind: tuple(name for name in _ORDERS if name.startswith(f"{kind}_")) for kind in WORKS}
_VALUES["company"] += ("product",)
_DRAWN = (
    "president",
    "river",
    "mayor",
    "university_city",
    "company_city",
    "birth_city",
    "affiliation",
    "birth_year",
    "film_year",
    "novel_year",
    "university_year",
    "phrasing",
    "split",
)


class Layout:
    """The numbered entities of one world: the kind, title and facts of each."""

    def __init__(self, config: WorldConfig) -> None:
        self.sizes = block_sizes(config.passages)
        self.starts: dict[str, int] = {}
        position = 0
        for kind in KINDS:
            self.starts[kind] = position
            position += self.sizes[kind]
        self._bounds = list(self.starts.values())
        self._names = Names(config.seed, self.sizes)
        others = (role for roles in _OTHERS.values() for role in roles)
        self._keys = {name: derive_key(config.seed, name) for name in (*_DRAWN, *_ORDERS, *others)}
        self._ranks = {
            name: Skewed(falling_shares(len(order), config.mode_share))
            for name, order in _ORDERS.items()
        }
        self._listed: dict[str, int] = {
            name: start + place
            for start, names in (
                (self.starts["country"], COUNTRIES),
                (self.starts["language"], LANGUAGES),
            )
            for place, name in enumerate(names)
        }
        # The leading person of a work: a bijection, so that no two works share one.
        self._leads = Permutation(derive_key(config.seed, "leads"), self.sizes["person"])
        self._tongues = Permutation(derive_key(config.seed, "tongues"), len(COUNTRIES))

    def locate(self, entity: int) -> tuple[str, int]:
        """The kind of an entity and its number within the kind."""
        kind = KINDS[bisect_right(self._bounds, entity) - 1]
        return kind, entity - self.starts[kind]

    def title(self, entity: int) -> str:
        """The unique title of an entity."""
        return self._names(*self.locate(entity))

    def hashed(self, purpose: str, number: int) -> int:
        """A uniform 64-bit word for one of the world's declared purposes."""
        return mix(self._keys[purpose], number)

    def split_of(self, kind: str, number: int) -> str:
        """The only split whose questions name this entity.

        Of every ten neighbours, in an order turned by hash, eight are for training and one each
        for validation and test.
        """
        return _DEAL[(number + self._turn(kind, number // _BLOCK)) % _BLOCK]

    def member(self, kind: str, split: str, draw: int) -> int | None:
        """A random entity of ``kind`` in ``split`` from a 64-bit draw; now and then None."""
        size = self.sizes[kind]
        draw, block = divmod(draw, -(-size // _BLOCK))
        role = _DEAL.index(split) + draw % _DEAL.count(split)
        number = block * _BLOCK + (role - self._turn(kind, block)) % _BLOCK
        return self.starts[kind] + number if number < size else None

    def _turn(self, kind: str, block: int) -> int:
        return mix(self._keys["split"], self.starts[kind] + block) % _BLOCK

    def facts(self, entity: int) -> Facts:
        """All facts of an entity, by relation name; O(1)."""
        kind, number = self.locate(entity)
        if kind in WORKS:
            return self._work(kind, number)
        if kind == "person":
            return self._person(number)
        if kind == "city":
            return {
                "city_country": number % len(COUNTRIES),
                "river": self._entity("river", number, "river"),
                "mayor": self._entity("mayor", number, "person"),
            }
        if kind == "country":
            # Cities are dealt to countries in turn, so city c of the first round is in country c.
            return {
                "capital": self.starts["city"] + number,
                "currency": CURRENCIES[number],
                "official_language": self.starts["language"] + self._tongues(number),
                "president": self._entity("president", number, "person"),
            }
        if kind == "university":
            return {
                "university_city": self._entity("university_city", number, "city"),
                "university_year": self._year("university_year", number),
            }
        name = {"river": "sea", "language": "script"}[kind]
        return {name: self._value(name, number)}

    def _work(self, kind: str, number: int) -> Facts:
        people, first = self.sizes["person"], self.starts["person"]
        lead = self._leads(self.starts[kind] - self.starts[WORKS[0]] + number)
        facts: Facts = {_LEADING[kind]: first + lead}
        offsets: list[int] = []
        for role in _OTHERS[kind]:
            # Drawn without replacement: step over the people already in the work.
            offset = 1 + mix(self._keys[role], number) % (people - 1 - len(offsets))
            offset += sum(taken <= offset for taken in offsets)
            offsets.append(offset)
            facts[role] = first + (lead + offset) % people
        for name in _VALUES[kind]:
            facts[name] = self._value(name, number)
        if kind == "company":
            city = self._entity("company_city", number, "city")
            facts["company_city"] = city
            facts["company_country"] = (city - self.starts["city"]) % len(COUNTRIES)
        elif kind != "song":
            facts[f"{kind}_year"] = self._year(f"{kind}_year", number)
        return facts

    def _person(self, number: int) -> Facts:
        country = self._ranks["birth_country"](mix(self._keys["birth_country"], number))
        cities = (self.sizes["city"] - 1 - country) // len(COUNTRIES) + 1
        turn = mix(self._keys["birth_city"], number) % cities
        draw = mix(self._keys["affiliation"], number)
        affiliation = ("employer", "company") if draw & 1 else ("university", "university")
        kind = affiliation[1]
        return {
            "birth_country": country,
            "birth_city": self.starts["city"] + turn * len(COUNTRIES) + country,
            "birth_year": self._year("birth_year", number),
            "mother_tongue": self._value("mother_tongue", number),
            "profession": self._value("profession", number),
            "instrument": self._value("instrument", number),
            affiliation[0]: self.starts[kind] + (draw >> 1) % self.sizes[kind],
        }

    def _entity(self, name: str, number: int, kind: str) -> int:
        return self.starts[kind] + mix(self._keys[name], number) % self.sizes[kind]

    def _year(self, name: str, number: int) -> str:
        return YEARS[mix(self._keys[name], number) % len(YEARS)]

    def _value(self, name: str, number: int) -> int | str:
        """A skewed draw: a literal, or the number of the country or language drawn."""
        value = _ORDERS[name][self._ranks[name](mix(self._keys[name], number))]
        return self._listed.get(value, value)
