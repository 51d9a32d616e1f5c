"""Time the advantage estimator against two loops that people write, in one run.

``python benchmarks/advantages.py [--rows N] [--rounds R]`` prints a table; the last line is JSON.
The loops are a careful one over Python lists and one that calls numpy once a group; both do the
same arithmetic, and the largest difference from the estimator is reported beside the times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from stratified_grpo.advantages import Floats, stratified_advantages
from stratified_grpo.strata import Codes

ALPHA, EPS, GROUP_SIZE, NUM_KEYS = 0.8, 1e-6, 8, 5
# a tenth of a second is more easily disturbed than ten seconds
REPEATS = {"list_loop": 1, "numpy_loop": 1, "estimator": 5}


def make_rows(num_rows: int, seed: int = 0) -> tuple[Floats, Codes, Codes]:
    """Return shuffled binary rewards, group ids and search counts, each of shape ``[num_rows]``."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(num_rows) // GROUP_SIZE)
    counts = rng.choice(NUM_KEYS, size=num_rows, p=[0.05, 0.45, 0.30, 0.15, 0.05])
    success = np.array([0.10, 0.35, 0.45, 0.40, 0.20])[counts]
    return (rng.random(num_rows) < success).astype(np.float64), groups, counts


def _standardised(rewards: list[float]) -> list[float]:
    if max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
    return [(r - mean) / (std + EPS) for r in rewards]


def list_loop(rewards: list[float], groups: list[int], counts: list[int]) -> list[float]:
    """Compute the blend with dictionaries of lists: the careful pure-Python way."""
    values = [0.0] * len(rewards)
    members: dict[int, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    for rows in members.values():
        for row, gn in zip(rows, _standardised([rewards[i] for i in rows]), strict=True):
            values[row] = (1 - ALPHA) * gn
        strata: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            strata[counts[row]].append(row)
        for inside in strata.values():
            if len(inside) < 2:
                continue
            for row, san in zip(inside, _standardised([rewards[i] for i in inside]), strict=True):
                values[row] += ALPHA * san
    return values


def numpy_loop(rewards: Floats, groups: Codes, counts: Codes) -> Floats:
    """Compute the blend with a few numpy calls for each group and stratum: the trainers' way."""
    values = np.zeros(len(rewards))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        reward, count = rewards[rows], counts[rows]
        if reward.max() > reward.min():
            values[rows] = (1 - ALPHA) * (reward - reward.mean()) / (reward.std() + EPS)
        for key in np.unique(count):
            inside = reward[count == key]
            if inside.max() > inside.min():
                san = (inside - inside.mean()) / (inside.std() + EPS)
                values[rows[count == key]] += ALPHA * san
    return values


def _timed(call: Callable[[], object]) -> tuple[float, Floats]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, np.asarray(result)


def measure(num_rows: int, rounds: int) -> dict[str, float | int | str | None]:
    """Time the three, interleaved, and return the best of each with ratios and machine."""
    rewards, groups, counts = make_rows(num_rows)
    lists = (rewards.tolist(), groups.tolist(), counts.tolist())
    calls: dict[str, Callable[[], object]] = {
        "list_loop": lambda: list_loop(*lists),
        "numpy_loop": lambda: numpy_loop(rewards, groups, counts),
        "estimator": lambda: (
            stratified_advantages(rewards, groups, counts, alpha=ALPHA, eps=EPS).values
        ),
    }
    best = dict.fromkeys(calls, math.inf)
    values: dict[str, Floats] = {}
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(REPEATS[name]):
                seconds, values[name] = _timed(call)
                best[name] = min(best[name], seconds)
    return {
        "benchmark": "advantages",
        "rows": num_rows,
        "groups": int(groups.max()) + 1,
        "rounds": rounds,
        **{f"{name}_ms": round(1e3 * seconds, 3) for name, seconds in best.items()},
        "times_list_loop": round(best["list_loop"] / best["estimator"], 1),
        "times_numpy_loop": round(best["numpy_loop"] / best["estimator"], 1),
        "max_difference": max(
            float(np.abs(values["estimator"] - values[name]).max())
            for name in ("list_loop", "numpy_loop")
        ),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def main() -> None:
    """Parse the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    result = measure(args.rows, args.rounds)
    for name in ("list_loop", "numpy_loop", "estimator"):
        print(f"{name:12s} {result[f'{name}_ms']:>12} ms")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
