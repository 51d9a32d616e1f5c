"""A run's folder: whose run it is, what in it is ours to delete, and one process at a time.

A folder is a run when its manifest carries our schema; whatever else lies in it is never touched.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stratified_grpo.config import TrainConfig
from stratified_grpo.demo import resolve_model
from stratified_grpo.errors import ConfigError

SCHEMA = "stratified_grpo.run/1"
"""Value of the key ``schema`` in ``manifest.json``."""
MANIFEST = "manifest.json"
LOCK = ".lock"
_OURS = re.compile(r"(\.tmp-)?(manifest\.json|metrics\.jsonl|eval\.jsonl)|episodes|checkpoints")
_OURS_BELOW = re.compile(r"(\.tmp-|\.old-)?(step_\d+(\.jsonl)?|latest)")


def is_run(folder: Path) -> bool:
    """Whether a folder's manifest says that it is a run of this program."""
    try:  # the status of a manifest that cannot be read is that the folder is not ours
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("schema") == SCHEMA


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something and is not a run.

    Raises:
        ConfigError: it is a file, or holds anything but what a run killed at its start leaves.
    """
    try:  # the status is the package's own error
        if folder.is_file():
            raise ConfigError(f"{folder} is a file; give a folder as --out")
        found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError as error:  # a name too long, a folder that may not be read
        raise ConfigError(
            f"{folder} cannot be used ({error.strerror}); give another --out or --name"
        ) from error
    started = {LOCK, f".tmp-{MANIFEST}"}
    if not set(found) <= started and not is_run(folder):
        raise ConfigError(
            f"{folder} is not empty and not a run of this program (no {MANIFEST} with schema "
            f"{SCHEMA}); give another --out"
        )


def clear(folder: Path) -> None:
    """Delete a run: the names we write, and no other."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and _OURS.fullmatch(path.name):
            _delete(path, _OURS_BELOW)
            if not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()
    _delete(folder, _OURS, files=True)


def _delete(folder: Path, names: re.Pattern[str], *, files: bool = False) -> None:
    """Delete what is called so; with ``files`` only files."""
    found = folder.iterdir() if folder.is_dir() else ()
    for path in sorted(found, key=lambda path: path.name == MANIFEST):  # so a kill leaves a run
        if not names.fullmatch(path.name):
            continue
        if not path.is_dir() or path.is_symlink():
            path.unlink()
        elif not files:
            shutil.rmtree(path)


def weights_digest(model: str) -> str:
    """SHA-256 of the weights in a model's folder, as hex digits.

    Args:
        model: a folder with safetensors files, or a hub name.

    Returns:
        64 hex digits over the files in the order of their names; empty for what is no folder here
        (a hub name, or a model that has been moved away since).
    """
    files = sorted(Path(model).glob("*.safetensors"))
    if not files:
        return ""
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def run_identity(config: TrainConfig, command: str) -> dict[str, Any]:
    """What makes two runs the same run: the settings, the command and the starting weights."""
    weights = weights_digest(resolve_model(config.model))
    return {**config.identity(), "command": command, "weights_sha256": weights}


def config_of(identity: Mapping[str, Any]) -> TrainConfig:
    """The settings in a run's identity; what it does not hold is as by default."""
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    return TrainConfig(**{key: value for key, value in identity.items() if key in names})


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Which keys of two identities differ, and how, as part of a sentence; empty for none.

    Starting weights that are not here any more, or never were, differ from none.
    """
    known = {k for k in {*theirs, *ours} if k != "weights_sha256" or ours.get(k)}
    return ", ".join(
        f"{k} ({theirs.get(k)!r} there, {ours.get(k)!r} here)"
        for k in sorted(known)
        if theirs.get(k) != ours.get(k)
    )
