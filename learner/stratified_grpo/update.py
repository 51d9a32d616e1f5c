"""One update: groups -> strata -> advantages -> batch -> loss -> step.

The training loop and ``stratified-grpo update`` both come through here; where the groups came from
(this process, another rollout system) makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stratified_grpo.advantages import Advantages, stratified_advantages
from stratified_grpo.diagnostics import diagnose
from stratified_grpo.errors import TrainingError
from stratified_grpo.loss import row_weights, surrogate_loss
from stratified_grpo.optimizer import Optimizer
from stratified_grpo.packing import micro_batches
from stratified_grpo.policy import Policy, token_logprobs
from stratified_grpo.types import Group, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """The estimator and the loss."""

    eps: float = 1e-6
    """Added to standard deviations."""
    ddof: int = 0
    """0: population, 1: sample standard deviation."""
    scale: bool = True
    """False: advantages are not divided by standard deviations."""
    min_stratum: int = 2
    """Strata with fewer valid rows have no advantage of their own."""
    clip_low: float = 0.2
    """See `surrogate_loss`."""
    clip_high: float = 0.2
    """See `surrogate_loss`."""
    kl_coef: float = 0.0
    """Weight of the KL penalty to the reference; 0 needs no reference."""
    loss_agg: str = "token"
    """See `stratified_grpo.loss.AGGREGATIONS`."""
    loss_constant: int = 1
    """Divisor of ``constant`` aggregation, in tokens."""
    temperature: float = 1.0
    """The rollouts' temperature: log-probabilities are taken at the same."""
    minibatches: int = 1
    """Optimizer steps per update; rollouts are dealt to them by whole groups."""
    micro_batch_tokens: int = 8192
    """Padded tokens in one forward and backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One rollout on its way to the loss."""

    rollout: Rollout
    advantage: float
    weight: float


def update(
    policy: Policy,
    optimizer: Optimizer,
    groups: Sequence[Group],
    *,
    alpha: float,
    settings: UpdateSettings,
    reference: Policy | None = None,
) -> dict[str, float]:
    """Train the policy on groups of rollouts.

    Args:
        policy: trained in place.
        optimizer: the policy's.
        groups: whole groups; invalid rollouts in them leave statistics and loss.
        alpha: blend of SAN (1) and GRPO (0) advantages.
        settings: estimator and loss.
        reference: frozen policy of the KL penalty; needed when ``kl_coef`` is not 0.

    Returns:
        Metrics of the update by name.

    Raises:
        TrainingError: no rollout of the update can be trained on.
        ValueError: ``kl_coef`` without a reference.
    """
    if settings.kl_coef and reference is None:
        raise ValueError(f"kl_coef={settings.kl_coef} needs a reference policy")
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    advantages = estimate(rollouts, alpha=alpha, settings=settings)
    metrics = {"alpha": alpha, **_reward_metrics(rollouts, advantages)}
    if not advantages.valid.any():
        raise TrainingError(
            f"none of the {len(rollouts)} rollouts of this update is valid; "
            f"they ended with: {', '.join(sorted({r.status for r in rollouts}))}"
        )
    sizes = [len(group.rollouts) for group in groups]
    parts: list[dict[str, float]] = []
    for chosen in _deal(sizes, settings.minibatches):
        rows = _weigh(
            [(rollouts[i], float(advantages.values[i])) for i in chosen if advantages.valid[i]],
            settings,
        )
        parts.append(_step(policy, optimizer, rows, settings, reference))
    for name in parts[0]:
        metrics[name] = float(np.mean([part[name] for part in parts]))
    metrics["nonfinite_rows"] = sum(part["nonfinite_rows"] for part in parts)
    metrics["skipped_steps"] = float(sum(not np.isfinite(part["grad_norm"]) for part in parts))
    return metrics


def estimate(rollouts: Sequence[Rollout], *, alpha: float, settings: UpdateSettings) -> Advantages:
    """Advantages of rollouts in any order; unusable rollouts are invalid."""
    return stratified_advantages(
        _rewards(rollouts),
        [r.group for r in rollouts],
        [r.stratum for r in rollouts],
        alpha=alpha,
        eps=settings.eps,
        ddof=settings.ddof,
        scale=settings.scale,
        valid=[r.usable for r in rollouts],
        min_stratum=settings.min_stratum,
    )


def _rewards(rollouts: Sequence[Rollout]) -> list[float]:
    """[n] rewards; NaN where the rollout is unusable, an infinite reward included."""
    return [r.reward if r.usable and r.reward is not None else float("nan") for r in rollouts]


def _reward_metrics(rollouts: Sequence[Rollout], advantages: Advantages) -> dict[str, float]:
    valid = advantages.valid
    good = [r for r, ok in zip(rollouts, valid, strict=True) if ok]
    metrics = {
        "rollouts": float(len(rollouts)),
        "invalid": float(len(rollouts) - len(good)),
        "tokens": float(sum(len(r.tokens) for r in rollouts)),
        "policy_tokens": float(sum(r.tokens.num_trainable for r in rollouts)),
        "reward": float(np.mean([r.reward for r in good])) if good else float("nan"),
    }
    for name in sorted(set().union(*(r.metrics for r in good))) if good else []:
        metrics[f"episode/{name}"] = float(np.mean([r.metrics.get(name, 0.0) for r in good]))
    metrics.update(
        diagnose(
            advantages,
            _rewards(rollouts),
            strata=[r.stratum for r in rollouts],
            tokens=np.array([r.tokens.num_trainable for r in rollouts]),
        )
    )
    return metrics


def _deal(sizes: Sequence[int], minibatches: int) -> list[list[int]]:
    """Row indices of each minibatch; groups stay whole and go round robin."""
    hands: list[list[int]] = [[] for _ in range(min(minibatches, len(sizes)))]
    first = 0
    for number, size in enumerate(sizes):
        hands[number % len(hands)].extend(range(first, first + size))
        first += size
    return hands


def _weigh(rows: Sequence[tuple[Rollout, float]], settings: UpdateSettings) -> list[_Row]:
    lengths = [rollout.tokens.num_trainable for rollout, _ in rows]
    weights = row_weights(lengths, settings.loss_agg, settings.loss_constant) if rows else []
    return [
        _Row(rollout=rollout, advantage=advantage, weight=weight)
        for (rollout, advantage), weight in zip(rows, weights, strict=True)
    ]


def _step(
    policy: Policy,
    optimizer: Optimizer,
    rows: Sequence[_Row],
    settings: UpdateSettings,
    reference: Policy | None,
) -> dict[str, float]:
    """One optimizer step over rows whose weights already hold the global denominator."""
    # Without a KL term a row of advantage 0 has gradient exactly 0: it counts in the denominator
    # (its weight was dealt above) but need not be run.
    needed = [row for row in rows if row.advantage != 0.0 or settings.kl_coef]
    sums = dict.fromkeys(("loss", "clip_share", "kl_behaviour", "kl_reference", "entropy"), 0.0)
    sums["nonfinite_rows"] = 0.0
    lr = optimizer.lr
    for batch in micro_batches(
        [len(r.rollout.tokens) for r in needed], settings.micro_batch_tokens
    ):
        _accumulate(policy, [needed[i] for i in batch], settings, reference, sums)
    covered = sum(row.weight * row.rollout.tokens.num_trainable for row in needed)
    for name in ("clip_share", "kl_behaviour", "kl_reference", "entropy"):
        sums[name] = sums[name] / covered if covered else 0.0
    sums["grad_norm"] = 0.0
    if needed:  # rows that are all left out leave nothing to step on
        lost = sums["nonfinite_rows"] == len(needed)
        sums["grad_norm"] = optimizer.skip() if lost else optimizer.step()
    sums["lr"] = lr
    sums["trained_rows"] = float(len(needed))
    return sums


def _accumulate(
    policy: Policy,
    rows: Sequence[_Row],
    settings: UpdateSettings,
    reference: Policy | None,
    sums: dict[str, float],
) -> None:
    """Forward and backward on one micro-batch; adds to gradients and sums."""
    ids = [row.rollout.tokens.ids for row in rows]
    masks = [row.rollout.tokens.mask for row in rows]
    new = token_logprobs(policy, ids, masks, settings.temperature)
    counts = torch.tensor([sum(mask) for mask in masks])
    old = _old_logprobs(rows, new)
    weights = torch.tensor([row.weight for row in rows]).repeat_interleave(counts)
    values = torch.tensor([row.advantage for row in rows]).repeat_interleave(counts)
    weights, values = weights.to(new), values.to(new)
    finite = _finite_rows(new, old, counts)
    sums["nonfinite_rows"] += float((~finite).sum())
    keep = finite.repeat_interleave(counts).to(new.device)
    if not keep.any():
        return
    ref = None
    if reference is not None and settings.kl_coef:
        with torch.no_grad():
            ref = token_logprobs(reference, ids, masks, settings.temperature)[keep]
    terms = surrogate_loss(
        new[keep],
        old[keep],
        values[keep],
        weights[keep],
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        reference=ref,
        kl_coef=settings.kl_coef,
    )
    terms.loss.backward()  # type: ignore[no-untyped-call]
    sums["loss"] += float(terms.loss.detach())
    sums["clip_share"] += terms.clipped
    sums["kl_behaviour"] += terms.behaviour_kl
    sums["kl_reference"] += terms.reference_kl
    sums["entropy"] += terms.negative_logprob


def _old_logprobs(rows: Sequence[_Row], new: Tensor) -> Tensor:
    """The sampler's log-probabilities."""
    values = [
        logprob
        for row in rows
        for logprob, mask in zip(row.rollout.tokens.logprobs, row.rollout.tokens.mask, strict=True)
        if mask
    ]
    return torch.tensor(values).to(new)


def _finite_rows(new: Tensor, old: Tensor, counts: Tensor) -> Tensor:
    """[rows] True where every log-probability of the row is finite."""
    bad = (~torch.isfinite(new.detach()) | ~torch.isfinite(old)).cpu()
    index = torch.arange(len(counts)).repeat_interleave(counts)
    return torch.zeros(len(counts)).index_add(0, index, bad.float()) == 0
