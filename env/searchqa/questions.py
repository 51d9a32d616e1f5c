"""Questions: where they come from, and which one a seed names.

A source is the generated demo world (``demo:train?hops=2``), a JSONL file in the FlashRAG form,
or a sequence of ``Question``. Of N questions ``reset(seed=s)`` takes ``perm(s // N)[s % N]``, a
keyed permutation that needs no memory: a pure function of ``s``, so consecutive seeds cover the
split once an epoch in a new order each time, and a learner's data cursor is one integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, SupportsIndex
from urllib.parse import parse_qsl

from searchqa.errors import ConfigError
from searchqa.question_file import checked, read_questions
from searchqa.types import Question
from searchqa.world import DEMO_RELATIONS, World, WorldConfig
from searchqa.world_random import Permutation, derive_key


@lru_cache(maxsize=64)
def _order(epoch: int, size: int) -> Permutation:
    return Permutation(derive_key(epoch, "question order"), size)


def place_of(seed: int, size: int) -> int:
    """The place of the question that a seed names: ``perm(seed // size)[seed % size]``.

    Args:
        seed: Any integer >= 0.
        size: Number of questions, at least 1.

    Returns:
        An index in ``range(size)``; ``size`` consecutive seeds from a multiple of it give each
        index once.
    """
    epoch, index = divmod(seed, size)
    return _order(epoch, size)(index)


class QuestionSet:
    """Questions in a fixed order, found by index, by id or by seed."""

    def __init__(self, questions: Iterable[Question], source: str) -> None:
        self.questions = tuple(map(checked, questions))
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

    def __reduce__(self) -> Any:
        """Generated questions pickle as their name, others as they are."""
        if self.source.startswith("demo:"):
            return open_questions, (self.source,)
        return QuestionSet, (self.questions, self.source)

    def by_seed(self, seed: int) -> Question:
        """The question that ``reset(seed=seed)`` takes."""
        return self.questions[place_of(seed, len(self.questions))]

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
        if not isinstance(index, SupportsIndex):
            raise ConfigError(f"index must be an integer, not {index!r}")
        if not 0 <= index < len(self.questions):
            raise ConfigError(f"index {index} is not in 0..{len(self.questions) - 1}")
        return self.questions[index]


@dataclass(frozen=True, slots=True)
class DemoSpec:
    """What a ``demo:`` string asks for."""

    split: str
    passages: int | None = None
    seed: int | None = None
    mode_share: float | None = None
    hops: tuple[int, ...] | None = None
    types: tuple[str, ...] | None = None
    relations: tuple[str, ...] | None = None
    limit: int | None = None

    @property
    def world(self) -> dict[str, float]:
        """The arguments of the world's configuration that were given."""
        given = {"passages": self.passages, "seed": self.seed, "mode_share": self.mode_share}
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
        if key not in _READERS:
            known = ", ".join(_READERS)
            raise ConfigError(f"{key!r} in questions={spec!r} is unknown; use {known}")
        if key in given:
            raise ConfigError(f"{key!r} is twice in questions={spec!r}; give several as a,b")
        try:  # the status is the package's own error
            given[key] = _READERS[key](value)
        except ValueError as error:
            raise ConfigError(f"{key} in questions={spec!r} must be a number: {error}") from error
    return DemoSpec(split, **given)


def _names(value: str) -> tuple[str, ...]:
    return tuple(value.split(","))


_READERS: dict[str, Callable[[str], Any]] = {
    "passages": int,
    "seed": int,
    "mode_share": float,
    "limit": int,
    "hops": lambda value: tuple(map(int, value.split(","))),
    "types": _names,
    "relations": _names,
}


@lru_cache(maxsize=4)
def demo_world(**config: float) -> World:
    """The generated world of that configuration, built once per process.

    Args:
        config: Arguments of :class:`searchqa.world.WorldConfig`.

    Raises:
        ConfigError: A value is out of range.
    """
    return World(WorldConfig(**config))  # type: ignore[arg-type]  # kinds by _READERS


@lru_cache(maxsize=16)
def _demo_questions(spec: str) -> QuestionSet:
    demo = parse_demo(spec)
    relations = tuple(DEMO_RELATIONS) if demo.relations == ("demo",) else demo.relations
    world = demo_world(**demo.world)
    questions = world.questions(
        demo.split, hops=demo.hops, types=demo.types, relations=relations, limit=demo.limit
    )
    return QuestionSet(questions, spec)


@lru_cache(maxsize=16)
def _file_questions(path: str, changed_ns: int) -> QuestionSet:
    return QuestionSet(read_questions(path), path)


def _given(source: Any) -> list[Question]:
    questions = list(source) if isinstance(source, Iterable) else [source]
    if not all(isinstance(question, Question) for question in questions):
        raise ConfigError(
            f"questions={str(source)[:60]!r} must be demo:SPLIT, the path of a file as a text, or "
            "a sequence of Question"
        )
    return questions


def open_questions(source: str | Sequence[Question]) -> QuestionSet:
    """Open a source of questions; those named by a string are kept once per process.

    Args:
        source: ``demo:SPLIT?...``, the path of a ``.jsonl`` or ``.jsonl.gz``, or questions.

    Raises:
        ConfigError: The source does not exist or holds nothing.
        QuestionFileError: A line of the file is malformed.
    """
    if not isinstance(source, str):
        return QuestionSet(_given(source), "the given questions")
    if source.startswith("demo:"):
        return _demo_questions(source)
    path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f"questions={source!r} is neither demo:train, demo:validation, demo:test nor a file"
        )
    return _file_questions(str(path), path.stat().st_mtime_ns)
