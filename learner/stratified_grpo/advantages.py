"""Stratified GRPO advantages: GRPO, SAN and their blend in one numpy function.

Rollouts of one prompt differ in structure, and so in reward; one baseline for all of them compares
apples with oranges. Stratified advantage normalisation (SAN, arXiv 2510.06214) standardises inside
strata of equal structure; a blend with the whole group's estimate (GN, plain GRPO) keeps some
signal about which structure is better. Strata are formed inside each prompt group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stratified_grpo.strata import Codes, Keys, compact, dense_codes

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

MAX_REWARD = 1e140
"""Largest accepted size of a reward; squares of larger ones would overflow."""
TINY = 1e-120
"""Unequal rewards of at least this size differ by 1e-136 or more, which is safe to square."""


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

    ``san = (r - mean_k) / (std_k + eps)`` in stratum ``k``, ``gn = (r - mean) / (std + eps)`` in
    the group, ``values = alpha * san + (1 - alpha) * gn``: GRPO at ``alpha=0``, SAN at ``alpha=1``.
    A constant stratum or group (max equals min; its rounded std may differ from 0) and a stratum of
    fewer than ``min_stratum`` valid rows have advantage 0; where ``san`` is 0 for that reason,
    ``(1 - alpha) * gn`` is left. Invalid rows leave all statistics and get 0.

    Source: arXiv 2510.06214, whose ddof, eps and rule for singleton strata are not known to us.

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
    group_index, num_groups, stratum_index, num_strata = _indices(groups, strata, len(reward))
    usable = _usable(reward, valid)
    standardise = partial(_standardise, reward, usable, ddof=ddof, eps=eps, scale=scale)
    inner = standardise(stratum_index, num_strata, least=min_stratum)
    outer = standardise(group_index, num_groups, least=1)
    return Advantages(
        values=alpha * inner.advantage + (1.0 - alpha) * outer.advantage,
        san=inner.advantage,
        gn=outer.advantage,
        valid=usable,
        group_index=group_index,
        stratum_index=stratum_index,
        count=inner.count,
        mean=inner.mean,
        std=inner.std,
        group_count=outer.count,
        group_mean=outer.mean,
        group_std=outer.std,
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    advantage: Floats  # one a row
    count: Codes  # one a cell, like the two below
    mean: Floats
    std: Floats


def _standardise(
    reward: Floats,
    usable: Flags,
    codes: Codes,
    num: int,
    *,
    ddof: int,
    eps: float,
    scale: bool,
    least: int,
) -> _Cells:
    """Standardise the usable rows of each of ``num`` cells, in two passes.

    Rewards are measured from a member of their cell, so that a constant cell has deviations of
    exactly 0 and a large common offset costs no digits.
    """
    rows = slice(None) if usable.all() else np.flatnonzero(usable)
    values, cell = reward[rows], codes[rows]
    count = np.bincount(cell, minlength=num)
    members = np.maximum(count, 1)
    anchor = np.zeros(num)
    anchor[cell] = values
    deviation = values - anchor[cell]
    unit = _units(deviation, cell, num) if _squares_vanish(values) else np.ones(1)
    if unit.size == num:
        deviation /= unit[cell]
    shift = np.bincount(cell, deviation, minlength=num) / members
    # one buffer for what each row takes from its cell: fresh arrays of a million rows cost more
    # than the arithmetic, and mode="clip" lets take write straight into it
    buffer = shift.take(cell, mode="clip")
    deviation -= buffer
    squares = np.bincount(cell, np.square(deviation, out=buffer), minlength=num)
    std = np.sqrt(squares / np.maximum(members - ddof, 1))
    factor = _factors(std, unit, eps, scale)
    factor[(squares == 0) | (count < least)] = 0.0
    deviation *= factor.take(cell, mode="clip", out=buffer)
    advantage = deviation if values.size == reward.size else np.zeros(len(reward))
    advantage[rows] = deviation
    return _Cells(advantage, count, anchor + unit * shift, std * unit)


def _squares_vanish(values: Floats) -> bool:
    """Whether two unequal values may be so close that the square of their difference is 0."""
    size = np.abs(values)
    return bool(np.any((size > 0) & (size < TINY)))


def _units(deviation: Floats, cell: Codes, num: int) -> Floats:
    """Return the largest deviation of each cell, 1 where there is none."""
    unit = np.zeros(num)
    np.maximum.at(unit, cell, np.abs(deviation))
    return np.where(unit > 0, unit, 1.0)


def _factors(std: Floats, unit: Floats, eps: float, scale: bool) -> Floats:
    """Return what turns each cell's deviations, in its unit, into advantages."""
    if not scale:
        return np.broadcast_to(unit, std.shape).copy()
    with np.errstate(divide="ignore", over="ignore"):  # constant cells; eps over a vanishing unit
        return np.reciprocal(std + eps / unit)


def _check_settings(alpha: float, eps: float, ddof: int, min_stratum: int) -> None:
    if not isinstance(alpha, Real) or not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be one number from 0 (GRPO) to 1 (SAN), got {alpha!r}")
    if not isinstance(eps, Real) or not 0.0 <= eps < np.inf:
        raise ValueError(f"eps must be a finite number of at least 0, got {eps!r}")
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0 (population) or 1 (sample), got {ddof!r}")
    if not isinstance(min_stratum, int | np.integer) or min_stratum < 1:
        raise ValueError(f"min_stratum must be a whole number of at least 1, got {min_stratum!r}")


def _indices(groups: Keys, strata: Keys, num_rows: int) -> tuple[Codes, int, Codes, int]:
    """Number the groups, and the strata inside them."""
    group, num_groups = dense_codes(groups, "groups")
    key, num_keys = dense_codes(strata, "strata")
    for name, codes in (("groups", group), ("strata", key)):
        if len(codes) != num_rows:
            raise ValueError(
                f"{name} must have one entry for each reward: got {len(codes)} for {num_rows}"
            )
    return group, num_groups, *compact(group * max(num_keys, 1) + key)


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
