"""Rate and memory of the generated demo world: passages streamed, questions taken.

``python benchmarks/world_rate.py [--passages N] [--questions Q]`` prints what it measured; the
last line is JSON. Peak memory is the process's, so run each size in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections import deque

from searchqa.world import SPLITS, World, WorldConfig


def peak_mib() -> float:
    """Largest resident size of this process so far, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts KiB, macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def measure(passages: int, questions: int | None) -> dict[str, float]:
    """Make a world, stream its passages, take questions; times in seconds of this process."""
    before, start = peak_mib(), time.process_time()
    world = World(WorldConfig(passages=passages))
    made = time.process_time()
    deque(world.iter_passages(), maxlen=0)
    streamed, after = time.process_time(), peak_mib()
    taken = sum(len(world.questions(split, limit=questions)) for split in SPLITS)
    asked = time.process_time()
    return {
        "passages": passages,
        "world_s": made - start,
        "stream_s": streamed - made,
        "passages_per_s": passages / (streamed - made),
        "stream_peak_mib": after,
        "stream_added_mib": after - before,
        "questions": taken,
        "questions_s": asked - streamed,
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--questions", type=int, help="most questions a split; default all")
    args = parser.parse_args()
    result = measure(args.passages, args.questions)
    for name, value in result.items():
        print(f"{name:>18}  {value:,.3f}")
    machine = {"python": platform.python_version(), "cpus": os.cpu_count()}
    print(json.dumps({**result, **machine}))


if __name__ == "__main__":
    main()
