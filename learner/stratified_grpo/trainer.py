"""The training loop: rollouts, update, log, checkpoint, again; resumable at every checkpoint.

Deterministic on a CPU with the Transformers sampler and an in-process search: randomness is named
by (seed, step, group, member, turn) and questions by the data cursor, so ``train 4`` equals
``train 2, kill, resume 2`` bit for bit. Elsewhere every group is trained on exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from stratified_grpo.checkpoint import (
    RunState,
    latest_checkpoint,
    read_state,
    restore_optimizer,
    save_checkpoint,
)
from stratified_grpo.config import TrainConfig
from stratified_grpo.demo import resolve_model
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.errors import ConfigError, TrainingError
from stratified_grpo.evaluate import Evaluation, evaluate
from stratified_grpo.optimizer import Optimizer, OptimizerSettings
from stratified_grpo.policy import Policy, load_policy
from stratified_grpo.rollout import RolloutSettings, collect
from stratified_grpo.run_folder import MANIFEST, clear, differences, refuse_foreign, run_identity
from stratified_grpo.run_lock import RunLock
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.samplers.self_test import check_sampler
from stratified_grpo.schedules import parse_schedule
from stratified_grpo.tracking import MetricsLog, write_episodes, write_manifest
from stratified_grpo.types import Group
from stratified_grpo.update import UpdateSettings, update

_SEED_STRIDE = 1 << 20
"""Questions a run may ask before it comes to those of the next seed."""


class Watcher(Protocol):
    """Who is told how the run goes (a live display, a test)."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """An evaluation at the given number of updates."""
        ...

    def updated(self, step: int, metrics: dict[str, float]) -> None:
        """An update, its number counted from 1."""
        ...


class Trainer:
    """One run in one folder.

    Args:
        config: settings; the run's folder, if it exists, must hold the same identity.
        watcher: told of updates and evaluations.

    Raises:
        ConfigError: the folder holds another config's run, or a setting cannot be used.
    """

    def __init__(self, config: TrainConfig, watcher: Watcher) -> None:
        self.config = config
        self.watcher = watcher
        self.folder = config.folder
        self.checkpoints = self.folder / "checkpoints"
        self.metrics = MetricsLog(self.folder / "metrics.jsonl")
        self.lock = RunLock(self.folder)
        refuse_foreign(self.folder)
        if self.folder.exists():  # a folder is made only once the run can start
            self.lock.acquire()
        try:
            self._start()
        except BaseException:
            self.lock.release()
            raise
        if self.finished:
            self.lock.release()

    def _start(self) -> None:
        config = self.config
        threads = set_threads(config.threads)
        self.identity = run_identity(config, "train")
        resumed = None if config.fresh else self._find()
        self.state = read_state(resumed) if resumed else RunState(step=0, cursor=0)
        if self.finished:
            return
        torch.manual_seed(config.seed)
        source = resumed or resolve_model(config.model)
        self.policy = load_policy(source, device=config.device, dtype=config.dtype)
        _check_window(self.policy, config)
        self.optimizer = Optimizer(self.policy.model, optimizer_settings(config))
        self.reference = self._load_reference()
        self.pool = EnvironmentPool(
            config.env_id, config.environment(config.questions), stratum=config.stratum
        )
        available = self.pool.check()
        self.eval_pool = EnvironmentPool(
            config.env_id, config.environment(config.eval_questions), stratum=config.stratum
        )
        if config.eval_questions:
            self.eval_pool.check()
        self.sampler = HFSampler(self.policy)
        check_sampler(self.policy, self.sampler)
        if resumed:
            restore_optimizer(resumed, self.optimizer)
        else:
            self.state = RunState(step=0, cursor=first_cursor(config.seed, available))
        self.lock.acquire()
        if config.fresh:  # only now that the new run can start
            clear(self.folder)
        elif latest_checkpoint(self.checkpoints) != resumed:
            raise ConfigError(
                f"another process began a run in {self.folder} meanwhile; the same command again "
                "goes on from there"
            )
        write_manifest(self.folder / MANIFEST, self.identity, {"threads": threads})
        self.metrics.truncate(self.state.step)

    @property
    def finished(self) -> bool:
        """Whether all updates are done."""
        return self.state.step >= self.config.updates

    def run(self) -> None:
        """Train to the end; other processes are kept out of the folder until then."""
        try:
            self._run()
        finally:
            self.lock.release()

    def _run(self) -> None:
        config = self.config
        if latest_checkpoint(self.checkpoints) is None:
            self._evaluate()
            self._save(())
        while not self.finished:
            consumed = self._update()
            step = self.state.step
            last = step == config.updates
            if last or (config.eval_every and step % config.eval_every == 0):
                self._evaluate()
            if last or step % config.save_every == 0:
                self._save(consumed)
        self.pool.close()
        self.eval_pool.close()

    def _update(self) -> tuple[int, ...]:
        config, step = self.config, self.state.step
        first = self.state.cursor
        cursors = tuple(range(first, first + config.prompts_per_update))
        began = time.perf_counter()
        self.sampler.update_weights(step)
        groups = collect(
            self.pool,
            self.sampler,
            self.policy.codec,
            rollout_settings(config),
            step=step,
            cursors=cursors,
        )
        sampled = time.perf_counter()
        _check_valid(groups, config.max_invalid)
        alpha = parse_schedule(config.alpha)(step)
        metrics = update(
            self.policy,
            self.optimizer,
            groups,
            alpha=alpha,
            settings=update_settings(config),
            reference=self.reference,
        )
        metrics["time/rollout_s"] = sampled - began
        metrics["time/update_s"] = time.perf_counter() - sampled
        self._log(step + 1, metrics, groups)
        totals = {"skipped_steps": metrics["skipped_steps"], "invalid": metrics["invalid"]}
        for name, value in self.state.totals.items():
            totals[name] = totals.get(name, 0.0) + value
        self.state = RunState(step=step + 1, cursor=cursors[-1] + 1, totals=totals)
        return cursors

    def _log(self, step: int, metrics: dict[str, float], groups: Sequence[Group]) -> None:
        if self.config.save_episodes:
            records = (rollout.record for group in groups for rollout in group.rollouts)
            write_episodes(self.folder / "episodes" / f"step_{step}.jsonl", records)
        self.metrics.append(step, metrics)
        self.watcher.updated(step, metrics)

    def _evaluate(self) -> None:
        config = self.config
        if not config.eval_questions:
            return
        evaluation = evaluate(
            self.eval_pool,
            self.sampler,
            self.policy.codec,
            rollout_settings(config),
            limit=config.eval_limit,
        )
        evaluation.require_valid(config.max_invalid)
        evaluation.append(self.folder / "eval.jsonl", self.state.step)
        self.watcher.evaluated(self.state.step, evaluation)

    def _save(self, consumed: tuple[int, ...]) -> None:
        state = RunState(
            step=self.state.step,
            cursor=self.state.cursor,
            consumed=consumed,
            identity=self.identity,
            totals=self.state.totals,
        )
        keep = self.config.keep_checkpoints
        save_checkpoint(self.checkpoints, self.policy, self.optimizer, state, keep=keep)

    def _find(self) -> Path | None:
        """The checkpoint to resume from; refuses another config's run."""
        checkpoint = latest_checkpoint(self.checkpoints)
        if checkpoint is None:
            return None
        differ = differences(read_state(checkpoint).identity, self.identity)
        if differ:
            raise ConfigError(
                f"{self.folder} holds a run of another config; different: {differ}. "
                "Give another --out, or --fresh to delete it"
            )
        return checkpoint

    def _load_reference(self) -> Policy | None:
        if not self.config.kl_coef:
            return None
        reference = load_policy(
            resolve_model(self.config.model), device=self.config.device, dtype=self.config.dtype
        )
        reference.model.requires_grad_(False)
        return reference


def first_cursor(seed: int, num_questions: int) -> int:
    """Where the data cursor of a run starts.

    Runs of different seeds walk different epochs of the environment's order, at least 2**20
    questions apart, and each starts with a whole epoch.

    Args:
        seed: the run's seed, at least 0; seed 0 starts at cursor 0.
        num_questions: questions in an epoch; 0 where the environment does not say.
    """
    size = max(1, num_questions)
    return seed * -(-_SEED_STRIDE // size) * size


def set_threads(threads: int) -> int:
    """Fix the number of CPU threads (results are bit-equal for equal numbers); returns it."""
    if threads > 0:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def _check_window(policy: Policy, config: TrainConfig) -> None:
    window = policy.max_positions
    if config.max_episode_tokens > window:
        raise ConfigError(
            f"max_episode_tokens is {config.max_episode_tokens}, but {config.model} has positions "
            f"for {window} tokens; give at most that many"
        )


def _check_valid(groups: Sequence[Group], limit: float) -> None:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    invalid = [rollout.status for rollout in rollouts if not rollout.usable]
    if len(invalid) > limit * len(rollouts):
        raise TrainingError(
            f"{len(invalid)} of {len(rollouts)} rollouts of one update are invalid "
            f"({', '.join(sorted(set(invalid)))}), more than max_invalid={limit} allows; "
            "the last checkpoint is intact"
        )


def rollout_settings(config: TrainConfig) -> RolloutSettings:
    """The part of a config that rollouts read."""
    return RolloutSettings(
        group_size=config.group_size,
        temperature=config.temperature,
        max_turn_tokens=config.max_turn_tokens,
        max_episode_tokens=config.max_episode_tokens,
        seed=config.seed,
    )


def update_settings(config: TrainConfig) -> UpdateSettings:
    """The part of a config that the update reads."""
    return UpdateSettings(
        eps=config.eps,
        ddof=config.ddof,
        scale=config.scale,
        min_stratum=config.min_stratum,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        kl_coef=config.kl_coef,
        loss_agg=config.loss_agg,
        loss_constant=config.max_episode_tokens,
        temperature=config.temperature,
        minibatches=config.minibatches,
        micro_batch_tokens=config.micro_batch_tokens,
    )


def optimizer_settings(config: TrainConfig) -> OptimizerSettings:
    """The part of a config that the optimizer reads."""
    return OptimizerSettings(
        lr=config.lr,
        warmup=config.warmup,
        weight_decay=config.weight_decay,
        betas=(config.beta1, config.beta2),
        max_grad_norm=config.max_grad_norm,
        nonfinite_limit=config.nonfinite_limit,
    )
