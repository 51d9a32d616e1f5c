"""``train 4`` equals ``train, kill -9 at any moment, the same command again``, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stratified_grpo.checkpoint import latest_checkpoint
from stratified_grpo.config import TrainConfig
from stratified_grpo.trainer import Trainer

MOMENTS = {"log": 2, "write": 2, "rename": 2, "evaluate": 2, "start": None}


class Silent:
    def __init__(self):
        self.steps = []

    def updated(self, step, metrics):
        self.steps.append(step)

    def evaluated(self, step, evaluation):
        pass


@pytest.fixture(scope="module")
def values(tiny_folder):
    return {
        "model": str(tiny_folder),
        "env_id": "fake_text_env:FakeText-v0",
        "questions": "8",
        "eval_questions": "3",
        "eval_every": 3,
        "alpha": "anneal:1.0..0.2@1..3",
        "updates": 4,
        "prompts_per_update": 2,
        "group_size": 3,
        "max_turn_tokens": 8,
        "max_episode_tokens": 120,
        "lr": 1e-3,
        "warmup": 3,
        "save_every": 2,
        "kl_coef": 0.01,
        "threads": 1,
    }


@pytest.fixture(scope="module")
def killed(values, tmp_path_factory, environment):
    """Folders of runs that were killed, by moment."""
    root = tmp_path_factory.mktemp("killed")
    pairs = [part for moment in MOMENTS for part in (moment, str(root / moment))]
    script = Path(__file__).with_name("killed_runs.py")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(values), *pairs],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def undisturbed(values, tmp_path_factory):
    config = TrainConfig(**values, out=str(tmp_path_factory.mktemp("undisturbed") / "run"))
    Trainer(config, Silent()).run()
    return config.folder


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def untimed(folder):
    return [
        {k: v for k, v in line.items() if not k.startswith("time/")}
        for line in lines(folder / "metrics.jsonl")
    ]


@pytest.mark.parametrize(("moment", "resumed_from"), MOMENTS.items())
def test_a_killed_run_ends_as_an_undisturbed_one(killed, values, undisturbed, moment, resumed_from):
    folder = killed / moment
    newest = latest_checkpoint(folder / "checkpoints")
    assert (newest and newest.name) == (resumed_from and f"step_{resumed_from}")
    watcher = Silent()
    Trainer(TrainConfig(**values, out=str(folder)), watcher).run()
    assert watcher.steps == list(range(1 + (resumed_from or 0), 5))
    for name in ("model.safetensors", "optimizer.safetensors"):
        ours = load_file(folder / "checkpoints" / "step_4" / name)
        theirs = load_file(undisturbed / "checkpoints" / "step_4" / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    states = [
        json.loads((run / "checkpoints" / "step_4" / "state.json").read_text())
        for run in (folder, undisturbed)
    ]
    assert states[0] == states[1]
    assert untimed(folder) == untimed(undisturbed)  # each step once
    assert lines(folder / "eval.jsonl") == lines(undisturbed / "eval.jsonl")
    for step in (1, 2, 3, 4):  # the same questions and the same replies
        name = f"episodes/step_{step}.jsonl"
        assert (folder / name).read_text() == (undisturbed / name).read_text()
    assert not list((folder / "checkpoints").glob(".tmp-*"))
