"""Benchmarks run, agree with what they compare, and end in a line of JSON."""

import json
import subprocess
import sys


def test_the_advantage_benchmark_at_a_small_size(root):
    command = [sys.executable, "benchmarks/advantages.py", "--rows", "4000", "--rounds", "1"]
    result = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    report = json.loads(result.stdout.splitlines()[-1])
    assert (report["rows"], report["groups"]) == (4000, 500)
    assert report["max_difference"] < 1e-12
    assert report["times_list_loop"] > 1
