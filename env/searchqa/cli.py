"""The command line ``searchqa``: export the demo world, record demonstrations.

A user's mistake is one sentence on stderr and exit code 2; a file appears under its name only when
it is complete. Heavy parts are imported by the command that needs them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from searchqa import ENV_ID, __version__
from searchqa.errors import SearchQAError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; None takes the process's.

    Returns:
        Exit code: 0, or 2 after a user's mistake.
    """
    args = _parser().parse_args(argv)
    try:  # the status is the exit code
        args.run(args)
    except SearchQAError as error:
        return _fail(args.command, str(error))
    except OSError as error:
        return _fail(args.command, f"{args.out} cannot be written: {error.strerror or error}")
    return 0


def _fail(command: str, sentence: str) -> int:
    print(f"searchqa {command}: {sentence}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="searchqa", description="The SearchQA environment.")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_world(commands)
    _add_record(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=lambda _: print(__version__))
    return parser


def _add_world(commands: Any) -> None:
    world = commands.add_parser("world", help="write the demo world as corpus and question files")
    world.add_argument("--out", required=True, help="folder for corpus.jsonl, train.jsonl, ...")
    world.add_argument("--passages", type=_count, default=4000, help="size of the world")
    world.add_argument("--seed", type=_count, default=0, help="seed of the world")
    world.add_argument("--limit", type=_count, help="most questions a split")
    world.set_defaults(run=_world)


def _add_record(commands: Any) -> None:
    record = commands.add_parser(
        "record",
        help="play scripted demonstrations and write their episode records",
        description="Episode i plays the question of reset(seed=START + i); its play depends on "
        "SEED and i alone.",
    )
    record.add_argument("--out", required=True, help="JSON lines of searchqa.episode/1")
    record.add_argument("--episodes", type=_count, required=True)
    record.add_argument("--questions", default="demo:train", help="demo:SPLIT?key=value&...")
    record.add_argument("--seed", type=_count, default=0, help="seed of the play")
    record.add_argument("--start", type=_count, default=0, help="seed of the first question")
    record.add_argument(
        "--prompt",
        type=lambda text: text.replace("\\n", "\n"),
        help="template with {question}, \\n for a new line; default the protocol's own",
    )
    record.add_argument("--max-searches", type=_count, default=4)
    record.add_argument("--top-k", type=_count, default=3)
    record.add_argument(
        "--depths",
        type=_weights,
        default=(0.4, 0.3, 0.3),
        help="weights of trying 0, 1, 2 ... searches; '' for as many as needed",
    )
    record.add_argument("--follow", type=float, default=0.15, help="share of right next searches")
    record.add_argument("--mode", type=float, default=0.9, help="share of guesses of the mode")
    record.add_argument("--copy", type=float, default=1.0, help="share of copies over guesses")
    record.add_argument("--misread", type=float, default=0.0, help="share of misread answers")
    record.set_defaults(run=_record)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 0")
    return int(text)


def _weights(text: str) -> tuple[float, ...]:
    try:  # the status is argparse's error
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers such as 0.4,0.3,0.3") from None


def _world(args: argparse.Namespace) -> None:
    from searchqa.questions import demo_world
    from searchqa.world import export

    world = demo_world(passages=args.passages, seed=args.seed)
    for name, lines in export(world, args.out, limit=args.limit).items():
        print(f"{args.out}/{name}: {lines} lines")


def _record(args: argparse.Namespace) -> None:
    from searchqa.record import write_lines

    lines = write_lines(args.out, _play(args))
    print(f"{args.out}: {lines} episodes")


def _play(args: argparse.Namespace) -> Iterator[str]:
    """Episode records of scripted play, one at a time."""
    import gymnasium
    import numpy as np

    from searchqa.demonstrator import Clumsiness, Demonstrator
    from searchqa.questions import demo_world, parse_demo

    clumsiness = Clumsiness(
        depth_weights=args.depths,
        follow=args.follow,
        mode=args.mode,
        copy=args.copy,
        misread=args.misread,
    )
    env = gymnasium.make(
        ENV_ID,
        questions=args.questions,
        prompt=args.prompt,
        max_searches=args.max_searches,
        top_k=args.top_k,
    )
    world = demo_world(**parse_demo(args.questions).world).config
    for i in range(args.episodes):
        text, info = env.reset(seed=args.start + i)
        question = env.unwrapped.machine.question  # type: ignore[attr-defined]
        player = Demonstrator(question, np.random.default_rng((args.seed, i)), clumsiness, world)
        done = False
        while not done:
            text, _, terminated, truncated, info = env.step(player.act(text))
            done = terminated or truncated
        yield info["record"]


if __name__ == "__main__":
    sys.exit(main())
