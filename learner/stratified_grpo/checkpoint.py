"""Checkpoints: all of a run's state in one folder, published whole or not at all.

``step_N/`` is written under a temporary name, fsynced and renamed; ``latest`` is a text file that
names it. Everything is safetensors and JSON: nothing is pickled. The policy loads with
``from_pretrained``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from stratified_grpo.errors import ConfigError
from stratified_grpo.optimizer import Optimizer
from stratified_grpo.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What a run knows besides weights and optimizer."""

    step: int
    """Updates done."""
    cursor: int
    """Next data cursor. In lock-step no group is in flight between updates: those begun after a
    checkpoint are begun again."""
    consumed: tuple[int, ...] = ()
    """Cursors of the groups trained on in the last update."""
    identity: dict[str, Any] = field(default_factory=dict)
    """The config's identity."""
    totals: dict[str, float] = field(default_factory=dict)
    """Running totals, such as skipped steps."""


def publish(folder: Path, write: Callable[[Path], None]) -> None:
    """Create a folder atomically: write to a temporary sibling, fsync, rename.

    Args:
        folder: where it shall be; an existing one is replaced, and at every moment one of the
            two is whole on disk (`recover` brings it back after a kill).
        write: fills the temporary folder; if it raises, nothing is left behind.
    """
    recover(folder)
    temporary = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for path in temporary.rglob("*"):
        if path.is_file():
            path.chmod(0o644)  # safetensors writes files only their owner can read
            _fsync(path)
    _fsync(temporary)
    if folder.exists():
        folder.rename(_aside(folder))
    temporary.rename(folder)
    _fsync(folder.parent)
    shutil.rmtree(_aside(folder), ignore_errors=True)


def recover(folder: Path) -> None:
    """Undo a `publish` of ``folder`` that was killed between its renames, and tidy up after it."""
    aside = _aside(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(folder)


def _aside(folder: Path) -> Path:
    """Where an old folder lies while the new one takes its place."""
    return folder.with_name(f".old-{folder.name}")


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically."""
    temporary = path.with_name(f".tmp-{path.name}")
    temporary.write_text(text, encoding="utf-8")
    _fsync(temporary)
    temporary.replace(path)


def _fsync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows has no handle on a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_policy(policy: Policy, folder: Path) -> None:
    """Write model and tokenizer so that ``from_pretrained(folder)`` loads them."""

    def write(target: Path) -> None:
        policy.model.save_pretrained(target)
        policy.codec.tokenizer.save_pretrained(target)

    publish(folder, write)


def save_checkpoint(
    root: Path, policy: Policy, optimizer: Optimizer, state: RunState, *, keep: int
) -> Path:
    """Write ``root/step_N``, point ``latest`` at it and delete all but the newest ``keep``.

    Returns:
        The checkpoint's folder.
    """
    tensors, numbers = optimizer.state()
    tensors["rng/torch"] = torch.get_rng_state()

    def write(target: Path) -> None:
        policy.model.save_pretrained(target)
        policy.codec.tokenizer.save_pretrained(target)
        save_file(tensors, target / "optimizer.safetensors")
        document = {
            "step": state.step,
            "cursor": state.cursor,
            "consumed": list(state.consumed),
            "identity": state.identity,
            "totals": state.totals,
            "optimizer": numbers,
        }
        (target / "state.json").write_text(json.dumps(document, indent=1), encoding="utf-8")

    folder = root / f"step_{state.step}"
    publish(folder, write)
    write_text(root / "latest", folder.name)
    for old in _numbered(root, last=state.step)[:-keep] if keep > 0 else []:
        shutil.rmtree(old)
    return folder


def _numbered(root: Path, last: int) -> list[Path]:
    """Checkpoints up to step ``last``, oldest first; a killed run may have left later ones."""
    folders = [path for path in root.glob("step_*") if path.name[5:].isdigit()]
    numbered = sorted((int(path.name[5:]), path) for path in folders)
    return [path for number, path in numbered if number <= last]


def latest_checkpoint(root: Path) -> Path | None:
    """The newest whole checkpoint under ``root``, or None."""
    pointer = root / "latest"
    if not pointer.is_file():
        return None
    folder = root / pointer.read_text(encoding="utf-8").strip()
    recover(folder)
    if not (folder / "state.json").is_file():
        raise ConfigError(
            f"{pointer} names {folder.name}, which is not a checkpoint: --fresh starts anew"
        )
    return folder


def read_state(folder: Path) -> RunState:
    """The run state of a checkpoint."""
    document = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return RunState(
        step=document["step"],
        cursor=document["cursor"],
        consumed=tuple(document["consumed"]),
        identity=document["identity"],
        totals=document["totals"],
    )


def restore_optimizer(folder: Path, optimizer: Optimizer) -> None:
    """Load optimizer state and random state from a checkpoint."""
    tensors = load_file(folder / "optimizer.safetensors")
    torch.set_rng_state(tensors.pop("rng/torch"))
    document = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    optimizer.load_state(tensors, document["optimizer"])
