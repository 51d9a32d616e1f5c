"""Questions: where they come from, and which one a seed names.

A source is the generated demo world (``demo:train?hops=2``), a JSONL file in the FlashRAG form,
or a sequence of ``Question``. ``reset(seed=s)`` takes question ``permute(s % N, N, s // N)``: a
pure function of ``s``, so consecutive seeds cover the split once an epoch in a new order each
time, and a learner's data cursor is one integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from searchqa.errors import ConfigError
from searchqa.question_file import read_questions
from searchqa.types import Question

_MASK = (1 << 64) - 1
_ROUNDS = 4


def permute(index: int, size: int, key: int) -> int:
    """A keyed permutation of ``range(size)``, one element at a time.

    A four-round Feistel network over the next power of four, walked until it lands inside the
    range. It needs no memory, and no library's release can change it.

    Args:
        index: Element of ``range(size)``.
        size: Number of elements, at least 1.
        key: Which permutation; any integer >= 0.

    Returns:
        Its image; distinct elements have distinct images.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for turn in range(_ROUNDS):
            left, right = right, left ^ (_mix(right, turn, key) & low)
        index = (left << half) | right
        if index < size:
            return index


def _mix(value: int, turn: int, key: int) -> int:
    """The finaliser of SplitMix64 over value, round and key."""
    z = (value + 0x9E3779B97F4A7C15 * (turn + 1) + 0xD1B54A32D192ED03 * (key + 1)) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class QuestionSet:
    """Questions in a fixed order, found by index, by id or by seed."""

    def __init__(self, questions: Iterable[Question], source: str) -> None:
        self.questions = tuple(questions)
        self.source = source
        if not self.questions:
            raise ConfigError(f"{source} holds no questions; at least one is needed")
        self._index = {question.id: i for i, question in enumerate(self.questions)}
        if len(self._index) < len(self.questions):
            raise ConfigError(f"{source} gives the same id to two questions; ids must be unique")

    def __len__(self) -> int:
        return len(self.questions)

    def __deepcopy__(self, memo: dict[int, Any]) -> QuestionSet:
        """Immutable: a copy is the set itself."""
        return self

    def by_seed(self, seed: int) -> Question:
        """The question that ``reset(seed=seed)`` takes."""
        size = len(self.questions)
        return self.questions[permute(seed % size, size, seed // size)]

    def by_id(self, question_id: str) -> Question:
        """The question of that id.

        Raises:
            ConfigError: There is none.
        """
        if question_id not in self._index:
            raise ConfigError(f"question_id {question_id!r} is not in {self.source}")
        return self.questions[self._index[question_id]]

    def by_index(self, index: int) -> Question:
        """The question at that place, from 0.

        Raises:
            ConfigError: There is none.
        """
        if not 0 <= index < len(self.questions):
            raise ConfigError(f"index {index} is not in 0..{len(self.questions) - 1}")
        return self.questions[index]


@dataclass(frozen=True, slots=True)
class DemoSpec:
    """What a ``demo:`` string asks for."""

    split: str
    passages: int | None = None
    seed: int | None = None
    hops: tuple[int, ...] | None = None
    types: tuple[str, ...] | None = None
    relations: tuple[str, ...] | None = None
    limit: int | None = None

    @property
    def world(self) -> dict[str, int]:
        """The arguments of the world's configuration that were given."""
        given = {"passages": self.passages, "seed": self.seed}
        return {key: value for key, value in given.items() if value is not None}


def parse_demo(spec: str) -> DemoSpec:
    """Read ``demo:SPLIT?key=value&...``.

    Args:
        spec: Such as ``demo:train?hops=2,3&relations=demo&passages=4000&seed=0&limit=100``.

    Raises:
        ConfigError: A key is unknown or a value is no number where one is needed.
    """
    split, _, query = spec.removeprefix("demo:").partition("?")
    given: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in ("passages", "seed", "limit"):
            given[key] = _number(spec, key, value)
        elif key == "hops":
            given[key] = tuple(_number(spec, key, part) for part in value.split(","))
        elif key in ("types", "relations"):
            given[key] = tuple(value.split(","))
        else:
            known = "passages, seed, limit, hops, types, relations"
            raise ConfigError(f"{key!r} in questions={spec!r} is unknown; use {known}")
    return DemoSpec(split, **given)


def _number(spec: str, key: str, value: str) -> int:
    if not value.isdecimal():
        raise ConfigError(f"{key} in questions={spec!r} must be a number, not {value!r}")
    return int(value)


@lru_cache(maxsize=4)
def demo_world(**config: int) -> Any:
    """The generated world of that configuration, built once per process."""
    from searchqa.world import World, WorldConfig

    return World(WorldConfig(**config))


@lru_cache(maxsize=16)
def _demo_questions(spec: str) -> QuestionSet:
    from searchqa.world import DEMO_RELATIONS

    demo = parse_demo(spec)
    filters: dict[str, Any] = {
        "hops": demo.hops,
        "types": demo.types,
        "relations": tuple(DEMO_RELATIONS) if demo.relations == ("demo",) else demo.relations,
        "limit": demo.limit,
    }
    given = {key: value for key, value in filters.items() if value is not None}
    return QuestionSet(demo_world(**demo.world).questions(demo.split, **given), spec)


@lru_cache(maxsize=16)
def _file_questions(path: str, changed_ns: int) -> QuestionSet:
    return QuestionSet(read_questions(path), path)


def open_questions(source: str | Sequence[Question]) -> QuestionSet:
    """Open a source of questions; those named by a string are kept once per process.

    Args:
        source: ``demo:SPLIT?...``, the path of a ``.jsonl`` or ``.jsonl.gz``, or questions.

    Raises:
        ConfigError: The source does not exist or holds nothing.
        QuestionFileError: A line of the file is malformed.
    """
    if not isinstance(source, str):
        return QuestionSet(source, "the given questions")
    if source.startswith("demo:"):
        return _demo_questions(source)
    path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f"questions={source!r} is neither demo:train, demo:validation, demo:test nor a file"
        )
    return _file_questions(str(path), path.stat().st_mtime_ns)
