"""What each command does; torch is imported only once its settings are known to be right."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console

from stratified_grpo.config import BUNDLED_MODEL, SftConfig, TrainConfig, load_config
from stratified_grpo.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Settings of ``stratified-grpo eval``."""

    model: str = BUNDLED_MODEL
    """Folder or hub name of the policy, a run's folder (its newest checkpoint), or "demo"."""
    questions: str = ""
    """Questions, as the environment understands them; empty: the run's eval_questions, else
    demo:test."""
    search: str = ""
    """Where the environment searches; empty: where the run did."""
    limit: int = 500
    """Questions; 0: all."""
    sampled: bool = False
    """Sample at temperature 1 instead of greedily."""
    json: bool = False
    """Print one JSON object instead of a table."""
    config: str = ""
    """TOML file or ready-made config for budgets, prompt and environment; default: the run's own
    when --model is a run, else demo."""
    device: str = ""
    """Torch device; empty: the run's."""
    dtype: str = ""
    """Parameter type; empty: the run's."""
    threads: int = 0
    """CPU threads; 0: as the run."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be right."""
        for name in ("limit", "threads"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")

    def over(self, settings: TrainConfig) -> TrainConfig:
        """The settings of a run, with what is given here in their place."""
        given: dict[str, Any] = {
            "search": self.search,
            "eval_questions": self.questions or settings.eval_questions or "demo:test",
            "device": self.device,
            "dtype": self.dtype,
            "threads": self.threads,
        }
        return dataclasses.replace(settings, **{k: v for k, v in given.items() if v})


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyConfig:
    """Settings of ``stratified-grpo init-tiny``."""

    episodes: Path
    """JSON lines of episode records; their text trains the tokenizer."""
    out: Path
    """Folder to write."""
    vocabulary: int = 1024
    """Tokens."""
    width: int = 128
    """Hidden size."""
    layers: int = 3
    """Transformer blocks."""
    seed: int = 0
    """Seed of the initial weights."""


def _parse(kind: type[T], args: Sequence[str], prog: str, default: T | None = None) -> T:
    options: dict[str, Any] = {} if default is None else {"default": default}
    try:
        parsed: T = tyro.cli(kind, args=list(args), prog=f"stratified-grpo {prog}", **options)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    return parsed


def _take(args: list[str], name: str) -> tuple[list[str], list[str]]:
    """Split off ``--name VALUE`` or ``--name=VALUE`` options; returns (values, rest)."""
    values: list[str] = []
    rest: list[str] = []
    pending = iter(args)
    for arg in pending:
        if arg == f"--{name}":
            value = next(pending, None)
            if value is None:
                raise ConfigError(f"--{name} needs a value")
            values.append(value)
        elif arg.startswith(f"--{name}="):
            values.append(arg.split("=", 1)[1])
        else:
            rest.append(arg)
    return values, rest


def train_config(args: list[str], **defaults: Any) -> TrainConfig:
    """The config a command line means.

    ``--config`` names a TOML file or a ready-made config; without it the demo's is used, unless
    ``--model`` names another model: then the defaults for real models hold.

    Args:
        args: the options.
        defaults: a command's own defaults, where no ``--config`` is given.
    """
    chosen, rest = _take(args, "config")
    models, _ = _take(rest, "model")
    if chosen:
        default = load_config(chosen[-1])
    elif models and models[-1] != BUNDLED_MODEL:
        default = TrainConfig()
    else:
        default = load_config("demo")
    if not chosen:
        default = dataclasses.replace(default, **defaults)
    return _parse(TrainConfig, rest, "train", default)


def train(args: list[str]) -> None:
    """``stratified-grpo train``; ``--print-config`` and ``--print-folder`` only tell."""
    shown, args = _flag(args, "print-config")
    where, args = _flag(args, "print-folder")
    config = train_config(args)
    if where:
        sys.stdout.write(f"{config.folder}\n")
        return
    if shown:
        lines = (f"{key} = {_toml(value)}" for key, value in dataclasses.asdict(config).items())
        sys.stdout.write("\n".join(lines) + "\n")
        return
    from stratified_grpo.display import Display
    from stratified_grpo.trainer import Trainer

    _quiet()
    console = Console()
    with Display(f"stratified-grpo train · {config.folder}", config.updates, console) as display:
        trainer = Trainer(config, display)
        already = trainer.finished
        if not already:
            trainer.run()
    if already:
        _say(
            console, f"{config.folder} is finished ({config.updates} updates); --fresh starts anew"
        )
    else:
        _say(console, f"done: {config.folder} (weights in checkpoints/step_{config.updates})")


def eval(args: list[str]) -> None:
    """``stratified-grpo eval``."""
    config = _parse(EvalConfig, args, "eval")
    from stratified_grpo.checkpoint import latest_checkpoint, read_state
    from stratified_grpo.demo import resolve_model
    from stratified_grpo.display import evaluation_table
    from stratified_grpo.environments import EnvironmentPool
    from stratified_grpo.evaluate import evaluate
    from stratified_grpo.policy import load_policy
    from stratified_grpo.run_folder import config_of
    from stratified_grpo.samplers.hf import HFSampler
    from stratified_grpo.samplers.self_test import check_sampler
    from stratified_grpo.trainer import rollout_settings, set_threads

    _quiet()
    run = latest_checkpoint(Path(config.model) / "checkpoints")
    if config.config or run is None:
        settings = load_config(config.config or "demo")
        if not config.config:
            settings = dataclasses.replace(settings, eval_questions="")
    else:
        settings = config_of(read_state(run).identity)
    settings = config.over(settings)
    set_threads(settings.threads)
    policy = load_policy(
        run or resolve_model(config.model), device=settings.device, dtype=settings.dtype
    )
    pool = EnvironmentPool(
        settings.env_id, settings.environment(settings.eval_questions), stratum=settings.stratum
    )
    sampler = HFSampler(policy)
    check_sampler(policy, sampler)
    result = evaluate(
        pool,
        sampler,
        policy.codec,
        rollout_settings(settings),
        limit=config.limit,
        temperature=1.0 if config.sampled else 0.0,
    )
    result.require_valid(settings.max_invalid)
    if config.json:
        sys.stdout.write(result.to_json() + "\n")
    else:
        Console().print(evaluation_table([(-1, result)]))


def sft(args: list[str]) -> None:
    """``stratified-grpo sft``."""
    config = _parse(SftConfig, args, "sft")
    _readable(config.episodes)
    _replaceable(config.out)
    from stratified_grpo.checkpoint import recover
    from stratified_grpo.policy import load_policy
    from stratified_grpo.sft import imitate
    from stratified_grpo.trainer import set_threads

    _quiet()
    set_threads(config.threads)
    recover(config.out)  # before the model is read: it may be the very folder
    policy = load_policy(config.model, device=config.device)
    console = Console()

    def report(step: int, loss: float) -> None:
        if step == 1 or step % 50 == 0 or step == config.steps:
            _say(console, f"step {step} of {config.steps}: loss {loss:.4f}")

    imitate(policy, config, report)
    _say(console, f"wrote {config.out}")


def update(args: list[str]) -> None:
    """``stratified-grpo update``."""
    files, rest = _take(args, "episodes")
    if not files and not {"-h", "--help"} & set(rest):
        raise ConfigError("update needs --episodes FILE (JSON lines of episode records)")
    config = train_config(rest, warmup=0)  # each command would warm up anew
    for file in files:
        _readable(Path(file))
    if not config.out:
        raise ConfigError("update needs --out DIR for the trained policy")
    from stratified_grpo.offline import update_from_records

    _quiet()
    console = Console()

    def report(step: int, metrics: dict[str, float]) -> None:
        _say(console, f"update {step}: reward {metrics['reward']:.3f}")

    folder = update_from_records([Path(file) for file in files], config, report)
    _say(console, f"wrote {folder}")


def init_tiny(args: list[str]) -> None:
    """``stratified-grpo init-tiny``."""
    config = _parse(TinyConfig, args, "init-tiny")
    _readable(config.episodes)
    _replaceable(config.out)
    if config.vocabulary < 300:
        raise ConfigError(f"vocabulary must be at least 300, got {config.vocabulary}")
    from stratified_grpo.demo.tiny import write_tiny_model
    from stratified_grpo.records import read_texts

    _quiet()
    write_tiny_model(
        config.out,
        read_texts(config.episodes),
        vocabulary=config.vocabulary,
        width=config.width,
        layers=config.layers,
        seed=config.seed,
    )
    _say(Console(), f"wrote {config.out}")


def _say(console: Console, text: str) -> None:
    """A line as it is: a path may hold what rich takes for markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _quiet() -> None:
    """The live display is ours; Transformers' own bars would tear it."""
    from transformers.utils import logging

    disable: Callable[[], None] = logging.disable_progress_bar
    disable()


def _flag(args: list[str], name: str) -> tuple[bool, list[str]]:
    rest = [arg for arg in args if arg != f"--{name}"]
    return len(rest) < len(args), rest


def _readable(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"no file {path}")


def _replaceable(folder: Path) -> None:
    """A model is written as a whole folder; only another model may give way to it."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder as --out")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} is not empty and holds no model; give another --out")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # a JSON string is a TOML string, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
