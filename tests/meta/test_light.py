"""Each part works, or says what to install, where the heavy libraries of the others are absent.

Absence is imitated in a subprocess; ``test_wheel.py`` does it in a really bare environment.
"""

import json
import subprocess
import sys

import pytest

HEAVY = [
    *("torch", "transformers", "safetensors", "tyro", "rich", "pyarrow", "matplotlib"),
    *("fastapi", "starlette", "uvicorn", "pydantic", "pydantic_settings", "prometheus_client"),
    "msgpack",
]
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))\n"
EPISODE = """
import gymnasium, searchqa
env = gymnasium.make("SearchQA-v0", questions="demo:train?passages=1000")
prompt, info = env.reset(seed=0)
text, reward, terminated, truncated, info = env.step("<search> " + info["question"] + " </search>")
assert info["num_searches"] == 1 and "<information>" in text, info["status"]
text, reward, terminated, truncated, info = env.step("<answer> nobody </answer>")
assert terminated and reward == 0.0
"""


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_an_episode_runs_without_any_heavy_library():
    result = run(BLOCK + EPISODE)
    assert result.returncode == 0, result.stderr


def test_an_episode_loads_no_heavy_library_where_all_are_installed():
    report = f"import sys, json; print(json.dumps(sorted(set(sys.modules) & set({HEAVY!r}))))"
    result = run(EPISODE + report)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == []


@pytest.mark.parametrize(
    "module",
    [
        "searchqa.cli",
        "searchqa_services.search.cli",
        "searchqa_services.search.engine.bm25",
        "stratified_grpo.cli",
        "stratified_grpo.advantages",
        "stratified_grpo.diagnostics",
    ],
)
def test_modules_that_promise_to_be_light_import_alone(module):
    result = run(BLOCK + f"import {module}")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("searchqa_services.search.cli", ["serve", "--index", "nowhere"], "services"),
        ("stratified_grpo.cli", ["train"], "learner"),
        ("stratified_grpo.cli", ["eval"], "learner"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(module, arguments, extra):
    result = run(BLOCK + f"import sys; from {module} import main; sys.exit(main({arguments!r}))")
    assert result.returncode == 2, result.stderr
    assert f"pip install 'searchqa[{extra}]'" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
