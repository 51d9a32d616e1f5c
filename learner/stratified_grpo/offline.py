"""``stratified-grpo update``: the training loop's update, on recorded episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stratified_grpo.checkpoint import RunState, save_checkpoint
from stratified_grpo.config import TrainConfig
from stratified_grpo.demo import resolve_model
from stratified_grpo.errors import ConfigError
from stratified_grpo.optimizer import Optimizer
from stratified_grpo.policy import load_policy
from stratified_grpo.records import fill_logprobs, grouped, read_rollouts
from stratified_grpo.run_folder import MANIFEST, run_identity
from stratified_grpo.schedules import parse_schedule
from stratified_grpo.tracking import MetricsLog, write_manifest
from stratified_grpo.trainer import optimizer_settings, set_threads, update_settings
from stratified_grpo.types import Rollout
from stratified_grpo.update import update


def update_from_records(
    files: Sequence[Path],
    config: TrainConfig,
    report: Callable[[int, dict[str, float]], None] = lambda *_: None,
) -> Path:
    """Train once over the groups of the files, ``prompts_per_update`` groups at a time.

    Args:
        files: JSON lines of episode records; rollouts of a group may lie in several files.
        config: model, estimator, loss and optimizer settings; ``out`` is where the run goes.
        report: called with the number of the update (from 1) and its metrics.

    Returns:
        The checkpoint's folder; it loads with ``from_pretrained``.

    Raises:
        ConfigError: the folder is not empty.
        EpisodeError: a record cannot be trained on, or the groups give nothing to compare.
    """
    folder = Path(config.out)
    if folder.is_file() or (folder.exists() and any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; give another --out")
    set_threads(config.threads)
    identity = run_identity(config, "update")
    policy = load_policy(resolve_model(config.model), device=config.device, dtype=config.dtype)
    rollouts: list[Rollout] = []
    for file in files:
        rollouts.extend(read_rollouts(file, policy))
    groups = grouped(rollouts)
    optimizer = Optimizer(policy.model, optimizer_settings(config))
    reference = None
    if config.kl_coef:
        reference = load_policy(
            resolve_model(config.model), device=config.device, dtype=config.dtype
        )
    settings = update_settings(config)
    metrics: list[dict[str, float]] = []
    for first in range(0, len(groups), config.prompts_per_update):
        part = fill_logprobs(
            policy,
            groups[first : first + config.prompts_per_update],
            temperature=config.temperature,
            budget=config.micro_batch_tokens,
        )
        alpha = parse_schedule(config.alpha)(len(metrics))
        metrics.append(
            update(policy, optimizer, part, alpha=alpha, settings=settings, reference=reference)
        )
        report(len(metrics), metrics[-1])
    state = RunState(step=len(metrics), cursor=0, identity=identity)
    written = save_checkpoint(folder / "checkpoints", policy, optimizer, state, keep=1)
    log = MetricsLog(folder / "metrics.jsonl")
    for step, values in enumerate(metrics, start=1):
        log.append(step, values)
    write_manifest(folder / MANIFEST, identity, {"episodes": [file.name for file in files]})
    return written
