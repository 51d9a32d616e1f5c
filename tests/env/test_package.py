"""What importing costs and brings, and that the documented names exist."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import searchqa
from searchqa.env import SearchQAEnv

HEAVY = ("torch", "transformers", "fastapi", "pydantic", "httpx", "bm25s", "pyarrow")
LIGHT = f"""
import time, gymnasium
began = time.perf_counter()
import searchqa, sys
took = time.perf_counter() - began
assert took < 0.3, took
assert not set(sys.modules) & set({HEAVY!r})
import importlib
importlib.reload(searchqa)
env = gymnasium.make("SearchQA-v0", questions="demo:train?passages=1000")
env.reset(seed=0)
env.step("<search>film</search>")
assert not set(sys.modules) & {{"torch", "transformers", "fastapi", "pydantic"}}
"""


def run(code: str, folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr


def test_importing_is_light_and_twice_is_once(tmp_path: Path) -> None:
    run(LIGHT, tmp_path)


def test_no_network_is_touched(tmp_path: Path) -> None:
    run(
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "import searchqa, gymnasium\n"
        "gymnasium.make('SearchQA-v0', questions='demo:train?passages=1000').reset(seed=0)\n",
        tmp_path,
    )


def test_public_names() -> None:
    assert searchqa.__all__ == sorted(searchqa.__all__)
    assert all(hasattr(searchqa, name) for name in searchqa.__all__)
    searchqa.register_envs()
    assert searchqa.ENV_ID in gymnasium.registry


def test_the_class_docstring_is_the_specification() -> None:
    text = SearchQAEnv.__doc__ or ""
    headings = [line.strip()[3:] for line in text.splitlines() if line.strip().startswith("## ")]
    assert headings == [
        *("Description", "Action Space", "Observation Space", "Starting State", "Rewards"),
        *("Episode End", "Information", "Arguments", "Version History"),
    ]


def test_every_argument_and_every_info_key_is_specified() -> None:
    text = SearchQAEnv.__doc__ or ""
    _, information, arguments = (
        text.split("## Information")[0],
        *text.split("## Information")[1].split("## Arguments"),
    )
    for name, parameter in inspect.signature(SearchQAEnv.__init__).parameters.items():
        if name != "self":
            default = parameter.default
            shown = f'"{default}"' if isinstance(default, str) else str(default)
            assert f"``{name}`` (" in arguments, name
            assert shown in arguments.split(f"``{name}`` (")[1][:20], name
    env = gymnasium.make("SearchQA-v0", questions="demo:train?passages=1000")
    for key in env.reset(seed=0)[1]:
        assert f"``{key}``" in information or key.startswith("reward_"), key


README = Path(__file__).parents[2] / "env" / "README.md"


@pytest.mark.parametrize("block", README.read_text().split("```python\n")[1:])
def test_the_readme_runs(block: str, tmp_path: Path) -> None:
    run(block.split("```")[0], tmp_path)
