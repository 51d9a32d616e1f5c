"""Question files: JSON lines in the FlashRAG form, each refused with its line number if wrong.

A line is ``{"id", "question", "golden_answers": [..], "metadata"?}``; ``hops``, ``type``,
``source`` and ``gold_passage_ids`` (or ``supporting``) are taken from the line or its metadata.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchqa.errors import ConfigError, QuestionFileError
from searchqa.spaces import well_formed
from searchqa.types import Question

_OWN = {"id", "question", "golden_answers", "metadata"}


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
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise QuestionFileError(f"{path} cannot be read as JSON lines in UTF-8: {error}") from error


def _wrong(path: str | Path, number: int, what: str) -> QuestionFileError:
    return QuestionFileError(f"{path} line {number}: {what}")


def _object(line: str, path: str | Path, number: int) -> dict[str, Any]:
    try:  # the status is the package's own error, with the line in it
        data = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, number, f"not valid JSON ({error})") from error
    if not isinstance(data, dict):
        raise _wrong(path, number, f"must be a JSON object, not {type(data).__name__}")
    return data


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _question(data: dict[str, Any], path: str | Path, number: int) -> Question:
    missing = [key for key in ("id", "question", "golden_answers") if key not in data]
    if missing:
        keys = '"id", "question" and "golden_answers"'
        raise _wrong(path, number, f'"{missing[0]}" is missing; each line needs {keys}')
    text = data["question"]
    if not isinstance(text, str) or not text.strip():
        raise _wrong(path, number, '"question" must be a text that is not empty')
    metadata = data.get("metadata")
    rest = {**(metadata if isinstance(metadata, dict) else {}), **data}
    supporting = rest.pop("supporting", None)
    question = Question(
        id=_identifier(data["id"], path, number),
        text=well_formed(text),
        golden_answers=data["golden_answers"],
        hops=_hops(rest.pop("hops", None), path, number),
        type=_name(rest.pop("type", None)),
        source=_name(rest.pop("source", None)),
        supporting=_ids(rest.pop("gold_passage_ids", None) or supporting, path, number),
        metadata={key: value for key, value in rest.items() if key not in _OWN},
    )
    try:  # the status is the same error with the line in it
        return checked(question)
    except ConfigError as error:
        raise _wrong(path, number, str(error)) from error


def _hops(value: Any, path: str | Path, number: int) -> int:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise _wrong(path, number, f'"hops" must be an integer of at least 0, not {value!r}')
    return value or 0


def _name(value: Any) -> str:
    return "" if value is None else well_formed(str(value))


def _ids(value: Any, path: str | Path, number: int) -> tuple[str, ...]:
    """Ids of passages; a bare text is one id, never its letters."""
    ids = [value] if isinstance(value, str) and value else value or []
    if not isinstance(ids, list) or not all(type(i) in (str, int) for i in ids):
        raise _wrong(path, number, '"supporting" must be a list of passage ids, texts or integers')
    return tuple(well_formed(str(i)) for i in ids)


def _identifier(value: Any, path: str | Path, number: int) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise _wrong(path, number, '"id" must be a text or an integer')
    return well_formed(str(value))


def checked(question: Question) -> Question:
    """Return the question with its golden answers as a tuple of texts.

    A list, a tuple, a numpy array, one bare text (one answer, never its letters) and a list
    written as JSON are taken.

    Args:
        question: Its golden answers may be any of these.

    Raises:
        ConfigError: There is no answer, or one is empty or not a text.
    """
    given: Any = question.golden_answers
    if type(given) is tuple and given and all(type(a) is str and a.strip() for a in given):
        return question
    answers = _answers(given)
    if not answers or not all(isinstance(a, str) and a.strip() for a in answers):
        raise ConfigError(
            f'"golden_answers" of question {question.id!r} must be a list of at least one text, '
            "none of them empty"
        )
    return replace(question, golden_answers=tuple(well_formed(str(a)) for a in answers))


def _answers(given: Any) -> list[Any]:
    if isinstance(given, str):
        try:  # the status of a text that is no JSON list is one answer
            parsed = json.loads(given) if given.lstrip().startswith("[") else None
        except (ValueError, RecursionError):
            parsed = None
        return parsed if isinstance(parsed, list) else [given]
    values = given.tolist() if hasattr(given, "tolist") else given
    return list(values) if isinstance(values, list | tuple) else []
