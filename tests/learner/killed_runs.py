"""Start runs that are killed at chosen moments; a program of its own, run by test_killed_runs.

``killed_runs.py CONFIG_JSON MOMENT OUT [MOMENT OUT ...]`` forks one child for each moment. A child
trains and sends itself SIGKILL: ``log`` after update 3 is logged, ``write`` in the middle of
writing step_4, ``rename`` when step_4 is published but ``latest`` still names step_2, ``start``
before the first checkpoint is whole, ``evaluate`` while an evaluation is being written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from stratified_grpo import checkpoint, evaluate, tracking, trainer
from stratified_grpo.config import TrainConfig
from stratified_grpo.policy import load_policy


class Silent:
    def updated(self, step: int, metrics: dict[str, float]) -> None: ...

    def evaluated(self, step: int, evaluation: Any) -> None: ...


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after_logging(number: int) -> None:
    append = tracking.MetricsLog.append

    def wrapped(self: Any, step: int, metrics: Any) -> None:
        append(self, step, metrics)
        if step == number:
            with self.path.open("a") as file:
                file.write('{"step": 4, "torn')
            die()

    tracking.MetricsLog.append = wrapped  # type: ignore[method-assign]


def kill_while_writing(number: int) -> None:
    save_file = checkpoint.save_file

    def wrapped(tensors: Any, path: Path) -> None:
        if path.parent.name == f".tmp-step_{number}":
            path.write_bytes(b"half a file")
            die()
        save_file(tensors, path)

    checkpoint.save_file = wrapped  # type: ignore[assignment]


def kill_before_the_pointer_moves(number: int) -> None:
    write_text = checkpoint.write_text

    def wrapped(path: Path, text: str) -> None:
        if text == f"step_{number}":
            die()
        write_text(path, text)

    checkpoint.write_text = wrapped


def kill_while_evaluating(number: int) -> None:
    append = evaluate.Evaluation.append

    def wrapped(self: Any, path: Path, step: int) -> None:
        if step == number:
            append(self, path, step)
            path.with_name(f".tmp-{path.name}").write_text("half a li")
            die()
        append(self, path, step)

    evaluate.Evaluation.append = wrapped  # type: ignore[method-assign]


MOMENTS = {
    "log": lambda: kill_after_logging(3),
    "write": lambda: kill_while_writing(4),
    "rename": lambda: kill_before_the_pointer_moves(4),
    "start": lambda: kill_while_writing(0),
    "evaluate": lambda: kill_while_evaluating(3),
}


def main() -> None:
    values, *pairs = sys.argv[1:]
    load_policy(json.loads(values)["model"])  # so that the children need not import again
    for moment, out in zip(pairs[::2], pairs[1::2], strict=True):
        child = os.fork()
        if child == 0:
            MOMENTS[moment]()
            trainer.Trainer(TrainConfig(**json.loads(values), out=out), Silent()).run()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, (moment, status)


if __name__ == "__main__":
    main()
