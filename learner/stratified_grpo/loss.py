"""The clipped surrogate and its normalisers, on flat tensors of trainable tokens.

Only trainable tokens ever reach these functions, so masked ones cannot leak into any term. Every
token carries its weight, with the global denominator folded in: the losses of micro-batches add up
to the loss of the batch, whatever the split, padding or order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

AGGREGATIONS = ("token", "sequence", "constant")
"""``token``: mean over all trainable tokens of the batch. ``sequence``: mean over rows of the mean
over a row's tokens. ``constant``: sum over tokens divided by rows times a constant (Dr. GRPO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """A weighted loss and the sums its diagnostics come from; all add over micro-batches."""

    loss: Tensor
    """Scalar, differentiable."""
    clipped: float
    """Weighted share of tokens whose ratio was clipped."""
    behaviour_kl: float
    """Weighted mean of old minus new log-probability (k1 estimate of KL(old, new))."""
    reference_kl: float
    """Weighted mean of the k3 estimate of KL(new, reference); 0 without a reference."""
    negative_logprob: float
    """Weighted mean of minus the new log-probability, a one-sample estimate of the entropy."""


def row_weights(lengths: Sequence[int], aggregation: str, constant: int = 1) -> list[float]:
    """Weight of each token of each row, so that weighted sums are the aggregation.

    Args:
        lengths: [n] trainable tokens of every row of the batch that counts in the denominator.
        aggregation: one of `AGGREGATIONS`.
        constant: tokens a row is divided by when aggregating by ``constant``.

    Returns:
        [n] weights, the same for all tokens of a row; 0 for a row without trainable tokens.
    """
    rows = sum(1 for length in lengths if length)
    if aggregation == "token":
        total = sum(lengths)
        return [1.0 / total if length else 0.0 for length in lengths]
    if aggregation == "sequence":
        return [1.0 / (rows * length) if length else 0.0 for length in lengths]
    if aggregation == "constant":
        return [1.0 / (rows * constant) if length else 0.0 for length in lengths]
    raise ValueError(f"loss_agg must be one of {', '.join(AGGREGATIONS)}, got {aggregation!r}")


def surrogate_loss(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    reference: Tensor | None = None,
    kl_coef: float = 0.0,
) -> LossTerms:
    """PPO's clipped surrogate with an optional KL penalty (k3, as in GRPO).

    Args:
        new: [t] log-probabilities under the policy being trained, differentiable.
        old: [t] log-probabilities under the policy that sampled.
        advantages: [t] the row's advantage at each of its tokens.
        weights: [t] from `row_weights`.
        clip_low: ratios below ``1 - clip_low`` are clipped where that lowers the objective.
        clip_high: ratios above ``1 + clip_high`` likewise.
        reference: [t] log-probabilities under the reference policy, or None.
        kl_coef: weight of the KL penalty.
    """
    difference = new - old
    ratio = difference.exp()
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    objective = torch.minimum(ratio * advantages, bounded * advantages)
    loss = -(weights * objective).sum()
    reference_kl = 0.0
    if reference is not None:
        gap = reference - new
        penalty = (weights * (gap.exp() - gap - 1.0)).sum()
        reference_kl = float(penalty.detach())
        loss = loss + kl_coef * penalty
    with torch.no_grad():
        clipped = (ratio * advantages > bounded * advantages).float()
        return LossTerms(
            loss=loss,
            clipped=float((weights * clipped).sum()),
            behaviour_kl=float(-(weights * difference).sum()),
            reference_kl=reference_kl,
            negative_logprob=float(-(weights * new).sum()),
        )
