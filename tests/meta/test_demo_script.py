"""``scripts/demo`` trains and tests once, and only tells when it is asked to tell."""

import os
import subprocess

import pytest

COMMAND = """#!/usr/bin/env bash
echo "$*" >> "$CALLS"
case " $* " in *" --print-folder "*) echo "folder of $*" ;; esac
case " $* " in *" --alpha 7 "*) exit 2 ;; esac
"""


@pytest.fixture
def demo(root, tmp_path):
    """Return a function: arguments in, exit code and the calls of ``stratified-grpo`` out."""
    for name, text in {"python": "#!/bin/sh\nexit 0\n", "stratified-grpo": COMMAND}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(*args):
        calls = tmp_path / "calls"
        calls.unlink(missing_ok=True)
        environment = {**os.environ, "SEARCHQA_VENV": str(tmp_path), "CALLS": str(calls)}
        command = ["bash", str(root / "scripts" / "demo"), *args]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, calls.read_text().splitlines()

    return run


@pytest.mark.parametrize("args", [(), ("--out", "x y"), ("--out=x",), ("--name=n", "--seed", "3")])
def test_it_trains_and_then_tests_what_it_trained(demo, args):
    code, calls = demo(*args)
    given = " ".join(args)
    assert code == 0
    where, train, before, after = calls
    assert where == f"train --print-folder {given}".strip()
    assert train == f"train {given}".strip()
    assert before.startswith("eval --model demo --questions demo:test")
    assert after.startswith(f"eval --model folder of {where} --questions demo:test")


@pytest.mark.parametrize("flag", ["-h", "--help", "--print-config", "--print-folder"])
def test_what_only_tells_trains_nothing(demo, flag):
    assert demo("--seed", "3", flag) == (0, [f"train --seed 3 {flag}"])


def test_a_wrong_setting_stops_it_before_anything_is_trained(demo):
    assert demo("--alpha", "7") == (2, ["train --print-folder --alpha 7"])
