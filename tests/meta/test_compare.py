"""The comparison reads each run at the update it was asked for, and says what is missing."""

import importlib.util
import json
import sys

import pytest


@pytest.fixture(scope="module")
def compare(root):
    spec = importlib.util.spec_from_file_location("compare", root / "benchmarks" / "compare.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["compare"]


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def evaluation(step, em):
    return {"step": step, "scores": [{"name": "all", "em": em, "searches": 1.5}]}


@pytest.fixture
def job(compare, tmp_path):
    """A run by hand that went on to 12 updates; the comparison asks for 8."""
    method, lr, seed = next(iter(compare.METHODS)), "5e-5", 7
    folder = compare._folder(tmp_path, method, lr, seed)
    folder.mkdir()
    write(
        folder / "eval.jsonl", [evaluation(0, 0.1), evaluation(4, 0.5), evaluation(8, 0.7),
                                evaluation(12, 0.2)]
    )  # fmt: skip
    rewards = [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    write(
        folder / "metrics.jsonl",
        [{"step": step, "reward": reward} for step, reward in enumerate(rewards, start=1)],
    )
    return folder, (method, lr, seed)


def test_a_run_is_read_at_the_update_asked_for(compare, job, tmp_path):
    _, given = job
    run = compare._read(tmp_path, 8, *given)
    assert (run.em_start, run.em_end, run.searches_end) == (0.1, 0.7, 1.5)
    assert run.sampled_end == pytest.approx((1 + 1 + 1 + 1 + 0.5) / 5)
    assert run.updates_to_90 == 6  # the mean of updates 2 to 6 is 0.9
    assert not run.stuck
    early = compare._read(tmp_path, 4, *given)
    assert (early.em_end, early.updates_to_90, early.stuck) == (0.5, None, True)


@pytest.mark.parametrize(
    ("updates", "says"),
    [(6, "has no evaluation 6;"), (20, "has no evaluation 20 and no update 13;")],
)
def test_what_is_missing_is_said(compare, job, tmp_path, updates, says):
    with pytest.raises(SystemExit, match=says):
        compare._read(tmp_path, updates, *job[1])


def test_the_tables(compare, job, tmp_path):
    method, lr, seed = job[1]
    text = compare._markdown([compare._read(tmp_path, 8, *job[1])])
    assert f"| {method} | {lr} | {seed} | 0.10 | 0.70 | 0.90 | 1.50 | 6 |" in text
    assert f"| {method} | {lr} | 1 | 0.70 | 0.70 | 0 | 1.50 |" in text


def test_no_two_runs_share_a_log(compare, tmp_path, monkeypatch):
    monkeypatch.setattr(compare.subprocess, "run", lambda *_, **__: None)
    jobs = [(m, lr, s) for m in compare.METHODS for lr in ("5e-5", "1.5e-4") for s in (1, 2)]
    for job in jobs:
        compare._train(tmp_path, 1, *job)
    assert len(list(tmp_path.glob("*.log"))) == len(jobs)
