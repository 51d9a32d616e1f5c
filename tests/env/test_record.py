from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchqa.errors import RecordError
from searchqa.record import SCHEMA, from_json, read_records, to_dict, to_json, write_lines
from searchqa.types import Episode, Question, SearchCall, Segment, Status, Turn

text = st.text(max_size=8)
number = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 9)
texts = st.lists(text, max_size=2).map(tuple)
json_values = st.none() | st.booleans() | st.integers() | number | text | st.lists(text, max_size=2)
metadata = st.dictionaries(text, json_values, max_size=2)
questions = st.builds(
    Question,
    id=text,
    text=text,
    golden_answers=texts,
    hops=count,
    type=text,
    source=text,
    supporting=texts,
    metadata=metadata,
)
segments = st.builds(
    Segment,
    source=st.sampled_from(["prompt", "model", "environment"]),
    text=text,
    role=st.sampled_from(["", "continue", "user", "tool"]),
    token_ids=st.lists(count, max_size=2).map(tuple),
    logprobs=st.lists(number, max_size=2).map(tuple),
    version=st.integers(-1, 5),
    tokenizer_hash=text,
)
turns = st.builds(
    Turn,
    action=st.sampled_from(["search", "answer", "invalid"]),
    reason=text,
    consumed_chars=count,
    dropped_chars=count,
    fabricated=st.booleans(),
)
calls = st.builds(
    SearchCall,
    turn=count,
    query=text,
    status=st.sampled_from(["ok", "empty", "over_budget", "failed"]),
    ids=texts,
    ranks=st.lists(count, max_size=2).map(tuple),
    scores=st.lists(number, max_size=2).map(tuple),
    hit=st.booleans(),
    supporting=texts,
    repeated=st.booleans(),
    truncated=st.booleans(),
)
KNOWN = set(Episode.__dataclass_fields__) | {"schema"}
episodes = st.builds(
    Episode,
    question=questions,
    segments=st.lists(segments, max_size=3).map(tuple),
    turns=st.lists(turns, max_size=2).map(tuple),
    calls=st.lists(calls, max_size=2).map(tuple),
    counts=st.dictionaries(text, count, max_size=2),
    structure=text,
    stratum=text,
    answer=text,
    reward=number,
    reward_parts=st.dictionaries(text, number, max_size=2),
    status=st.sampled_from(Status),
    valid=st.booleans(),
    protocol=text,
    index_fingerprint=text,
    seed=st.integers(-1, 2**70),
    settings=metadata,
    extra=st.dictionaries(text.filter(lambda key: key not in KNOWN), json_values, max_size=2),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(episodes)
def test_a_record_is_one_line_and_reads_back_equal(episode: Episode) -> None:
    line = to_json(episode)
    assert "\n" not in line
    assert from_json(line) == episode
    assert to_json(from_json(line)) == line
    line.encode("utf-8")


def minimal() -> dict[str, Any]:
    """What another producer must write at the least."""
    return {
        "schema": SCHEMA,
        "question": {"id": "q", "text": "Who?", "golden_answers": ["Ann"]},
        "segments": [{"source": "prompt", "text": "Who?"}, {"source": "model", "text": "Ann"}],
        "calls": [],
        "counts": {},
        "structure": "A",
        "stratum": "0",
        "answer": "Ann",
        "reward": 1.0,
        "reward_parts": {"em": 1.0},
        "status": "answered",
        "valid": True,
    }


def test_other_producers_may_leave_out_and_add() -> None:
    record = minimal() | {"group": "g7"}
    episode = from_json(json.dumps(record))
    assert episode.question.golden_answers == ("Ann",)
    assert episode.extra == {"group": "g7"}
    assert to_dict(episode)["group"] == "g7"
    assert (episode.seed, episode.protocol) == (-1, "")


def test_plain_segments_carry_no_token_fields() -> None:
    assert to_dict(from_json(json.dumps(minimal())))["segments"] == minimal()["segments"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "searchqa.episode/2"}, "must have schema 'searchqa.episode/1'"),
        ({"status": "fine"}, "'fine' is not a valid Status"),
        ({"question": {"id": "q"}}, "malformed"),
        ({"segments": [{"source": "prompt", "text": "", "color": 1}]}, "color"),
        ({"segments": 3}, "malformed"),
    ],
)
def test_a_wrong_record_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_json(json.dumps(minimal() | change))


@pytest.mark.parametrize("line", ["", "{", "[]", "3"])
def test_what_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(RecordError, match="an episode record must"):
        from_json(line)


def test_a_missing_field_is_named() -> None:
    record = minimal()
    del record["stratum"]
    with pytest.raises(RecordError, match="stratum"):
        from_json(json.dumps(record))


def test_files_read_back_and_name_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    line = json.dumps(minimal())
    assert write_lines(path, [line, "", line]) == 3
    assert [to_json(e) for e in read_records(path)] == [to_json(from_json(line))] * 2
    write_lines(path, [line, "{"])
    with pytest.raises(RecordError, match=r"e\.jsonl line 2"):
        list(read_records(path))


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    write_lines(path, ["old"])

    def lines():
        yield "new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_lines(path, lines())
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def an_episode(**changes: Any) -> Episode:
    base = {"text": "Who?", "golden_answers": ("Ann",), "id": "q"}
    fields: dict[str, Any] = {
        "question": Question(**base),  # type: ignore[arg-type]
        "segments": (),
        "turns": (),
        "calls": (),
        "counts": {},
        "structure": "",
        "stratum": "0",
        "answer": "",
        "reward": 0.0,
        "reward_parts": {},
        "status": Status.ANSWERED,
        "valid": True,
        "protocol": "p",
    }
    return Episode(**fields | changes)


def test_lone_surrogates_never_reach_a_file(tmp_path: Path) -> None:
    question = Question(
        id="\ud800", text="\udfff", golden_answers=("Ann",), metadata={"\ud800": ["\ud801"]}
    )
    line = to_json(an_episode(question=question, answer="x\udc00", extra={"note": "\ud800"}))
    line.encode("utf-8")
    episode = from_json(line)
    assert (episode.question.id, episode.answer) == ("\ufffd", "x\ufffd")
    assert write_lines(tmp_path / "e.jsonl", [line]) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_cannot_spell_is_refused(value: float) -> None:
    with pytest.raises(RecordError, match="cannot be written as JSON"):
        to_json(an_episode(reward=value))


def test_a_deep_record_is_refused() -> None:
    with pytest.raises(RecordError, match="must be one JSON object"):
        from_json("[" * 100_000)


@pytest.mark.parametrize("name", [".", "folder", "folder/.."])
def test_a_folder_is_no_file_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError):
        write_lines(name, ["x"])
