"""The episode record ``searchqa.episode/1``: one episode as one line of JSON, and back.

The record is the contract between whoever produces episodes and whoever learns from them. A
reader takes any producer's record: keys it may leave out have defaults, keys we do not know are
kept in ``Episode.extra``. ``from_json(to_json(e)) == e`` for every episode.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from searchqa.errors import RecordError
from searchqa.spaces import well_formed
from searchqa.types import Episode, Question, SearchCall, Segment, Status, Turn

SCHEMA = "searchqa.episode/1"
T = TypeVar("T")


def to_json(episode: Episode) -> str:
    """Write an episode as one line of JSON, without a newline.

    Args:
        episode: Any episode whose metadata, settings and extra are JSON-able. Lone surrogates,
            which no file in UTF-8 can hold, are replaced by U+FFFD.

    Raises:
        RecordError: It holds NaN or an infinity, which JSON cannot spell.
    """
    try:  # the status is the package's own error
        return well_formed(json.dumps(to_dict(episode), ensure_ascii=False, allow_nan=False))
    except ValueError as error:
        raise RecordError(f"the episode cannot be written as JSON: {error}") from error


def to_dict(episode: Episode) -> dict[str, Any]:
    """The record as plain dicts and lists, keys in the order of the contract."""
    return {
        "schema": SCHEMA,
        "question": _question(episode.question),
        "segments": [_segment(segment) for segment in episode.segments],
        "turns": [_turn(turn) for turn in episode.turns],
        "calls": [_call(call) for call in episode.calls],
        "counts": dict(episode.counts),
        "structure": episode.structure,
        "stratum": episode.stratum,
        "answer": episode.answer,
        "reward": episode.reward,
        "reward_parts": dict(episode.reward_parts),
        "status": episode.status.value,
        "valid": episode.valid,
        "protocol": episode.protocol,
        "index_fingerprint": episode.index_fingerprint,
        "seed": episode.seed,
        "settings": dict(episode.settings),
        **episode.extra,
    }


def from_json(line: str) -> Episode:
    """Read a record.

    Args:
        line: One line of JSON.

    Raises:
        RecordError: It is not JSON, has another schema, or misses a field.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"an episode record must be one JSON object: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise RecordError(f"an episode record must have schema {SCHEMA!r}, found {found!r}")
    try:
        return _episode(data)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"the episode record is malformed: {error!r}") from error


def write_lines(path: str | Path, lines: Iterable[str]) -> int:
    """Write lines to a file that appears under its name when it is complete.

    Args:
        path: The file; replaced if it exists.
        lines: Records without newlines, taken one at a time.

    Returns:
        How many were written.

    Raises:
        OSError: The file cannot be written.
    """
    target, count = Path(path), 0
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:  # whatever happens, nothing half-written is left behind
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(line + "\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return count


def read_records(path: str | Path) -> Iterator[Episode]:
    """Read a file of records, one a line; blank lines are skipped.

    Raises:
        RecordError: A line is no record; names the file and the line.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:  # the status is the same error with the line in it
                    yield from_json(line)
                except RecordError as error:
                    raise RecordError(f"{path} line {number}: {error}") from error


def _episode(data: dict[str, Any]) -> Episode:
    del data["schema"]
    return Episode(
        question=_read(Question, data.pop("question")),
        segments=_read_all(Segment, data.pop("segments")),
        turns=_read_all(Turn, data.pop("turns", [])),
        calls=_read_all(SearchCall, data.pop("calls")),
        counts=data.pop("counts"),
        structure=data.pop("structure"),
        stratum=data.pop("stratum"),
        answer=data.pop("answer"),
        reward=data.pop("reward"),
        reward_parts=data.pop("reward_parts"),
        status=Status(data.pop("status")),
        valid=data.pop("valid"),
        protocol=data.pop("protocol", ""),
        index_fingerprint=data.pop("index_fingerprint", ""),
        seed=data.pop("seed", -1),
        settings=data.pop("settings", {}),
        extra=data,
    )


def _read(make: Callable[..., T], data: Mapping[str, Any]) -> T:
    """Build a value from its JSON object, lists back to tuples."""
    return make(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})


def _read_all(make: Callable[..., T], data: list[dict[str, Any]]) -> tuple[T, ...]:
    return tuple(_read(make, item) for item in data)


def _question(question: Question) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": question.id,
        "text": question.text,
        "golden_answers": list(question.golden_answers),
        "hops": question.hops,
        "type": question.type,
        "source": question.source,
        "supporting": list(question.supporting),
    }
    if question.metadata:
        out["metadata"] = dict(question.metadata)
    return out


def _segment(segment: Segment) -> dict[str, Any]:
    out: dict[str, Any] = {"source": segment.source, "text": segment.text}
    if segment.role:
        out["role"] = segment.role
    if segment.token_ids:
        out["token_ids"] = list(segment.token_ids)
    if segment.logprobs:
        out["logprobs"] = list(segment.logprobs)
    if segment.version != -1:
        out["version"] = segment.version
    if segment.tokenizer_hash:
        out["tokenizer_hash"] = segment.tokenizer_hash
    return out


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "action": turn.action,
        "reason": turn.reason,
        "consumed_chars": turn.consumed_chars,
        "dropped_chars": turn.dropped_chars,
        "fabricated": turn.fabricated,
    }


def _call(call: SearchCall) -> dict[str, Any]:
    return {
        "turn": call.turn,
        "query": call.query,
        "status": call.status,
        "ids": list(call.ids),
        "ranks": list(call.ranks),
        "scores": list(call.scores),
        "hit": call.hit,
        "supporting": list(call.supporting),
        "repeated": call.repeated,
        "truncated": call.truncated,
    }
