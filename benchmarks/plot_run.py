"""Draw one run's learning: exact match of its rollouts and evaluations, searches, and strata."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    """Read ``metrics.jsonl`` and ``eval.jsonl`` of a run and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/learning.png"))
    args = parser.parse_args()
    metrics, evaluations = _read(args.run / "metrics.jsonl"), _read(args.run / "eval.jsonl")
    steps = [line["step"] for line in metrics]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.plot(steps, _smooth(metrics, "reward"), color="#2f6fb0", lw=2, label="rollouts (sampled)")
    left.plot(
        [line["step"] for line in evaluations],
        [line["scores"][0]["em"] for line in evaluations],
        "o",
        color="#222222",
        label="validation (greedy)",
    )
    left.set(xlabel="update", ylabel="exact match", ylim=(0, 1))
    left.legend(frameon=False, loc="lower right")
    for name, colour in (("0", "#8a8f98"), ("1", "#d08a2e"), ("2", "#2f6fb0")):
        share = _smooth(metrics, f"stratum/{name}/share")
        right.plot(steps, share, color=colour, lw=2, label=f"{name} searches")
    right.set(xlabel="update", ylabel="share of rollouts", ylim=(0, 1))
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=120)
    print(f"wrote {args.out}")
    return 0


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _smooth(lines: list[dict[str, Any]], key: str, window: int = 5) -> list[float]:
    values = [float(line.get(key, 0.0)) for line in lines]
    return [statistics.fmean(values[max(0, i - window + 1) : i + 1]) for i in range(len(values))]


if __name__ == "__main__":
    sys.exit(main())
