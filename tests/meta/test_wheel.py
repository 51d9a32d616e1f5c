"""The wheel holds the whole product and nothing else, and its base install is light.

Builds the wheel and installs it into fresh virtual environments, so it needs a package index.
"""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]

ABSENT = ["torch", "transformers", "fastapi", "uvicorn", "pydantic", "tyro", "pyarrow", "msgpack"]
EPISODE = f"""
import importlib.util, sys
import gymnasium, searchqa
env = gymnasium.make("SearchQA-v0", questions="demo:train?passages=1000")
prompt, info = env.reset(seed=0)
assert info["question"] in prompt
text, reward, terminated, truncated, info = env.step("<search> " + info["question"] + " </search>")
assert info["num_searches"] == 1 and "<information>" in text
text, reward, terminated, truncated, info = env.step("<answer> nobody </answer>")
assert terminated and reward == 0.0
for name in {ABSENT!r}:
    assert name not in sys.modules, name + " was imported"
    assert importlib.util.find_spec(name) is None, name + " was installed"
"""


def run(*command, **options):
    """Run away from the checkout, so that only what is installed can be imported."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))},
        **options,
    )


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--wheel", "--outdir", out, root)
    assert built.returncode == 0, built.stderr + built.stdout
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def base(wheel, root, tmp_path_factory):
    """The bin folder of a fresh environment with the wheel and its base dependencies."""
    home = tmp_path_factory.mktemp("base")
    venv.create(home, with_pip=True)
    bin_folder = home / ("Scripts" if os.name == "nt" else "bin")
    pip = [bin_folder / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    installed = run(*pip, "-c", root / "constraints.txt", wheel, cwd=home)
    assert installed.returncode == 0, installed.stderr
    return bin_folder


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel, root):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        path.relative_to(root / folder).as_posix()
        for folder, package in [
            ("env", "searchqa"),
            ("learner", "stratified_grpo"),
            ("services", "searchqa_services"),
        ]
        for path in (root / folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    ours = {name for name in names if ".dist-info/" not in name}
    assert ours == expected
    assert {"searchqa/py.typed", "stratified_grpo/py.typed"} <= ours
    licenses = [name for name in names if ".dist-info/licenses/" in name]
    assert {Path(name).name for name in licenses} == {"LICENSE", "NOTICE"}
    assert wheel.stat().st_size < 10e6


def test_an_episode_runs_on_the_base_install(base, tmp_path):
    result = run(base / "python", "-W", "error", "-c", EPISODE, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_the_base_install_brings_nothing_heavy(base):
    listing = run(base / "python", "-m", "pip", "list", "--format=freeze")
    installed = {line.split("==")[0].lower().replace("_", "-") for line in listing.stdout.split()}
    assert {"searchqa", "gymnasium", "numpy", "httpx", "bm25s"} <= installed
    assert not installed & {name.replace("_", "-") for name in ABSENT}


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["searchqa-search", "serve", "--index", "nowhere"], "services"),
        (["stratified-grpo", "train"], "learner"),
        (["stratified-grpo", "eval"], "learner"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(base, tmp_path, command, extra):
    result = run(base / command[0], *command[1:], cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert f"pip install 'searchqa[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_environments_command_needs_no_extra(base, wheel, tmp_path):
    result = run(base / "searchqa", "version", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"searchqa-{result.stdout.strip()}-" in wheel.name
