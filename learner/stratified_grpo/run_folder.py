"""A run's folder: whose run it is, and what of it belongs to us."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stratified_grpo.config import TrainConfig
from stratified_grpo.demo import resolve_model


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
