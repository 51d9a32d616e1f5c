"""What a run leaves behind besides weights: metrics per update, episodes, a manifest."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from stratified_grpo.checkpoint import write_text
from stratified_grpo.run_folder import SCHEMA


class MetricsLog:
    """``metrics.jsonl``: one object per update, ``step`` first; exact across kills and resumes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def truncate(self, step: int) -> None:
        """Drop lines after ``step`` (their updates will be redone) and a torn last line."""
        if not self.path.exists():
            return
        kept = [line for line in self._lines() if json.loads(line)["step"] <= step]
        write_text(self.path, "".join(f"{line}\n" for line in kept))

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one line; it is flushed before this returns."""
        line = json.dumps({"step": step, **{k: _plain(v) for k, v in metrics.items()}})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All whole lines."""
        return [json.loads(line) for line in self._lines()] if self.path.exists() else []

    def _lines(self) -> Iterable[str]:
        text = self.path.read_text(encoding="utf-8")
        return text[: text.rfind("\n") + 1].splitlines()


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    number = float(value)
    return number if number == number and abs(number) != float("inf") else None


def write_episodes(path: Path, records: Iterable[str]) -> None:
    """Write episode records (JSON texts) as JSON lines, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{record}\n" for record in records if record))


def write_manifest(path: Path, identity: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Record what decides the numbers of a run: config, versions, platform, threads."""
    versions = {}
    for name in ("searchqa", "torch", "transformers", "numpy", "gymnasium", "bm25s"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    document = {
        "schema": SCHEMA,
        "config": dict(identity),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": versions,
        **extra,
    }
    write_text(path, json.dumps(document, indent=1) + "\n")
