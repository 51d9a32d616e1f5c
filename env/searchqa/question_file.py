"""Question files: JSON lines in the FlashRAG form, each refused with its line number if wrong.

A line is ``{"id", "question", "golden_answers": [..], "metadata"?}``, with ``type``, ``source``,
``hops`` and ``gold_passage_ids`` taken when present. Nothing is repaired in silence.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from searchqa.errors import QuestionFileError
from searchqa.spaces import well_formed
from searchqa.types import Question

_OWN = {"id", "question", "golden_answers", "type", "source", "hops", "gold_passage_ids"}


def read_questions(path: str | Path) -> list[Question]:
    """Read a question file, gzip-compressed if its name ends in ``.gz``.

    Args:
        path: A ``.jsonl`` or ``.jsonl.gz``.

    Raises:
        QuestionFileError: It is empty, cannot be read, or a line is malformed.
    """
    seen: dict[str, int] = {}
    questions = []
    for number, line in _lines(path):
        question = _question(_object(line, path, number), path, number)
        if question.id in seen:
            raise _wrong(path, number, f"id {question.id!r} was used in line {seen[question.id]}")
        seen[question.id] = number
        questions.append(question)
    if not questions:
        raise QuestionFileError(f"{path} holds no questions; at least one line is needed")
    return questions


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    opener = gzip.open if str(path).endswith(".gz") else open
    try:  # the status is the package's own error, with the path in it
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise QuestionFileError(f"{path} cannot be read as JSON lines in UTF-8: {error}") from error


def _wrong(path: str | Path, number: int, what: str) -> QuestionFileError:
    return QuestionFileError(f"{path} line {number}: {what}")


def _object(line: str, path: str | Path, number: int) -> dict[str, Any]:
    try:  # the status is the package's own error, with the line in it
        data = json.loads(line)
    except ValueError as error:
        raise _wrong(path, number, f"not valid JSON ({error})") from error
    if not isinstance(data, dict):
        raise _wrong(path, number, f"must be a JSON object, not {type(data).__name__}")
    return data


def _question(data: Mapping[str, Any], path: str | Path, number: int) -> Question:
    missing = [key for key in ("id", "question", "golden_answers") if key not in data]
    if missing:
        keys = '"id", "question" and "golden_answers"'
        raise _wrong(path, number, f'"{missing[0]}" is missing; each line needs {keys}')
    text = data["question"]
    if not isinstance(text, str) or not text.strip():
        raise _wrong(path, number, '"question" must be a text that is not empty')
    metadata = dict(data["metadata"]) if isinstance(data.get("metadata"), Mapping) else {}
    metadata.update((k, v) for k, v in data.items() if k not in _OWN and k != "metadata")
    return Question(
        id=_identifier(data["id"], path, number),
        text=well_formed(text),
        golden_answers=_golden(data["golden_answers"], path, number),
        hops=data["hops"] if isinstance(data.get("hops"), int) else 0,
        type=str(data.get("type", "")),
        source=str(data.get("source", "")),
        supporting=tuple(str(i) for i in data.get("gold_passage_ids") or ()),
        metadata=metadata,
    )


def _identifier(value: Any, path: str | Path, number: int) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise _wrong(path, number, '"id" must be a text or an integer')
    return str(value)


def _golden(value: Any, path: str | Path, number: int) -> tuple[str, ...]:
    """A list of answers; one bare string is one answer, never its letters."""
    answers = [value] if isinstance(value, str) else value
    if not isinstance(answers, list) or not answers:
        raise _wrong(path, number, '"golden_answers" must be a list with at least one answer')
    if not all(isinstance(answer, str) and answer.strip() for answer in answers):
        raise _wrong(path, number, '"golden_answers" holds an answer that is empty or not a text')
    return tuple(well_formed(answer) for answer in answers)
