"""Supervised imitation of recorded episodes: the usual warm start before reinforcement learning.

Only model segments are learned (unless ``all_tokens``); prompts and observations are context. The
same token rows as in reinforcement learning: what imitation teaches is what rollouts will ask for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

from stratified_grpo.checkpoint import save_policy
from stratified_grpo.config import SftConfig
from stratified_grpo.errors import ConfigError
from stratified_grpo.optimizer import Optimizer, OptimizerSettings
from stratified_grpo.packing import micro_batches
from stratified_grpo.policy import Policy, token_logprobs
from stratified_grpo.records import read_rollouts
from stratified_grpo.types import TokenRow


def imitate(
    policy: Policy, config: SftConfig, report: Callable[[int, float], None] = lambda *_: None
) -> float:
    """Train on the episodes of a file, change the policy in place and write it to ``out``.

    Args:
        policy: the model to train.
        config: settings.
        report: called with step (from 1) and loss in nats per trained token.

    Returns:
        Mean loss over the last tenth of the steps.

    Raises:
        ConfigError: no episode passes ``min_reward``.
    """
    rows = [
        rollout.tokens
        for rollout in read_rollouts(config.episodes, policy)
        if rollout.usable and (rollout.reward or 0.0) >= config.min_reward
    ]
    if not rows:
        raise ConfigError(
            f"no valid episode in {config.episodes} has a reward of at least {config.min_reward}"
        )
    optimizer = Optimizer(
        policy.model,
        OptimizerSettings(
            lr=config.lr,
            warmup=config.warmup,
            weight_decay=config.weight_decay,
            betas=(0.9, 0.98),
            max_grad_norm=1.0,
            nonfinite_limit=5,
        ),
        decay=lambda step: (
            0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / config.steps)))
        ),
    )
    if config.all_tokens:
        for row in rows:
            row.mask = [0, *[1] * (len(row) - 1)]
    losses: list[float] = []
    order = _epochs(len(rows), config.seed)
    for step in range(1, config.steps + 1):
        batch = [rows[next(order)] for _ in range(config.batch)]
        losses.append(_step(policy, optimizer, batch, config.micro_batch_tokens))
        report(step, losses[-1])
        if step == config.steps or (config.save_every and step % config.save_every == 0):
            save_policy(policy, config.out)
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def _step(policy: Policy, optimizer: Optimizer, rows: Sequence[TokenRow], budget: int) -> float:
    total = sum(row.num_trainable for row in rows)
    loss = 0.0
    for batch in micro_batches([len(row) for row in rows], budget):
        part = [rows[index] for index in batch]
        logprobs = token_logprobs(policy, [r.ids for r in part], [r.mask for r in part])
        negative = -logprobs.sum() / total
        negative.backward()  # type: ignore[no-untyped-call]
        loss += float(negative.detach())
    optimizer.step()
    return loss


def _epochs(count: int, seed: int) -> Iterator[int]:
    """Endless indices, every epoch a fresh permutation."""
    generator = random.Random(seed)
    while True:
        order = list(range(count))
        generator.shuffle(order)
        yield from order
