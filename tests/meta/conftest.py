"""The repository as data: its root, and every Python file of ours parsed once."""

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("env/searchqa", "learner/stratified_grpo", "services/searchqa_services")


@dataclass(frozen=True)
class Source:
    path: Path

    @property
    def name(self):
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self):
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self):
        return ast.parse(self.text)

    @cached_property
    def lines(self):
        return len(self.text.splitlines())

    def functions(self):
        return [
            n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def classes(self):
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    def imported(self):
        """Return the dotted names this file imports, at any depth."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module


def sources_in(*folders):
    return [Source(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def library():
    """Every module of the three packages."""
    return sources_in(*PACKAGES)


@pytest.fixture(scope="session")
def tests():
    """Every file of the tests."""
    return sources_in("tests")
