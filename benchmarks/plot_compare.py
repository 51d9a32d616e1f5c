"""Draw the learning curves of `benchmarks/compare.py`: runs thin, the mean of a method thick."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

COLOURS = {"GRPO": "#8a8f98", "blend 0.8": "#d08a2e", "annealed blend": "#2f6fb0"}


def main() -> int:
    """Read the runs and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/compare"))
    parser.add_argument("--lr", required=True, help="learning rate whose runs are drawn")
    parser.add_argument("--out", type=Path, default=Path("docs/learning.png"))
    args = parser.parse_args()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for name, colour in COLOURS.items():
        folders = sorted(args.runs.glob(f"{name.replace(' ', '-')}*-lr{args.lr}-s*/metrics.jsonl"))
        runs = [_read(path) for path in folders]
        for axis, key in zip(axes, ("reward", "episode/num_searches"), strict=True):
            curves = [_smooth([line[key] for line in run]) for run in runs]
            for curve in curves:
                axis.plot(range(1, len(curve) + 1), curve, color=colour, alpha=0.25, lw=0.8)
            if curves:
                mean = [statistics.fmean(values) for values in zip(*curves, strict=False)]
                axis.plot(range(1, len(mean) + 1), mean, color=colour, lw=2.2, label=name)
    axes[0].set(xlabel="update", ylabel="exact match of rollouts", ylim=(0, 1))
    axes[1].set(xlabel="update", ylabel="searches per question", ylim=(0, 3))
    axes[0].legend(frameon=False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=150)
    print(f"wrote {args.out}")
    return 0


def _read(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _smooth(values: list[float], window: int = 5) -> list[float]:
    return [statistics.fmean(values[max(0, i - window + 1) : i + 1]) for i in range(len(values))]


if __name__ == "__main__":
    sys.exit(main())
