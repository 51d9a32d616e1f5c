"""The command line: ``stratified-grpo train | eval | sft | update | init-tiny``.

Settings are parsed before torch is imported, so ``--help`` and a wrong value answer at once. A
user's mistake is one sentence on stderr and exit code 2, never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

COMMANDS: dict[str, str] = {
    "train": "sample groups of rollouts from an environment and train on them",
    "eval": "exact match and searches per question of a policy",
    "sft": "imitate recorded episodes (warm start)",
    "update": "train on recorded episodes of any rollout system",
    "init-tiny": "write a tiny, randomly initialised policy with its own tokenizer",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 done, 1 the run had to stop, 2 wrong input)."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(_usage())
        return 0 if args else 2
    if args[0] in ("--version", "version"):
        print(metadata.version("searchqa"))
        return 0
    if args[0] not in COMMANDS:
        return _fail(f"there is no command {args[0]!r}; there are {', '.join(COMMANDS)}", 2)
    # Two OpenMP threads that spin-wait on a busy machine are 20 to 50 times slower than one.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    try:
        from stratified_grpo import commands
    except ModuleNotFoundError as error:
        return _fail(f"no module {error.name!r}: pip install 'searchqa[learner]'", 2)
    command: Callable[[list[str]], None] = getattr(commands, args[0].replace("-", "_"))
    return _run(command, args[1:])


def _run(command: Callable[[list[str]], None], args: list[str]) -> int:
    import gymnasium

    from stratified_grpo.errors import LearnerError, TrainingError

    try:
        command(args)
    except TrainingError as error:
        return _fail(str(error), 1)
    except LearnerError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command resumes from the last checkpoint", 130)
    except gymnasium.error.Error as error:
        # An environment's own errors say what is wrong in one sentence, and end a run that had
        # begun (at the start they are ConfigError); Gymnasium's mean that we misused it.
        if type(error).__module__.startswith("gymnasium."):
            raise
        return _fail(str(error), 1)
    return 0


def _usage() -> str:
    rows = "\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())
    return f"usage: stratified-grpo COMMAND [options]\n\n{rows}\n\nstratified-grpo COMMAND --help"


def _fail(message: str, code: int) -> int:
    print(f"stratified-grpo: {message}", file=sys.stderr)
    return code
