"""One process at a time in a run's folder, and a folder that cannot be had is one sentence."""

import signal
import subprocess
import sys

import pytest

from stratified_grpo.errors import ConfigError
from stratified_grpo.run_lock import RunLock

HOLD = """
import sys, time
from pathlib import Path
from stratified_grpo.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_another_process_is_kept_out_until_this_one_is_killed(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    ours = RunLock(tmp_path / "run")
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=r"another process is at work in .*run; wait for it"):
            ours.acquire()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    ours.acquire()
    ours.acquire()  # held already
    other = RunLock(tmp_path / "run")
    with pytest.raises(ConfigError, match="another process"):
        other.acquire()
    ours.release()
    ours.release()
    other.acquire()
    del other  # forgotten: the lock goes with it
    ours.acquire()
    ours.release()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError, match=r"cannot write in .* \(.*\); give another --out"):
            RunLock(folder).acquire()
    with pytest.raises(ConfigError, match="cannot write in"):
        RunLock(tmp_path / "new" / "newer" / ("x" * 300)).acquire()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
