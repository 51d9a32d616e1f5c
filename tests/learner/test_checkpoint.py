"""Checkpoints are published whole or not at all, and hold nothing that must be unpickled."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from stratified_grpo.checkpoint import (
    RunState,
    latest_checkpoint,
    publish,
    read_state,
    restore_optimizer,
    save_checkpoint,
    save_policy,
    write_text,
)
from stratified_grpo.errors import ConfigError
from stratified_grpo.optimizer import Optimizer, OptimizerSettings


@pytest.fixture
def optimizer(tiny):
    given = OptimizerSettings(
        lr=1e-2,
        warmup=3,
        weight_decay=0.0,
        betas=(0.9, 0.95),
        max_grad_norm=1.0,
        nonfinite_limit=5,
    )
    made = Optimizer(tiny.model, given)
    step(tiny, made)
    return made


def step(policy, optimizer, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_publish_creates_a_whole_folder(tmp_path):
    publish(tmp_path / "runs" / "a", lambda target: (target / "x").write_text("1"))
    assert names(tmp_path / "runs") == ["a"]
    assert (tmp_path / "runs" / "a" / "x").read_text() == "1"
    publish(tmp_path / "runs" / "a", lambda target: (target / "y").write_text("2"))
    assert names(tmp_path / "runs" / "a") == ["y"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_exception_while_writing_leaves_what_was_there(tmp_path, error):
    publish(tmp_path / "a", lambda target: (target / "x").write_text("1"))

    def write(target):
        (target / "x").write_text("half")
        raise error

    for folder in (tmp_path / "a", tmp_path / "b"):
        with pytest.raises(type(error)):
            publish(folder, write)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a" / "x").read_text() == "1"


def test_a_kill_while_writing_leaves_only_a_temporary_folder(tmp_path):
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from stratified_grpo.checkpoint import publish\n"
        "def write(target):\n"
        "    (target / 'state.json').write_text('{')\n"
        "    print('writing', flush=True); time.sleep(60)\n"
        "publish(Path(sys.argv[1]) / 'step_1', write)"
    )
    root = tmp_path / "checkpoints"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "writing\n"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert names(root) == [".tmp-step_1"]
    assert latest_checkpoint(root) is None
    publish(root / "step_1", lambda target: (target / "state.json").write_text("{}"))
    assert names(root) == ["step_1"]  # what was left behind is gone


RENAMES = """
import os, signal, sys
from pathlib import Path
from stratified_grpo import checkpoint
rename, left = Path.rename, [int(sys.argv[2])]
def counted(self, target):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return rename(self, target)
Path.rename = counted
checkpoint.shutil.rmtree = (lambda real: lambda path, **options: (
    os.kill(os.getpid(), signal.SIGKILL) if path.name.startswith(".old-") and path.exists()
    else real(path, **options)))(checkpoint.shutil.rmtree)
checkpoint.publish(Path(sys.argv[1]), lambda target: (target / "state.json").write_text("new"))
"""


@pytest.mark.parametrize(("renames", "holds"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_kill_between_the_renames_loses_neither_folder(tmp_path, renames, holds):
    root = tmp_path / "checkpoints"
    publish(root / "step_1", lambda target: (target / "state.json").write_text("old"))
    write_text(root / "latest", "step_1")
    done = subprocess.run([sys.executable, "-c", RENAMES, str(root / "step_1"), str(renames)])
    assert done.returncode == -signal.SIGKILL
    found = latest_checkpoint(root)
    assert (found / "state.json").read_text() == holds
    publish(root / "step_1", lambda target: (target / "state.json").write_text("newest"))
    assert names(root) == ["latest", "step_1"]  # what was left behind is gone
    assert (root / "step_1" / "state.json").read_text() == "newest"


def test_text_is_replaced_whole(tmp_path):
    write_text(tmp_path / "latest", "step_1")
    write_text(tmp_path / "latest", "step_2")
    assert (tmp_path / "latest").read_text() == "step_2"
    assert names(tmp_path) == ["latest"]


def test_a_checkpoint_restores_everything(tmp_path, tiny, optimizer, tiny_folder):
    from stratified_grpo.policy import load_policy

    state = RunState(
        step=4,
        cursor=12,
        consumed=(8, 9),
        identity={"lr": 0.1},
        totals={"invalid": 2.0},
    )
    torch.manual_seed(11)
    folder = save_checkpoint(tmp_path, tiny, optimizer, state, keep=2)
    draw = torch.rand(3)
    assert latest_checkpoint(tmp_path) == folder == tmp_path / "step_4"
    assert read_state(folder) == state
    again = load_policy(folder)
    resumed = Optimizer(again.model, optimizer.settings)
    torch.manual_seed(99)
    restore_optimizer(folder, resumed)
    assert torch.equal(torch.rand(3), draw)
    step(tiny, optimizer, seed=5)
    step(again, resumed, seed=5)
    ours, theirs = tiny.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert again.codec.fingerprint == tiny.codec.fingerprint


def test_nothing_is_pickled_and_the_usual_loaders_read_it(tmp_path, tiny, optimizer):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = save_checkpoint(tmp_path, tiny, optimizer, RunState(step=1, cursor=0), keep=1)
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} <= {
        ".json",
        ".safetensors",
        ".txt",
        ".jinja",
    }
    assert all(path.stat().st_mode & 0o044 for path in folder.iterdir())
    model = AutoModelForCausalLM.from_pretrained(str(folder))
    ours = tiny.model.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in model.state_dict().items())
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    assert tokenizer("a b").input_ids == tiny.codec.tokenizer("a b").input_ids


def test_old_checkpoints_go_and_later_ones_are_never_taken_for_the_newest(
    tmp_path, tiny, optimizer
):
    def save(number, keep):
        save_checkpoint(tmp_path, tiny, optimizer, RunState(step=number, cursor=0), keep=keep)

    for number in (0, 9, 10, 11):
        save(number, keep=2)
    assert names(tmp_path) == ["latest", "step_10", "step_11"]
    (tmp_path / "step_10" / "notes").mkdir()
    save(9, keep=1)  # a run that was killed before `latest` was written, and shortened since
    assert latest_checkpoint(tmp_path) == tmp_path / "step_9"
    assert names(tmp_path) == ["latest", "step_10", "step_11", "step_9"]
    save(12, keep=0)
    assert len(names(tmp_path)) == 5


def test_torn_and_foreign_folders_are_not_taken_for_checkpoints(tmp_path, tiny, optimizer):
    assert latest_checkpoint(tmp_path) is None
    (tmp_path / ".tmp-step_3").mkdir()
    (tmp_path / "step_x").mkdir()
    folder = save_checkpoint(tmp_path, tiny, optimizer, RunState(step=2, cursor=0), keep=1)
    assert latest_checkpoint(tmp_path) == folder
    assert (tmp_path / "step_x").exists()
    (folder / "state.json").unlink()
    with pytest.raises(ConfigError, match=r"names step_2, which is not a checkpoint.*--fresh"):
        latest_checkpoint(tmp_path)


def test_a_failed_checkpoint_leaves_the_last_one_in_charge(tmp_path, tiny, optimizer, monkeypatch):
    save_checkpoint(tmp_path, tiny, optimizer, RunState(step=1, cursor=0), keep=1)
    bad = RunState(step=2, cursor=0, identity={"no json": object()})
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path, tiny, optimizer, bad, keep=1)
    assert names(tmp_path) == ["latest", "step_1"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step_1"


def test_a_policy_alone_can_be_saved(tmp_path, tiny):
    from stratified_grpo.policy import load_policy

    save_policy(tiny, tmp_path / "policy")
    assert load_policy(tmp_path / "policy").codec.fingerprint == tiny.codec.fingerprint
    assert json.loads((tmp_path / "policy" / "config.json").read_text())["model_type"] == "qwen3"
