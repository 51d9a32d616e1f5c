"""The demo world: a fictional encyclopaedia of any size, and questions that need a search.

Everything is a pure function of the config: same config, same bytes, in any process. Passages are
made one by one from their number, so millions can be streamed with flat memory. Nothing can be
known without searching, except what a stated prior over answers gives away.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, overload

from searchqa.errors import ConfigError
from searchqa.record import write_lines
from searchqa.types import Passage, Question
from searchqa.world_facts import SPLITS, Layout, WorldConfig, prior_of
from searchqa.world_passages import PHRASINGS
from searchqa.world_paths import MAX_HOPS, TYPES, Path
from searchqa.world_questions import QuestionMaker
from searchqa.world_wordings import COMPARISONS, DEMO_RELATIONS, RELATIONS

__all__ = ["DEMO_RELATIONS", "SPLITS", "World", "WorldConfig", "export"]

_NAMES = frozenset(RELATIONS) | {comparison.rule for comparison in COMPARISONS}


class World:
    """One generated world.

    Example:
        >>> world = World(WorldConfig(passages=1000))
        >>> world.passage(0).title
        'Velmark'
    """

    def __init__(self, config: WorldConfig | None = None) -> None:
        """A world of ``config``; the default has 4,000 passages."""
        self.config = config or WorldConfig()
        self._layout = Layout(self.config)

    def __repr__(self) -> str:
        return f"World({self.config})"

    @property
    def passages(self) -> Sequence[Passage]:
        """All passages, one an entity, made when they are taken."""
        return _Passages(self)

    def passage(self, index: int) -> Passage:
        """Passage number ``index``, O(1) and a pure function of the config.

        Raises:
            IndexError: ``index`` is not in ``range(config.passages)``.
        """
        if not 0 <= index < self.config.passages:
            raise IndexError(f"passage {index} of a world of {self.config.passages}")
        layout = self._layout
        kind, _ = layout.locate(index)
        facts = layout.facts(index)
        phrasings = PHRASINGS[kind]
        variants = len(phrasings)
        offset = 0
        if kind == "person":
            variants //= 2
            offset = variants if "university" in facts else 0
        phrasing = phrasings[offset + layout.hashed("phrasing", index) % variants]
        title = layout.title(index)
        values = {n: v if isinstance(v, str) else layout.title(v) for n, v in facts.items()}
        return Passage(id=str(index), title=title, text=phrasing.format(title=title, **values))

    def iter_passages(self) -> Iterator[Passage]:
        """All passages in order, with flat memory."""
        return map(self.passage, range(self.config.passages))

    def questions(
        self,
        split: str,
        *,
        hops: Collection[int] | None = None,
        types: Collection[str] | None = None,
        relations: Collection[str] | None = None,
        limit: int | None = None,
    ) -> tuple[Question, ...]:
        """The questions of one split, in a shuffled order that the filters do not change.

        Splits share no question, and no entity that a question names is named in another split's.
        With ``limit`` a world of any size answers quickly.

        Args:
            split: ``train``, ``validation`` or ``test`` (8 : 1 : 1).
            hops: Keep questions with these numbers of facts to look up, 1 to 4.
            types: Keep these types: ``single``, ``bridge``, ``comparison``.
            relations: Keep questions all of whose relations are among these; comparisons need
                their rule (``same`` or ``earlier``) among them too.
            limit: Take at most this many, from the start of the order.

        Raises:
            ConfigError: A split, type or relation that does not exist, or a negative limit.
        """
        _check("split", [split], SPLITS)
        _check("hops", hops or (), range(1, MAX_HOPS + 1))
        _check("types", types or (), TYPES)
        _check("relations", relations or (), sorted(_NAMES))
        if limit is not None and limit < 0:
            raise ConfigError(f"limit is {limit}, but it must be at least 0")
        wanted = partial(
            _wanted,
            hops=None if hops is None else frozenset(hops),
            types=None if types is None else frozenset(types),
            relations=None if relations is None else frozenset(relations),
        )
        maker = _maker(self.config)
        return tuple(islice(maker.walk(split, wanted), limit))

    def prior(self, relation: str) -> Mapping[str, float]:
        """The distribution that answers of ``relation`` are drawn from, likeliest first.

        Empty for relations whose answers are people, cities and the like: they cannot be guessed.

        Raises:
            ConfigError: There is no such relation.
        """
        _check("relation", [relation], sorted(RELATIONS))
        return prior_of(relation, self.config.mode_share)


class _Passages(Sequence[Passage]):
    """The passages of a world as a sequence that stores none of them."""

    def __init__(self, world: World, numbers: range | None = None) -> None:
        self._world = world
        self._numbers = range(world.config.passages) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Passage: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Passage]: ...

    def __getitem__(self, index: int | slice) -> Passage | Sequence[Passage]:
        if isinstance(index, slice):
            return _Passages(self._world, self._numbers[index])
        return self._world.passage(self._numbers[index])

    def __iter__(self) -> Iterator[Passage]:
        return map(self._world.passage, self._numbers)


def export(world: World, out: FilePath | str, *, limit: int | None = None) -> dict[str, int]:
    """Write the world in the formats of FlashRAG and Search-R1.

    ``corpus.jsonl`` has ``id`` and ``contents`` (and ``title`` and ``text``, the two parts of it);
    ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` have ``id``, ``question``,
    ``golden_answers`` and ``metadata``. A file appears under its name when it is complete.

    Args:
        world: What to write.
        out: A folder, made where it is missing.
        limit: At most this many questions a split.

    Returns:
        Lines written, by file name.
    """
    folder = FilePath(out)
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"corpus.jsonl": _write(folder / "corpus.jsonl", map(_passage_row, world.passages))}
    for split in SPLITS:
        rows = map(question_row, world.questions(split, limit=limit))
        counts[f"{split}.jsonl"] = _write(folder / f"{split}.jsonl", rows)
    return counts


def question_row(question: Question) -> dict[str, Any]:
    """A question in the FlashRAG form; what that form has no field for is in ``metadata``."""
    metadata = {
        "hops": question.hops,
        "type": question.type,
        "source": question.source,
        "supporting": list(question.supporting),
        **question.metadata,
    }
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": list(question.golden_answers),
        "metadata": metadata,
    }


def _passage_row(passage: Passage) -> dict[str, Any]:
    return {
        "id": passage.id,
        "contents": passage.contents,
        "title": passage.title,
        "text": passage.text,
    }


def _write(path: FilePath, rows: Iterable[Mapping[str, Any]]) -> int:
    return write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


@lru_cache(maxsize=2)
def _maker(config: WorldConfig) -> QuestionMaker:
    """Shared, so that the three splits of a world look its facts up once."""
    return QuestionMaker(Layout(config), config.seed)


def _wanted(
    path: Path,
    *,
    hops: frozenset[int] | None,
    types: frozenset[str] | None,
    relations: frozenset[str] | None,
) -> bool:
    return (
        (hops is None or path.hops in hops)
        and (types is None or path.type in types)
        and (relations is None or path.names <= relations)
    )


def _check(what: str, given: Collection[str | int], known: Sequence[str | int]) -> None:
    if unknown := [value for value in given if value not in known]:
        choices = ", ".join(map(str, known))
        raise ConfigError(f"{what}: {unknown[0]!r} is unknown, but it must be among {choices}")
