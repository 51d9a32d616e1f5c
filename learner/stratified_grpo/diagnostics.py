"""What the strata of a batch look like, as a flat dictionary of floats for the metrics log.

Plain GRPO is biased across strata by ``mean_k - mean``; these numbers say how large that is,
whether the strata are big enough to learn in, and where the gradient's weight goes. numpy only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stratified_grpo.advantages import Advantages, Floats
from stratified_grpo.strata import Codes, Keys


def diagnose(
    advantages: Advantages,
    rewards: npt.ArrayLike,
    strata: Keys,
    tokens: npt.ArrayLike | None = None,
) -> dict[str, float]:
    """Summarise one batch; only valid rows count, and every value is finite.

    For each key of ``strata``, over all groups: ``stratum/<key>/share`` of the rows,
    ``stratum/<key>/reward`` (mean), ``stratum/<key>/abs_advantage`` (mean of ``|A|``) and
    ``stratum/<key>/mass`` (its share of the sum of ``|A| * tokens``).

    For the batch:

    - ``bias/cross_stratum``: ``sqrt(sum_k (n_k / n) (mean_k - mean)^2)``, mean over groups;
    - ``variance/within``, ``variance/between``: of the reward, mean over groups; they add up to its
      population variance; ``variance/eta2`` is the between share, 0 where nothing varies;
    - ``sign/differs``: share of rows with ``sign(gn) != sign(san)``, where 0 is a sign of its own;
      ``sign/opposite``: share of rows pushed up by one and down by the other;
    - ``strata/effective``: ``exp(entropy)`` of the shares; ``strata/singleton``: share of rows
      alone in their stratum;
    - ``groups/count``, ``groups/singleton`` (counts) and ``groups/zero_variance`` (a share).

    Args:
        advantages: From the estimator, of ``n`` rows.
        rewards: The rewards it was given, shape ``[n]``.
        strata: The keys it was given, shape ``[n]``; they are named by their ``str``.
        tokens: Trainable tokens of each row, shape ``[n]``; default one each.

    Returns:
        Names and values, the strata in the order of their names.

    Raises:
        ValueError: A length differs from that of the advantages.
    """
    valid = advantages.valid
    reward = _column("rewards", rewards, valid.size)[valid]
    weight = np.ones(valid.size) if tokens is None else _column("tokens", tokens, valid.size)
    size = np.abs(advantages.values[valid])
    names, codes = _named(strata, valid.size)
    per_stratum = _per_stratum(names, codes[valid], reward, size, size * weight[valid])
    return {**per_stratum, **_per_group(advantages, reward), **_signs(advantages)}


def _per_stratum(
    names: list[str], codes: Codes, reward: Floats, size: Floats, mass: Floats
) -> dict[str, float]:
    """Describe each key over all groups; every row array has the valid rows only."""
    num = np.bincount(codes, minlength=len(names))
    share = num / max(codes.size, 1)
    columns = {
        "share": share,
        "reward": np.bincount(codes, reward, minlength=len(names)) / np.maximum(num, 1),
        "abs_advantage": np.bincount(codes, size, minlength=len(names)) / np.maximum(num, 1),
        "mass": np.bincount(codes, mass, minlength=len(names)) / (mass.sum() or 1.0),
    }
    taken = share[share > 0]
    return {
        **{
            f"stratum/{name}/{column}": float(values[position])
            for position, name in enumerate(names)
            for column, values in columns.items()
        },
        "strata/effective": float(np.exp(-np.sum(taken * np.log(taken)))) if taken.size else 0.0,
    }


def _per_group(advantages: Advantages, reward: Floats) -> dict[str, float]:
    """Split the variance of each group, and average over groups that have a valid row."""
    group, stratum = (
        index[advantages.valid] for index in (advantages.group_index, advantages.stratum_index)
    )
    sizes = np.maximum(advantages.group_count, 1)
    live = advantages.group_count > 0
    gap = advantages.mean[stratum] - advantages.group_mean[group]
    rest = reward - advantages.mean[stratum]
    between = (np.bincount(group, gap**2, minlength=sizes.size) / sizes)[live]
    within = (np.bincount(group, rest**2, minlength=sizes.size) / sizes)[live]
    total = _mean(between + within)
    return {
        "bias/cross_stratum": _mean(np.sqrt(between)),
        "variance/between": _mean(between),
        "variance/within": _mean(within),
        "variance/eta2": _mean(between) / total if total > 0 else 0.0,
        "strata/singleton": _mean(advantages.count[stratum] == 1),
        "groups/count": float(live.sum()),
        "groups/singleton": float((advantages.group_count == 1).sum()),
        "groups/zero_variance": _mean(advantages.group_std[live] == 0),
    }


def _signs(advantages: Advantages) -> dict[str, float]:
    gn, san = (np.sign(part[advantages.valid]) for part in (advantages.gn, advantages.san))
    return {"sign/differs": _mean(gn != san), "sign/opposite": _mean(gn * san < 0)}


def _mean(values: npt.NDArray[np.float64] | npt.NDArray[np.bool_]) -> float:
    return float(values.mean()) if values.size else 0.0


def _named(strata: Keys, num_rows: int) -> tuple[list[str], Codes]:
    """Return the sorted names of the keys, and each row's position among them."""
    labels = [str(key) for key in (strata.tolist() if isinstance(strata, np.ndarray) else strata)]
    if len(labels) != num_rows:
        raise ValueError(f"strata must have one entry a row: got {len(labels)} for {num_rows}")
    names = sorted(set(labels))
    position = {name: index for index, name in enumerate(names)}
    return names, np.array([position[label] for label in labels], dtype=np.int64)


def _column(name: str, values: npt.ArrayLike, num_rows: int) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.shape != (num_rows,):
        raise ValueError(
            f"{name} must have one number a row: got shape {column.shape} for {num_rows} rows"
        )
    return column
