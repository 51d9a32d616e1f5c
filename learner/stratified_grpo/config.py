"""The settings of runs and of imitation: frozen dataclasses, TOML files, and a run's hash.

The string under a field is its ``--help``. Defaults are for a real model (Search-R1's published
values where it has them); ``configs/demo.toml`` is what ``train`` uses without arguments.
Parsed before torch is imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from stratified_grpo.errors import ConfigError
from stratified_grpo.schedules import parse_schedule

BUNDLED_MODEL = "demo"
"""``model = "demo"`` names the tiny policy that ships with the package."""


_LEAST: dict[str, int] = {
    **dict.fromkeys(("updates", "prompts_per_update", "minibatches", "save_every", "top_k"), 1),
    **dict.fromkeys(("max_turn_tokens", "max_episode_tokens", "micro_batch_tokens"), 1),
    **dict.fromkeys(("min_stratum", "nonfinite_limit"), 1),
    **dict.fromkeys(("eps", "lr", "warmup", "weight_decay", "beta1", "beta2", "kl_coef"), 0),
    **dict.fromkeys(("clip_low", "clip_high", "max_grad_norm", "max_invalid", "max_searches"), 0),
    **dict.fromkeys(("eval_every", "eval_limit", "keep_checkpoints", "threads", "seed"), 0),
}
"""Smallest values that can be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of ``stratified-grpo train``."""

    model: str = BUNDLED_MODEL
    """Folder or hub name of a causal language model in the Hugging Face format; "demo" is the
    tiny policy of the package."""
    questions: str = "demo:train"
    """Training questions, as the environment understands them: a JSONL file, or demo:SPLIT?..."""
    eval_questions: str = ""
    """Questions for evaluation while training; empty: none."""
    search: str = "embedded"
    """Where the environment searches: URL of a search service, embedded, or embedded:PATH."""
    env_id: str = "searchqa:SearchQA-v0"
    """Gymnasium id of a text environment."""
    env_kwargs: str = "{}"
    """Further keyword arguments of the environment, as a JSON object. SearchQA environments get
    on_search_failure="void" unless it is given here: a failed search costs one rollout."""
    stratum: str = "stratum"
    """Key of the environment's info that holds the stratum."""
    max_searches: int = 4
    """Searches an episode may execute."""
    top_k: int = 3
    """Passages per search."""
    prompt: str = ""
    """Prompt template with {question}; empty: the protocol's published prompt."""

    alpha: str = "anneal:1.0..0.3@60..120"
    """Blend of SAN (1) and plain GRPO (0): a number, or a schedule such as
    anneal:1.0..0.3@60..120 (hold 1.0 for 60 updates, then fall linearly to 0.3 by update 120)."""
    eps: float = 1e-6
    """Added to standard deviations."""
    ddof: int = 0
    """0: population, 1: sample standard deviation."""
    scale: bool = True
    """Divide advantages by standard deviations."""
    min_stratum: int = 2
    """Strata with fewer valid rollouts get no advantage of their own."""

    updates: int = 500
    """Updates of the whole run; a finished run goes on when this is raised."""
    prompts_per_update: int = 64
    """Prompts (groups) per update."""
    group_size: int = 8
    """Rollouts per prompt."""
    temperature: float = 1.0
    """Sampling temperature of rollouts."""
    max_turn_tokens: int = 256
    """Sampled tokens per turn, at most."""
    max_episode_tokens: int = 4096
    """Tokens per episode with prompt and observations, at most."""

    lr: float = 1e-6
    """Learning rate of AdamW after warm-up."""
    warmup: int = 20
    """Optimizer steps of linear warm-up."""
    weight_decay: float = 0.0
    """AdamW weight decay on matrices."""
    beta1: float = 0.9
    """AdamW first moment decay."""
    beta2: float = 0.95
    """AdamW second moment decay."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm."""
    minibatches: int = 1
    """Optimizer steps per update."""
    clip_low: float = 0.2
    """Ratios are clipped below 1 minus this."""
    clip_high: float = 0.2
    """Ratios are clipped above 1 plus this."""
    kl_coef: float = 0.0
    """KL penalty to the initial policy (k3); 0 needs no reference model."""
    loss_agg: str = "token"
    """Denominator of the loss: token, sequence or constant."""
    micro_batch_tokens: int = 8192
    """Padded tokens in one forward and backward pass."""
    nonfinite_limit: int = 5
    """Skipped optimizer steps in a row that stop the run."""
    max_invalid: float = 0.5
    """Share of invalid rollouts in an update that stops the run."""

    eval_every: int = 0
    """Evaluate every so many updates; 0: only at the start and the end."""
    eval_limit: int = 200
    """Questions per evaluation while training."""
    save_every: int = 10
    """Checkpoint every so many updates."""
    keep_checkpoints: int = 2
    """Older checkpoints are deleted."""
    save_episodes: bool = True
    """Write every update's episode records to episodes/step_N.jsonl."""

    seed: int = 0
    """Seed of sampling and of the order of questions, from 0; evaluation questions are the same
    for all."""
    threads: int = 0
    """CPU threads; 0: all cores the process may use."""
    device: str = "cpu"
    """Torch device."""
    dtype: str = "float32"
    """Parameter type."""

    out: str = ""
    """Folder of the run; default runs/<name or config hash>-s<seed>."""
    name: str = ""
    """Name of the run in its folder."""
    fresh: bool = False
    """Delete an earlier run in the folder and start anew."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be right, with one sentence each."""
        try:
            parse_schedule(self.alpha)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if self.group_size < 2:
            raise ConfigError(
                f"group_size must be at least 2, got {self.group_size}: a rollout alone in its "
                "group has nothing to be compared with"
            )
        _at_least(self, _LEAST)
        _finite(self, "eps", "lr", "weight_decay", "kl_coef", "temperature")
        self._check_limits()
        self._check_words()
        self.environment(self.questions)

    def _check_limits(self) -> None:
        if not self.max_invalid <= 1:
            raise ConfigError(f"max_invalid must be at most 1, got {self.max_invalid}")
        for name in ("beta1", "beta2"):
            if not getattr(self, name) < 1:
                raise ConfigError(f"{name} must be below 1, got {getattr(self, name)}")
        if not self.max_grad_norm > 0:
            raise ConfigError(
                f"max_grad_norm must be above 0 (inf clips nothing), got {self.max_grad_norm}"
            )
        if not self.temperature > 0:
            raise ConfigError(f"temperature must be above 0 in training, got {self.temperature}")

    def _check_words(self) -> None:
        if self.ddof not in (0, 1):
            raise ConfigError(f"ddof must be 0 (population) or 1 (sample), got {self.ddof}")
        if self.loss_agg not in ("token", "sequence", "constant"):
            raise ConfigError(
                f"loss_agg must be token, sequence or constant, got {self.loss_agg!r}"
            )
        for name in ("out", "name"):
            if "\0" in getattr(self, name):
                raise ConfigError(f"{name} must not hold a null character")

    def environment(self, questions: str) -> dict[str, Any]:
        """Keyword arguments of the environment on the given questions."""
        try:
            extra = json.loads(self.env_kwargs)
        except ValueError as error:
            raise ConfigError(f"env_kwargs is not JSON: {error}") from error
        if not isinstance(extra, dict):
            raise ConfigError('env_kwargs must be a JSON object, such as {"protocol": "search_r1"}')
        kwargs: dict[str, Any] = {
            "questions": questions,
            "search": self.search,
            "max_searches": self.max_searches,
            "top_k": self.top_k,
        }
        if self.prompt:
            kwargs["prompt"] = self.prompt
        if self.env_id.rpartition(":")[2].startswith("SearchQA-"):
            # A failed search then voids one episode; max_invalid decides whether the run goes on.
            kwargs["on_search_failure"] = "void"
        return {**kwargs, **extra}

    def identity(self) -> dict[str, Any]:
        """The settings that decide a run's course; where it is kept and how long is not part."""
        values = dataclasses.asdict(self)
        for key in ("out", "name", "fresh", "updates", "keep_checkpoints", "save_episodes"):
            del values[key]
        return values

    @property
    def hash(self) -> str:
        """Ten hex digits of the identity without the seed."""
        values = self.identity()
        del values["seed"]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return (
            Path(self.out) if self.out else Path("runs") / f"{self.name or self.hash}-s{self.seed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig:
    """Settings of ``stratified-grpo sft``."""

    episodes: Path
    """JSON lines of episode records to imitate."""
    model: str
    """Folder or hub name of the model to start from."""
    out: Path
    """Folder to write the trained model to (Hugging Face format)."""
    steps: int = 1000
    """Optimizer steps."""
    batch: int = 64
    """Episodes per step."""
    lr: float = 1e-3
    """Peak learning rate; falls to a tenth by a cosine after warm-up."""
    warmup: int = 100
    """Steps of linear warm-up."""
    weight_decay: float = 0.1
    """AdamW weight decay on matrices."""
    save_every: int = 0
    """Write the model to ``out`` every so many steps too; 0: only at the end."""
    all_tokens: bool = False
    """Learn prompts and observations too: pretraining on the episodes' text, for a model that
    cannot yet read and copy."""
    min_reward: float = -math.inf
    """Episodes with a lower reward are left out."""
    micro_batch_tokens: int = 8192
    """Padded tokens in one forward and backward pass."""
    seed: int = 0
    """Seed of the order of episodes."""
    threads: int = 0
    """CPU threads; 0: all."""
    device: str = "cpu"
    """Torch device."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be right, with one sentence each."""
        _at_least(self, dict.fromkeys(("steps", "batch", "micro_batch_tokens"), 1))
        _at_least(self, dict.fromkeys(("warmup", "save_every", "lr", "weight_decay", "threads"), 0))
        _finite(self, "lr", "weight_decay")


def _at_least(config: TrainConfig | SftConfig, least: dict[str, int]) -> None:
    for name, bound in least.items():
        if not getattr(config, name) >= bound:  # so that NaN is refused, too
            raise ConfigError(f"{name} must be at least {bound}, got {getattr(config, name)}")


def _finite(config: TrainConfig | SftConfig, *names: str) -> None:
    for name in names:
        if not math.isfinite(getattr(config, name)):
            raise ConfigError(f"{name} must be a finite number, got {getattr(config, name)}")


def load_config(source: str) -> TrainConfig:
    """Read a TOML file, or a ready-made one by name.

    Args:
        source: path of a TOML file, or the name of a file in ``stratified_grpo/configs`` without
            its ending, such as ``demo``.

    Raises:
        ConfigError: there is no such file, it is not TOML, or it holds an unknown key.
    """
    path = Path(source)
    ready = resources.files("stratified_grpo") / "configs"
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"no config file {source!r}")
        text = _text(path)
    elif (ready / f"{source}.toml").is_file():
        text = (ready / f"{source}.toml").read_text(encoding="utf-8")
    else:
        names = sorted(entry.name[:-5] for entry in ready.iterdir() if entry.name.endswith(".toml"))
        raise ConfigError(f"no ready-made config {source!r}; there are {', '.join(names)}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config {source!r} is not TOML: {error}") from error
    kinds = {field.name: str(field.type) for field in dataclasses.fields(TrainConfig)}
    unknown = sorted(set(values) - set(kinds))
    if unknown:
        raise ConfigError(f"config {source!r} has unknown keys: {', '.join(unknown)}")
    return TrainConfig(**{key: _typed(key, value, kinds[key]) for key, value in values.items()})


def _text(path: Path) -> str:
    try:  # the status is the package's own error
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"config file '{path}' cannot be read as UTF-8 text ({error}); save it as UTF-8"
        ) from error


def _typed(key: str, value: Any, kind: str) -> Any:
    """A TOML value as its field's type; whole numbers are numbers, and alpha may be one."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "float" and number:
        return float(value)
    if key == "alpha" and number:
        return str(value)
    if type(value).__name__ != kind:
        raise ConfigError(f"{key} must be of type {kind}, got {value!r}")
    return value
