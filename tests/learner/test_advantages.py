"""The estimator against an exact rational loop, the identities of the method, and hand cases."""

import math
import subprocess
import sys
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from stratified_grpo.advantages import AdvantageEstimator, Advantages, stratified_advantages

close = partial(assert_allclose, rtol=0, atol=1e-12)

# dyadic rewards, so that a difference of means is not itself a rounding error
REWARDS = st.integers(-64, 64).map(lambda n: n / 16)


@st.composite
def batches(draw, rewards=REWARDS, max_rows=40):
    rows = draw(
        st.lists(
            st.tuples(rewards, st.integers(0, 3), st.integers(0, 4), st.booleans()),
            min_size=1,
            max_size=max_rows,
        )
    )
    reward, group, stratum, valid = (np.array(column) for column in zip(*rows, strict=True))
    return reward.astype(float), group, stratum, valid


def rows_of(codes):
    return [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]


def loop(rewards, groups, strata, *, alpha, eps, ddof, valid, min_stratum):
    """Compute the blend row by row with exact means and variances."""

    def standardised(row, members, least):
        exact = [Fraction(float(rewards[m])) for m in members]
        if len(members) < least or max(exact) == min(exact):
            return 0.0
        mean = sum(exact) / len(exact)
        spread = max(exact) - min(exact)  # in units of it, no square vanishes as a float
        variance = sum(((r - mean) / spread) ** 2 for r in exact) / (len(exact) - ddof)
        deviation = (Fraction(float(rewards[row])) - mean) / spread
        return float(deviation) / (math.sqrt(variance) + eps / float(spread))

    values = []
    for row in range(len(rewards)):
        if not valid[row] or math.isnan(rewards[row]):
            values.append(0.0)
            continue
        group = [
            i
            for i in range(len(rewards))
            if groups[i] == groups[row] and valid[i] and not math.isnan(rewards[i])
        ]
        stratum = [i for i in group if strata[i] == strata[row]]
        san = standardised(row, stratum, min_stratum)
        values.append(alpha * san + (1 - alpha) * standardised(row, group, 1))
    return values


@given(
    batches(rewards=st.one_of(REWARDS, st.floats(-1e9, 1e9), st.just(math.nan))),
    st.floats(0, 1),
    st.sampled_from([0.0, 1e-6, 0.1]),
    st.sampled_from([0, 1]),
    st.integers(1, 4),
)
def test_equals_the_readable_loop(batch, alpha, eps, ddof, min_stratum):
    reward, group, stratum, valid = batch
    settings = {"alpha": alpha, "eps": eps, "ddof": ddof, "min_stratum": min_stratum}
    got = stratified_advantages(reward, group, stratum, valid=valid, **settings)
    assert_allclose(
        got.values, loop(reward, group, stratum, valid=valid, **settings), rtol=1e-9, atol=1e-12
    )


@given(batches())
def test_gn_is_rescaled_san_plus_the_cross_stratum_offset(batch):
    reward, group, stratum, valid = batch
    a = stratified_advantages(reward, group, stratum, valid=valid, eps=0)
    std = a.group_std[a.group_index]
    rows = a.valid & (std > 0)
    mean_k, std_k = a.mean[a.stratum_index], a.std[a.stratum_index]
    offset = mean_k - a.group_mean[a.group_index]
    close(a.gn[rows], (std_k * a.san + offset)[rows] / std[rows])


@given(batches())
def test_unscaled_decomposition_and_variance_reduction(batch):
    reward, group, stratum, valid = batch
    a = stratified_advantages(reward, group, stratum, valid=valid, scale=False)
    offset = a.mean[a.stratum_index] - a.group_mean[a.group_index]
    close(a.gn[a.valid], (a.san + offset)[a.valid])
    for rows in rows_of(a.group_index):
        inside = rows[a.valid[rows]]
        if len(inside):
            removed = np.var(a.gn[inside]) - np.var(a.san[inside])
            close(removed, np.sum(offset[inside] ** 2) / len(inside))


@given(batches(rewards=st.one_of(REWARDS, st.floats(-1e6, 1e6))))
def test_san_has_mean_0_and_variance_1_in_each_stratum_that_varies(batch):
    reward, group, stratum, valid = batch
    a = stratified_advantages(reward, group, stratum, valid=valid, eps=0)
    for rows in rows_of(a.stratum_index):
        inside = rows[a.valid[rows]]
        if len(inside) < 2 or np.ptp(reward[inside]) == 0:
            assert_array_equal(a.san[rows], 0)
        else:
            close(a.san[inside].mean(), 0)
            close(a.san[inside].var(), 1)


@given(batches(rewards=st.one_of(REWARDS, st.floats(-1e6, 1e6))), st.floats(0, 1))
def test_everything_sums_to_0_over_a_group(batch, alpha):
    reward, group, stratum, valid = batch
    a = stratified_advantages(reward, group, stratum, valid=valid, eps=0, alpha=alpha)
    for rows in rows_of(a.group_index):
        for part in (a.values, a.san, a.gn):
            close(part[rows].sum(), 0)


@given(batches(), st.integers(1, 64).map(lambda n: n / 8), st.integers(-512, 512))
def test_positive_affine_rewards_change_nothing(batch, slope, intercept):
    reward, group, stratum, valid = batch
    a = stratified_advantages(reward, group, stratum, valid=valid, eps=0)
    b = stratified_advantages(slope * reward + intercept, group, stratum, valid=valid, eps=0)
    close(a.values, b.values)


@given(batches(), st.randoms(use_true_random=False))
def test_row_order_and_key_type_do_not_matter(batch, random):
    reward, group, stratum, valid = batch
    a = stratified_advantages(reward, group, stratum, valid=valid)
    order = np.array(random.sample(range(len(reward)), len(reward)))
    b = stratified_advantages(
        reward[order],
        [("prompt", int(g)) for g in group[order]],
        [f"S{s}" for s in stratum[order]],
        valid=valid[order],
    )
    for part in ("values", "san", "gn", "valid"):
        close(getattr(a, part)[order], getattr(b, part))
    for part in ("count", "mean", "std"):
        close(getattr(a, part)[a.stratum_index][order], getattr(b, part)[b.stratum_index])


@given(batches(), st.floats(0, 1))
def test_alpha_0_is_grpo_and_alpha_1_is_san(batch, alpha):
    reward, group, stratum, valid = batch
    blend = stratified_advantages(reward, group, stratum, valid=valid, alpha=alpha)
    close(blend.values, alpha * blend.san + (1 - alpha) * blend.gn)
    grpo = stratified_advantages(reward, group, stratum, valid=valid, alpha=0)
    one_stratum = stratified_advantages(reward, group, [0] * len(reward), valid=valid, alpha=1)
    assert_array_equal(grpo.values, grpo.gn)
    assert_array_equal(one_stratum.values, one_stratum.san)
    close(grpo.values, one_stratum.values)


@given(batches(rewards=st.floats(-1e140, 1e140)), st.sampled_from([0.0, 1e-6]))
def test_every_value_is_finite_whatever_the_rewards(batch, eps):
    reward, group, stratum, valid = batch
    a = stratified_advantages(reward, group, stratum, valid=valid, eps=eps)
    for part in (a.values, a.san, a.gn, a.mean, a.std, a.group_mean, a.group_std):
        assert np.isfinite(part).all()
    assert_array_equal(a.values[~valid], 0)


def test_indices_are_dense_and_statistics_belong_to_them():
    reward = np.array([1.0, 3.0, 5.0, 7.0, 9.0])
    a = stratified_advantages(
        reward, [20, 10, 20, 20, 10], [1, 1, 1, 2, 1], valid=np.array([1, 1, 1, 1, 0], bool)
    )
    assert a.group_index.dtype == a.stratum_index.dtype == np.int64
    assert sorted(set(a.group_index)) == [0, 1]
    assert sorted(set(a.stratum_index)) == [0, 1, 2]
    assert_array_equal(a.count[a.stratum_index], [2, 1, 2, 1, 1])
    assert_array_equal(a.mean[a.stratum_index], [3, 3, 3, 7, 3])
    assert_array_equal(a.std[a.stratum_index], [2, 0, 2, 0, 0])
    assert_array_equal(a.group_count[a.group_index], [3, 1, 3, 3, 1])
    assert_allclose(a.group_mean[a.group_index], [13 / 3, 3, 13 / 3, 13 / 3, 3])


def test_one_search_count_each():
    run = partial(stratified_advantages, [1, 0, 0, 1, 1, 0], [7] * 6, [0, 0, 1, 1, 1, 2], eps=0)
    assert_allclose(run().san, [1, -1, -1.41421356, 0.70710678, 0.70710678, 0])
    close(run().gn, [1, -1, -1, 1, 1, -1])
    assert_allclose(
        run(ddof=1).san, [0.70710678, -0.70710678, -1.15470054, 0.57735027, 0.57735027, 0]
    )


def test_a_singleton_group_gets_0_and_not_its_reward():
    assert_array_equal(stratified_advantages([1.0], [0], [0]).values, [0])
    assert_array_equal(stratified_advantages([1.0], [0], [0], ddof=1, eps=0).values, [0])


def test_one_finite_reward_among_nans_gets_0():
    a = stratified_advantages([1] + [math.nan] * 7, [0] * 8, [0] * 8, ddof=1, eps=0)
    assert_array_equal(a.values, [0] * 8)
    assert_array_equal(a.valid, [True] + [False] * 7)


def test_a_constant_group_gives_0_and_a_mixed_one_the_known_numbers():
    run = partial(stratified_advantages, [1, 1, 1, 1, 1, 0, 0, 0], [0] * 4 + [1] * 4, [0] * 8)
    third = 1 / math.sqrt(3)
    close(run(eps=0).values, [0, 0, 0, 0, 3 * third, -third, -third, -third])
    close(run(eps=0, ddof=1).values, [0, 0, 0, 0, 1.5, -0.5, -0.5, -0.5])


def test_unscored_rows_earn_nothing():
    a = stratified_advantages([None, -1, -1, None], [0] * 4, [0] * 4)
    assert_array_equal(a.values, [0] * 4)
    assert_array_equal(a.valid, [False, True, True, False])


def test_a_masked_reward_leaves_the_baseline():
    a = stratified_advantages([1, 0], [0, 0], [0, 0], valid=[False, True])
    assert_array_equal(a.values, [0, 0])


def test_a_constant_stratum_is_told_by_its_extremes_and_not_by_its_std():
    assert np.std([0.1] * 3) != 0
    a = stratified_advantages([0.1] * 3 + [0.7], [0] * 4, [0, 0, 0, 1], eps=0)
    assert_array_equal(a.san, [0] * 4)
    assert_array_equal(a.std, [0, 0])
    close(a.values, 0.2 * a.gn)


def test_a_small_stratum_keeps_only_its_share_of_gn():
    a = stratified_advantages([1, 0, 1, 0, 0], [0] * 5, [0, 0, 1, 1, 1], min_stratum=3)
    assert_array_equal(a.san[:2], 0)
    close(a.values[:2], 0.2 * a.gn[:2])
    assert a.san[2] > 0


@pytest.mark.parametrize("offset", [1e9, -1e12])
@pytest.mark.parametrize("step", [1.0, 2**-8])
def test_a_huge_common_offset_costs_no_digits(offset, step):
    small = np.array([0, 1, 1, 3, 0, 2]) * step
    run = partial(stratified_advantages, groups=[0] * 6, strata=[0, 0, 0, 1, 1, 1], eps=0)
    close(run(small + offset).values, run(small).values)


def test_vanishing_differences_still_count():
    a = stratified_advantages([0, 1e-200, 0, 3.0], [0, 0, 1, 1], [0] * 4, eps=0)
    close(a.values, [-1, 1, -1, 1])
    assert_allclose(a.std, [5e-201, 1.5])
    tiny = stratified_advantages([0, 5e-324], [0, 0], [0, 0], eps=1e-6)
    assert_array_equal(tiny.values, [0, 0])


def test_no_rows_are_fine():
    a = stratified_advantages([], [], [], valid=[])
    assert a.values.shape == a.count.shape == a.group_count.shape == (0,)


def test_no_valid_rows_are_fine():
    a = stratified_advantages([1, 2], [0, 0], [0, 1], valid=[False, False])
    assert_array_equal(a.values, [0, 0])
    assert_array_equal(a.count, [0, 0])


def test_inputs_are_left_alone_and_results_repeat():
    rng = np.random.default_rng(0)
    reward, group, stratum = rng.random(500), rng.integers(0, 60, 500), rng.integers(0, 4, 500)
    before = reward.copy(), group.copy(), stratum.copy()
    first = stratified_advantages(reward, group, stratum)
    assert_array_equal(first.values, stratified_advantages(reward, group, stratum).values)
    for now, then in zip((reward, group, stratum), before, strict=True):
        assert_array_equal(now, then)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 1.5}, r"alpha must be one number from 0 \(GRPO\) to 1 \(SAN\), got 1.5"),
        ({"alpha": math.nan}, "alpha must be one number"),
        ({"alpha": np.array([0.5, 0.5])}, "alpha must be one number"),
        ({"eps": -1e-9}, "eps must be a finite number of at least 0"),
        ({"eps": math.inf}, "eps must be a finite number"),
        ({"ddof": 2}, "ddof must be 0"),
        ({"min_stratum": 0}, "min_stratum must be a whole number"),
        ({"groups": [0]}, "groups must have one entry for each reward: got 1 for 2"),
        ({"strata": [0, 1, 2]}, "strata must have one entry for each reward: got 3 for 2"),
        ({"valid": [True]}, "valid must have one entry for each reward"),
        ({"valid": [0.5, 1.0]}, "valid must hold True or False"),
        ({"rewards": [[0.0, 1.0]]}, "rewards must hold one number a row"),
        ({"rewards": ["0", "1"]}, "rewards must be numbers"),
        ({"rewards": [object(), 1]}, "rewards must be numbers"),
        ({"rewards": [0.0, -math.inf]}, "rewards must be finite, or NaN if unscored: row 1 is"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change, message):
    arguments = {"rewards": [0.0, 1.0], "groups": [0, 0], "strata": [0, 0], **change}
    with pytest.raises(ValueError, match=message):
        stratified_advantages(**arguments)


def test_the_function_is_an_estimator():
    def last(estimator: AdvantageEstimator) -> Advantages:
        return estimator([1, 0], [0, 0], [0, 0], alpha=0.5)

    close(last(partial(stratified_advantages, eps=0)).values, [1, -1])


def test_imports_without_torch():
    modules = ("advantages", "strata", "diagnostics", "schedules")
    code = "import sys\n" + "".join(f"import stratified_grpo.{name}\n" for name in modules)
    check = "assert not {'torch', 'transformers', 'searchqa'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code + check], check=True, timeout=60)
