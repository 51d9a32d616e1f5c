"""GRPO, a constant blend and an annealed blend on the demo: same warm start, budget and grid.

Every run is a separate process of `stratified-grpo train` with one thread; finished runs are kept,
so the command goes on where it stopped. Prints every run and a summary as Markdown, then JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

METHODS = {
    "GRPO (alpha 0)": "0",
    "blend 0.8": "0.8",
    "annealed blend": "anneal:1.0..0.3@40..80",
}
RATES = ("1e-4", "2e-4")
SEEDS = (101, 102, 103, 104, 105)
STUCK = 0.5
"""A run is stuck when its greedy EM at the end is less than this above its start."""


@dataclass(frozen=True)
class Run:
    """What one run came to."""

    method: str
    lr: str
    seed: int
    em_start: float
    em_end: float
    sampled_end: float
    searches_end: float
    updates_to_90: int | None
    stuck: bool


def main() -> int:
    """Run the grid and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--updates", type=int, default=160)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--rates", nargs="+", default=list(RATES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    args = parser.parse_args()
    jobs = [(m, lr, seed) for seed in args.seeds for lr in args.rates for m in args.methods]
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda job: _train(args.out, args.updates, *job), jobs))
    runs = [_read(args.out, args.updates, *job) for job in jobs]
    print(_markdown(runs))
    print(json.dumps({"updates": args.updates, "runs": [asdict(run) for run in runs]}))
    return 0


def _folder(out: Path, method: str, lr: str, seed: int) -> Path:
    name = method.replace(" ", "-").replace("(", "").replace(")", "")
    return out / f"{name}-lr{lr}-s{seed}"


def _train(out: Path, updates: int, method: str, lr: str, seed: int) -> None:
    folder = _folder(out, method, lr, seed)
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "stratified_grpo", "train", "--config", "demo"]
    command += ["--alpha", METHODS[method], "--lr", lr, "--seed", str(seed), "--threads", "1"]
    command += ["--updates", str(updates), "--no-save-episodes", "--out", str(folder)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
    }
    with (out / f"{folder.name}.log").open("a") as log:  # a suffix would cut "0.8-lr1e-4-s101"
        subprocess.run(command, check=True, env=environment, stdout=log, stderr=log)
    print(f"done: {folder.name}", file=sys.stderr, flush=True)


def _lines(path: Path) -> dict[int, dict[str, Any]]:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line["step"]: line for line in lines}


def _read(out: Path, updates: int, method: str, lr: str, seed: int) -> Run:
    """The run as it was after ``updates`` updates, however far it went on."""
    folder = _folder(out, method, lr, seed)
    evaluations, metrics = _lines(folder / "eval.jsonl"), _lines(folder / "metrics.jsonl")
    missing = [f"evaluation {step}" for step in (0, updates) if step not in evaluations]
    missing += [f"update {step}" for step in range(1, updates + 1) if step not in metrics][:1]
    if missing:
        raise SystemExit(f"{folder} has no {' and no '.join(missing)}; delete it and run again")
    start, end = (evaluations[step]["scores"][0] for step in (0, updates))
    rewards = [metrics[step]["reward"] for step in range(1, updates + 1)]
    smooth = [statistics.fmean(rewards[max(0, i - 4) : i + 1]) for i in range(len(rewards))]
    reached = next((i + 1 for i, value in enumerate(smooth) if value >= 0.9), None)
    return Run(
        method=method,
        lr=lr,
        seed=seed,
        em_start=start["em"],
        em_end=end["em"],
        sampled_end=smooth[-1],
        searches_end=end["searches"],
        updates_to_90=reached,
        stuck=end["em"] < start["em"] + STUCK,
    )


def _markdown(runs: list[Run]) -> str:
    lines = [
        "| method | lr | seed | EM start | EM end | sampled EM | searches | updates to 0.9 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in sorted(runs, key=lambda r: (list(METHODS).index(r.method), r.lr, r.seed)):
        lines.append(
            f"| {run.method} | {run.lr} | {run.seed} | {run.em_start:.2f} | {run.em_end:.2f} "
            f"| {run.sampled_end:.2f} | {run.searches_end:.2f} | {run.updates_to_90 or 'not'} |"
        )
    lines += [
        "",
        "| method | lr | runs | mean EM end | worst EM end | stuck | mean searches end |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        for lr in sorted({run.lr for run in runs}):
            part = [run for run in runs if (run.method, run.lr) == (method, lr)]
            if part:
                ends = [run.em_end for run in part]
                searches = statistics.fmean(run.searches_end for run in part)
                lines.append(
                    f"| {method} | {lr} | {len(part)} | {statistics.fmean(ends):.2f} "
                    f"| {min(ends):.2f} | {sum(run.stuck for run in part)} | {searches:.2f} |"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
