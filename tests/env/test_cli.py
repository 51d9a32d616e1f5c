from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from searchqa.cli import main
from searchqa.record import read_records

SMALL = "demo:train?passages=1000&hops=2&relations=demo"


def test_demonstrations_are_recorded_and_reproducible(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    common = ["record", "--episodes", "40", "--questions", SMALL, "--prompt", r"{question}\n"]
    common += ["--depths", "0.2,0.3,0.5", "--follow", "0.5", "--seed", "3"]
    assert main([*common, "--out", str(first)]) == 0
    assert main([*common, "--out", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()
    episodes = list(read_records(first))
    assert len(episodes) == 40
    assert {e.stratum for e in episodes} == {"0", "1", "2"}
    assert len({e.question.id for e in episodes}) == 40
    assert all(e.segments[0].text == e.question.text + "\n" for e in episodes)
    assert main([*common, "--out", str(second), "--start", "1000"]) == 0
    assert first.read_bytes() != second.read_bytes()


def test_a_faultless_player_is_always_right(tmp_path: Path) -> None:
    out = tmp_path / "e.jsonl"
    args = ["record", "--out", str(out), "--episodes", "30", "--questions", SMALL]
    assert main([*args, "--depths", "", "--follow", "1"]) == 0
    episodes = list(read_records(out))
    assert [e.reward for e in episodes] == [1.0] * 30
    assert {e.stratum for e in episodes} == {"2"}


def test_the_world_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["world", "--out", str(tmp_path / "w"), "--passages", "600", "--limit", "10"]
    assert main(args) == 0
    assert "corpus.jsonl: 600 lines" in capsys.readouterr().out
    rows = [json.loads(x) for x in (tmp_path / "w/train.jsonl").read_text().splitlines()]
    assert len(rows) == 10
    assert {"id", "question", "golden_answers"} <= set(rows[0])


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["record", "--episodes", "3", "--questions", "demo:trian"], "split: 'trian' is unknown"),
        (["record", "--episodes", "3", "--questions", "no.jsonl"], "neither demo:train"),
        (["record", "--episodes", "3", "--follow", "2"], "follow is 2.0"),
        (["record", "--episodes", "3", "--prompt", "x"], "must contain {question}"),
        (["world", "--passages", "3"], "passages is 3"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], sentence: str
) -> None:
    out = tmp_path / "out"
    assert main([*args, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "none" / "e.jsonl"
    assert main(["record", "--episodes", "1", "--out", str(out)]) == 2
    assert f"{out} cannot be written: No such file or directory" in capsys.readouterr().err


def test_an_output_that_is_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--episodes", "1", "--questions", SMALL, "--out", "."]) == 2
    assert ". cannot be written: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("args", [[], ["record"], ["record", "--episodes", "x", "--out", "y"]])
def test_usage_is_explained(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    assert "usage: searchqa" in capsys.readouterr().err


def test_weights_must_be_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["record", "--episodes", "1", "--out", "y", "--depths", "a,b"])
    assert "must be numbers such as 0.4,0.3,0.3" in capsys.readouterr().err


def test_the_version_of_the_installed_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "searchqa.cli", "version"], capture_output=True, text=True
    )
    assert done.stdout == "0.1.0\n"
