"""Stratified GRPO advantages: GRPO, SAN and their blend in one numpy function.

Rollouts of one prompt differ in structure, and so in reward; one baseline for all of them compares
apples with oranges. Stratified advantage normalisation (SAN, arXiv 2510.06214) standardises inside
strata of equal structure; a blend with the whole group's estimate (GN, plain GRPO) keeps some
signal about which structure is better. Strata are formed inside each prompt group.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stratified_grpo.strata import Codes, Keys, compact, dense_codes

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

MAX_REWARD = 1e140
"""Largest accepted size of a reward; squares of larger ones would overflow."""
TINY = 1e-140
"""Differences of rewards below this size have squares that would vanish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """Advantages of ``n`` rollouts with the statistics they came from.

    A *stratum* here is one structural key inside one prompt group, so the same key in two groups
    makes two strata. Codes are dense, and what they stand for is told by the rows that carry them.
    """

    values: Floats
    """``alpha * san + (1 - alpha) * gn``, shape ``[n]``; 0 for invalid rows."""
    san: Floats
    """Advantage inside the stratum, shape ``[n]``; 0 in constant and too small strata."""
    gn: Floats
    """Advantage inside the group (plain GRPO), shape ``[n]``; 0 in constant groups."""
    valid: Flags
    """Rows that count: not masked, and with a reward; shape ``[n]``."""
    group_index: Codes
    """Group of each row, ``0 .. len(group_count)-1``, shape ``[n]``; invalid rows keep theirs."""
    stratum_index: Codes
    """Stratum of each row, ``0 .. len(count)-1``, shape ``[n]``; invalid rows keep theirs."""
    count: Codes
    """Valid rows of each stratum; may be 0."""
    mean: Floats
    """Mean reward of each stratum; 0 where it has no valid row."""
    std: Floats
    """Standard deviation of each stratum, with the ``ddof`` asked for; 0 where it is constant."""
    group_count: Codes
    """Valid rows of each group; may be 0."""
    group_mean: Floats
    """Mean reward of each group; 0 where it has no valid row."""
    group_std: Floats
    """Standard deviation of each group, with the ``ddof`` asked for; 0 where it is constant."""


class AdvantageEstimator(Protocol):
    """What a trainer asks of an advantage estimator; bind other settings with ``partial``."""

    def __call__(
        self,
        rewards: npt.ArrayLike,
        groups: Keys,
        strata: Keys,
        *,
        alpha: float = ...,
        valid: npt.ArrayLike | None = ...,
    ) -> Advantages:
        """Return one advantage a row, for rows in any order."""
        ...


def stratified_advantages(
    rewards: npt.ArrayLike,
    groups: Keys,
    strata: Keys,
    *,
    alpha: float = 0.8,
    eps: float = 1e-6,
    ddof: int = 0,
    scale: bool = True,
    valid: npt.ArrayLike | None = None,
    min_stratum: int = 2,
) -> Advantages:
    """Blend the advantage inside a stratum with the one inside its prompt group.

    With population statistics of the stratum ``k`` and of the group:
    ``san = (r - mean_k) / (std_k + eps)``, ``gn = (r - mean) / (std + eps)`` and
    ``values = alpha * san + (1 - alpha) * gn``. ``alpha=0`` is GRPO, ``alpha=1`` is SAN.

    A constant stratum or group (max equals min; its rounded std may differ from 0) has advantage 0,
    and so has a stratum with fewer than ``min_stratum`` valid rows: the blend is then
    ``(1 - alpha) * gn``. Invalid rows leave all statistics and get 0.

    Source: arXiv 2510.06214. Its ddof, eps and rule for singleton strata are not known to us; those
    here are ours. Runs in O(n), or O(n log n) for integer keys of a wide range.

    Args:
        rewards: One number a row, shape ``[n]``; NaN or None is unscored and makes a row invalid.
        groups: The prompt of each row, shape ``[n]``: integers (fast) or any hashable keys.
        strata: The structural key of each row, shape ``[n]``: integers (fast) or any hashable keys.
        alpha: Weight of ``san``, in ``[0, 1]``.
        eps: Added to each standard deviation; at least 0, and 0 is fine.
        ddof: 0 for the population standard deviation, 1 for the sample one.
        scale: False leaves the differences from the means undivided.
        valid: False for rows that must not count, shape ``[n]``; default all valid.
        min_stratum: Valid rows a stratum needs for a ``san`` of its own; at least 1.

    Returns:
        The advantages and their statistics, in the order of the rows.

    Raises:
        ValueError: An argument is out of range, or the lengths differ.
    """
    _check_settings(alpha, eps, ddof, min_stratum)
    reward = _as_rewards(rewards)
    group_index, num_groups = dense_codes(groups, "groups")
    key_index, num_keys = dense_codes(strata, "strata")
    _check_lengths(len(reward), groups=len(group_index), strata=len(key_index))
    stratum_index, num_strata = compact(group_index * max(num_keys, 1) + key_index)
    usable = _usable(reward, valid)
    rows = slice(None) if usable.all() else np.flatnonzero(usable)
    san, gn = np.zeros(len(reward)), np.zeros(len(reward))
    inside = _Cells.of(reward[rows], stratum_index[rows], num_strata, ddof)
    san[rows] = inside.advantages(eps=eps, scale=scale, min_count=min_stratum)
    whole = _Cells.of(reward[rows], group_index[rows], num_groups, ddof)
    gn[rows] = whole.advantages(eps=eps, scale=scale, min_count=1)
    return Advantages(
        values=alpha * san + (1.0 - alpha) * gn,
        san=san,
        gn=gn,
        valid=usable,
        group_index=group_index,
        stratum_index=stratum_index,
        count=inside.count,
        mean=inside.mean,
        std=inside.std_in_units * inside.unit,
        group_count=whole.count,
        group_mean=whole.mean,
        group_std=whole.std_in_units * whole.unit,
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """Two-pass statistics of rows in cells, measured from one member of the cell.

    Seen from a member, a constant cell has deviations of exactly 0 and a large common offset costs
    no digits. ``unit`` is 1 except where squares would vanish.
    """

    codes: Codes
    deviation: Floats
    count: Codes
    mean: Floats
    std_in_units: Floats
    unit: Floats

    @classmethod
    def of(cls, rewards: Floats, codes: Codes, num: int, ddof: int) -> _Cells:
        count = np.bincount(codes, minlength=num)
        anchor = np.zeros(num)
        anchor[codes] = rewards
        offset = rewards - anchor[codes]
        unit = _units(offset, codes, num)
        if unit is not None:
            offset /= unit[codes]
        shift = np.bincount(codes, offset, minlength=num) / np.maximum(count, 1)
        offset -= shift[codes]
        squares = np.bincount(codes, offset * offset, minlength=num)
        std = np.sqrt(squares / np.maximum(count - ddof, 1))
        unit = np.ones(num) if unit is None else unit
        return cls(codes, offset, count, anchor + unit * shift, std, unit)

    def advantages(self, *, eps: float, scale: bool, min_count: int) -> Floats:
        """One value a row; 0 where the cell is constant or has fewer than ``min_count`` rows."""
        judged = (self.std_in_units > 0) & (self.count >= min_count)
        factor = np.zeros(len(self.count))
        if scale:
            with np.errstate(over="ignore"):  # eps over a vanishing unit: the advantage is 0
                divisor = self.std_in_units + eps / self.unit
            np.divide(1.0, divisor, out=factor, where=judged)
        else:
            np.copyto(factor, self.unit, where=judged)
        return self.deviation * factor[self.codes]


def _units(offset: Floats, codes: Codes, num: int) -> Floats | None:
    """Return each cell's largest offset if some are so small that squares vanish, else None."""
    size = np.abs(offset)
    if not np.any((size > 0) & (size < TINY)):
        return None
    unit = np.zeros(num)
    np.maximum.at(unit, codes, size)
    return np.where(unit > 0, unit, 1.0)


def _check_settings(alpha: float, eps: float, ddof: int, min_stratum: int) -> None:
    if not isinstance(alpha, Real) or not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be one number from 0 (GRPO) to 1 (SAN), got {alpha!r}")
    if not isinstance(eps, Real) or not 0.0 <= eps < np.inf:
        raise ValueError(f"eps must be a finite number of at least 0, got {eps!r}")
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0 (population) or 1 (sample), got {ddof!r}")
    if not isinstance(min_stratum, int | np.integer) or min_stratum < 1:
        raise ValueError(f"min_stratum must be a whole number of at least 1, got {min_stratum!r}")


def _check_lengths(num_rewards: int, **others: int) -> None:
    for name, length in others.items():
        if length != num_rewards:
            raise ValueError(
                f"{name} must have one entry for each reward: got {length} for {num_rewards}"
            )


def _as_rewards(rewards: npt.ArrayLike) -> Floats:
    array = np.asarray(rewards)
    try:
        if array.dtype.kind not in "biufO":
            raise TypeError(f"got {array.dtype}")
        result = array.astype(np.float64)  # None becomes NaN
    except (TypeError, ValueError) as error:
        raise ValueError(f"rewards must be numbers, NaN or None: {error}") from error
    if result.ndim != 1:
        raise ValueError(
            f"rewards must hold one number a row, got an array of shape {result.shape}"
        )
    too_large = np.flatnonzero(np.abs(result) > MAX_REWARD)
    if too_large.size:
        row = int(too_large[0])
        raise ValueError(f"rewards must be finite, or NaN if unscored: row {row} is {result[row]}")
    return result


def _usable(rewards: Floats, valid: npt.ArrayLike | None) -> Flags:
    scored: Flags = ~np.isnan(rewards)
    if valid is None:
        return scored
    flags = np.asarray(valid)
    if flags.size and flags.dtype.kind != "b":
        raise ValueError(f"valid must hold True or False for each row, got {flags.dtype} values")
    if flags.shape != rewards.shape:
        raise ValueError(
            f"valid must have one entry for each reward: got shape {flags.shape} "
            f"for {len(rewards)} rewards"
        )
    scored &= flags.astype(np.bool_)
    return scored
