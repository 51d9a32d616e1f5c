from __future__ import annotations

import gzip
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchqa.errors import ConfigError, QuestionFileError
from searchqa.question_file import checked, read_questions
from searchqa.questions import open_questions, parse_demo, place_of
from searchqa.types import Question
from searchqa.world import World, WorldConfig, export

ROW = {"id": "q0", "question": "Who?", "golden_answers": ["Ann"]}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


@given(st.integers(1, 300), st.integers(0, 50))
def test_an_epoch_of_seeds_covers_every_question_once(size: int, epoch: int) -> None:
    places = [place_of(epoch * size + i, size) for i in range(size)]
    assert sorted(places) == list(range(size))


def test_epochs_differ_and_never_change() -> None:
    epochs = [tuple(place_of(e * 50 + i, 50) for i in range(50)) for e in range(20)]
    assert len(set(epochs)) == 20
    assert [place_of(s, 50) for s in range(8)] == FIRST_PLACES
    assert 0 <= place_of(2**70, 7) < 7


FIRST_PLACES = [26, 45, 30, 12, 7, 1, 5, 28]


def test_questions_by_id_by_index_and_by_seed(tiny_questions: tuple[Question, ...]) -> None:
    found = open_questions(tiny_questions)
    assert found.by_id("q1") == tiny_questions[1]
    assert found.by_index(2) == tiny_questions[2]
    assert {found.by_seed(s).id for s in range(3)} == {"q0", "q1", "q2"}
    with pytest.raises(ConfigError, match="question_id 'nope' is not in the given questions"):
        found.by_id("nope")
    with pytest.raises(ConfigError, match=r"index 3 is not in 0\.\.2"):
        found.by_index(3)
    with pytest.raises(ConfigError, match="index -1"):
        found.by_index(-1)
    assert pickle.loads(pickle.dumps(found)).questions == found.questions


def test_no_questions_and_equal_ids_are_refused(tiny_questions: tuple[Question, ...]) -> None:
    with pytest.raises(ConfigError, match="holds no questions"):
        open_questions([])
    with pytest.raises(ConfigError, match="same id to two questions"):
        open_questions([tiny_questions[0]] * 2)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_file_in_the_flashrag_form(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"q{suffix}"
    full = {
        "id": 7,
        "question": "Où?",
        "golden_answers": ["Paris", "パリ"],
        "type": "bridge",
        "source": "x/dev",
        "gold_passage_ids": ["p1", 2],
        "level": "hard",
        "metadata": {"hops": 2, "note": None},
    }
    content = (json.dumps(ROW) + "\n\n" + json.dumps(full, ensure_ascii=False) + "\n").encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    plain, rich = open_questions(str(path)).questions
    assert plain == Question(id="q0", text="Who?", golden_answers=("Ann",))
    assert rich == Question(
        id="7",
        text="Où?",
        golden_answers=("Paris", "パリ"),
        hops=2,
        type="bridge",
        source="x/dev",
        supporting=("p1", "2"),
        metadata={"note": None, "level": "hard"},
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not valid JSON"),
        ("[]", "line 2: must be a JSON object, not list"),
        ({"id": "a", "question": "Who?"}, '"golden_answers" is missing; each line needs "id"'),
        ({"id": "a", "question": "Who?", "answer": "x"}, '"golden_answers" is missing'),
        ({"question": "Who?", "golden_answers": ["x"]}, '"id" is missing'),
        ({"id": "a", "question": " ", "golden_answers": ["x"]}, '"question" must be a text'),
        ({"id": "a", "question": 3, "golden_answers": ["x"]}, '"question" must be a text'),
        (
            {"id": None, "question": "W", "golden_answers": ["x"]},
            '"id" must be a text',
        ),
        (
            {"id": True, "question": "W", "golden_answers": ["x"]},
            '"id" must be a text',
        ),
        ({"id": "a", "question": "W", "golden_answers": []}, "a list of at least one"),
        ({"id": "a", "question": "W", "golden_answers": None}, "a list of at least one"),
        (
            {"id": "a", "question": "W", "golden_answers": [None, "x"]},
            "a list of at least one text",
        ),
        ({"id": "a", "question": "W", "golden_answers": ["x", ""]}, "none of them empty"),
        ({"id": "a", "question": "W", "golden_answers": {"x": 1}}, "a list of at least one"),
        ("[" * 100_000, "line 2: not valid JSON"),
        ('{"id": "a", "question": "W", "golden_answers": ["x"], "n": NaN}', "NaN is not a number"),
        (ROW | {"id": "a", "hops": "2"}, "\"hops\" must be an integer of at least 0, not '2'"),
        (ROW | {"id": "a", "hops": True}, '"hops" must be an integer'),
        (ROW | {"id": "a", "hops": 2.0}, '"hops" must be an integer'),
        (ROW | {"id": "a", "hops": -1}, '"hops" must be an integer'),
        (ROW | {"id": "a", "supporting": {"p": 1}}, '"supporting" must be a list of passage ids'),
        (ROW | {"id": "a", "supporting": [None]}, '"supporting" must be a list of passage ids'),
        (ROW | {"id": "a", "gold_passage_ids": 7}, '"supporting" must be a list of passage ids'),
        ({"id": "q0", "question": "W", "golden_answers": ["x"]}, "id 'q0' was used in line 1"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    path = write(tmp_path / "bad.jsonl", ROW, line)
    with pytest.raises(QuestionFileError) as caught:
        read_questions(path)
    assert message in str(caught.value)
    assert f"{path} line 2" in str(caught.value)


def test_one_supporting_passage_and_nulls(tmp_path: Path) -> None:
    lone = ROW | {"supporting": "p12", "type": None, "source": None, "hops": None}
    (question,) = read_questions(write(tmp_path / "q.jsonl", lone))
    assert question == Question(id="q0", text="Who?", golden_answers=("Ann",), supporting=("p12",))


def test_a_deep_text_is_an_answer_and_no_list() -> None:
    deep = "[" * 100_000
    assert checked(Question(id="q", text="W", golden_answers=deep)).golden_answers == (deep,)  # type: ignore[arg-type]


def test_files_that_hold_nothing_or_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(QuestionFileError, match="holds no questions"):
        read_questions(write(tmp_path / "empty.jsonl", "", " "))
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xff"}')
    with pytest.raises(QuestionFileError, match="cannot be read as JSON lines in UTF-8"):
        read_questions(tmp_path / "latin.jsonl")
    damaged = bytearray(gzip.compress(json.dumps(ROW).encode()))
    damaged[12] ^= 255
    (tmp_path / "bad.jsonl.gz").write_bytes(damaged)
    with pytest.raises(QuestionFileError, match="cannot be read"):
        read_questions(tmp_path / "bad.jsonl.gz")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:20])
    with pytest.raises(QuestionFileError, match="cannot be read"):
        read_questions(tmp_path / "cut.jsonl.gz")


def test_a_source_that_does_not_exist_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"neither demo:train.* nor a file"):
        open_questions(str(tmp_path / "none.jsonl"))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", ROW)
    first = open_questions(str(path))
    assert open_questions(str(path)) is first
    write(path, ROW, ROW | {"id": "q1"})
    os.utime(path, ns=(1, 1))
    assert len(open_questions(str(path))) == 2


@pytest.mark.parametrize(
    "golds",
    [
        np.array(["Paris"], dtype=object),
        np.array(["Paris", "Lutetia"], dtype=object),
        "Paris",
        '["Paris"]',
        ["Paris"],
        ("Paris",),
    ],
)
def test_golden_answers_come_in_many_forms(golds: Any) -> None:
    question = checked(Question(id="q", text="W", golden_answers=golds))
    assert question.golden_answers[0] == "Paris"
    assert all(type(answer) is str for answer in question.golden_answers)


@pytest.mark.parametrize("golds", [[], (), None, [None, ""], ["x", 3], "", "[]", 5])
def test_golden_answers_that_are_none_are_refused(golds: Any) -> None:
    with pytest.raises(ConfigError, match="of question 'q' must be a list"):
        open_questions([Question(id="q", text="W", golden_answers=golds)])


def test_a_bracket_is_no_list_by_itself() -> None:
    assert checked(Question(id="q", text="W", golden_answers="[sic")).golden_answers == ("[sic",)  # type: ignore[arg-type]


def test_demo_questions_by_name() -> None:
    name = "demo:validation?hops=2,3&relations=demo&passages=1000&seed=3&limit=20"
    found = open_questions(name)
    assert open_questions(name) is found
    assert len(found) == 20
    assert {q.hops for q in found.questions} <= {2, 3}
    assert pickle.loads(pickle.dumps(found)) is found
    assert len(pickle.dumps(found)) < 500


def test_a_demo_name_reads_as_it_is_written() -> None:
    spec = parse_demo("demo:test?types=bridge,single&mode_share=0.5&seed=2")
    assert (spec.split, spec.types, spec.world) == (
        "test",
        ("bridge", "single"),
        {"seed": 2, "mode_share": 0.5},
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("demo:train?hop=2", "'hop' in questions='demo:train.hop=2' is unknown; use passages"),
        ("demo:train?hops=2&hops=3", "'hops' is twice in questions=.*; give several as a,b"),
        ("demo:train?hops=two", "hops in questions=.* must be a number"),
        ("demo:train?passages=1e3", "passages in questions=.* must be a number"),
        ("demo:dev?passages=1000", "split: .?dev.? is unknown"),
        ("demo:train?passages=10", "passages is 10"),
        ("demo:train?passages=1000&hops=9", "hops: 9 is unknown"),
        ("demo:train?passages=1000&limit=-1", "limit is -1"),
        ("demo:train?passages=1000&relations=none", "relations: .?none.? is unknown"),
    ],
)
def test_a_wrong_demo_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_questions(name)


def test_an_exported_world_reads_back_equal(tmp_path: Path) -> None:
    world = World(WorldConfig(passages=1000))
    export(world, tmp_path, limit=50)
    read = read_questions(tmp_path / "train.jsonl")
    given = world.questions("train", limit=50)
    assert [replace(q, metadata={}) for q in read] == [replace(q, metadata={}) for q in given]


@pytest.mark.parametrize(
    "name", ["2wiki_1000", "hotpot_train_100", "musique_train_100", "squad11_dev", "wiki18_mini"]
)
def test_real_question_files_load(data: Path, name: str) -> None:
    questions = read_questions(data / name / "questions.jsonl.gz")
    assert len(questions) >= 100
    assert all(q.golden_answers and q.text for q in questions)
    if name in ("2wiki_1000", "hotpot_train_100", "musique_train_100"):
        assert sum(bool(q.supporting) for q in questions) >= 0.8 * len(questions)


def test_all_question_only_files_load(data: Path) -> None:
    for path in sorted((data / "qa_only").glob("*.jsonl.gz")):
        assert len(read_questions(path)) >= 100
