"""The tiny policy that ships with the package, and where it lies."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

BUNDLED = "demo"
"""The name by which commands and configs ask for it."""


def bundled_model() -> Path:
    """Folder of the bundled policy, in the Hugging Face format."""
    return Path(str(resources.files("stratified_grpo.demo") / "policy"))


def resolve_model(name: str) -> str:
    """The folder or hub name that a ``model`` setting stands for."""
    return str(bundled_model()) if name == BUNDLED else name
