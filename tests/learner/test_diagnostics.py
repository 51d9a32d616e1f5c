"""The diagnostics against hand numbers, the readable definition, and what must add up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.advantages import stratified_advantages
from stratified_grpo.diagnostics import diagnose

REWARDS, GROUPS, STRATA = [1, 0, 0, 1, 1, 0], [0] * 6, [0, 0, 1, 1, 1, 2]
TABLES = st.lists(
    st.tuples(
        st.integers(-16, 16).map(lambda n: n / 8),
        st.integers(0, 3),
        st.sampled_from(["0", "1", "2+"]),
        st.booleans(),
        st.integers(1, 50),
    ),
    max_size=40,
)


def columns(table):
    return [list(column) for column in zip(*table, strict=True)] or [[], [], [], [], []]


def test_hand_case():
    advantages = stratified_advantages(REWARDS, GROUPS, STRATA, eps=0, alpha=0)
    got = diagnose(advantages, REWARDS, STRATA, tokens=[10, 10, 10, 10, 10, 50])
    expected = {
        "stratum/0/share": 1 / 3,
        "stratum/0/reward": 0.5,
        "stratum/1/reward": 2 / 3,
        "stratum/2/reward": 0.0,
        "stratum/2/abs_advantage": 1.0,
        "stratum/2/mass": 0.5,
        "bias/cross_stratum": math.sqrt(1 / 18),
        "variance/between": 1 / 18,
        "variance/within": 7 / 36,
        "variance/eta2": 2 / 9,
        "sign/differs": 1 / 6,
        "sign/opposite": 0.0,
        "strata/singleton": 1 / 6,
        "strata/effective": math.exp(
            -(math.log(1 / 3) / 3 + math.log(0.5) / 2 + math.log(1 / 6) / 6)
        ),
        "groups/count": 1.0,
        "groups/singleton": 0.0,
        "groups/zero_variance": 0.0,
    }
    assert {name: got[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_opposite_signs_are_found():
    # 0.4 is the best of the weak stratum and below the group's mean
    rewards, strata = [0.0, 0.4, 0.6, 1.0], ["a", "a", "b", "b"]
    advantages = stratified_advantages(rewards, [0] * 4, strata)
    assert diagnose(advantages, rewards, strata)["sign/opposite"] == 0.5


def test_constant_and_singleton_groups_are_counted():
    rewards, groups = [1, 1, 1, 1, 1, 0, 0, 0, 1.0], [0] * 4 + [1] * 4 + [2]
    got = diagnose(stratified_advantages(rewards, groups, [0] * 9), rewards, [0] * 9)
    assert got["groups/count"] == 3
    assert got["groups/singleton"] == 1
    assert got["groups/zero_variance"] == pytest.approx(2 / 3)


@given(TABLES)
def test_shares_add_up_and_variance_splits(table):
    rewards, groups, strata, valid, tokens = columns(table)
    advantages = stratified_advantages(rewards, groups, strata, valid=np.array(valid, dtype=bool))
    got = diagnose(advantages, rewards, strata, tokens)
    assert all(math.isfinite(value) for value in got.values())
    if not any(valid):
        return
    shares = [value for name, value in got.items() if name.endswith("/share")]
    masses = [value for name, value in got.items() if name.endswith("/mass")]
    assert sum(shares) == pytest.approx(1)
    assert sum(masses) == pytest.approx(1 if np.any(advantages.values) else 0)
    assert 1 <= got["strata/effective"] <= len(set(strata)) + 1e-9
    totals, biases = [], []
    for group in set(groups):
        rows = [i for i, g in enumerate(groups) if g == group and valid[i]]
        if not rows:
            continue
        mean = np.mean([rewards[i] for i in rows])
        means = {
            k: np.mean([rewards[i] for i in rows if strata[i] == k])
            for k in {strata[i] for i in rows}
        }
        totals.append(np.var([rewards[i] for i in rows]))
        biases.append(math.sqrt(np.mean([(means[strata[i]] - mean) ** 2 for i in rows])))
    split = got["variance/between"] + got["variance/within"]
    assert split == pytest.approx(np.mean(totals), abs=1e-12)
    assert got["bias/cross_stratum"] == pytest.approx(np.mean(biases), abs=1e-12)
    assert 0 <= got["variance/eta2"] <= 1


def test_names_are_stable_and_in_order():
    rewards, strata = [1.0, 0.0, 0.0], ["2+", "0", "1"]
    got = diagnose(stratified_advantages(rewards, [0] * 3, strata), rewards, strata)
    assert list(got)[:4] == [
        "stratum/0/share",
        "stratum/0/reward",
        "stratum/0/abs_advantage",
        "stratum/0/mass",
    ]
    assert [name for name in got if name.endswith("/share")] == [
        "stratum/0/share", "stratum/1/share", "stratum/2+/share"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], STRATA), "rewards must have one number a row"),
        ((REWARDS, STRATA[1:]), "strata must have one entry a row: got 5 for 6"),
        ((REWARDS, STRATA, [1]), "tokens must have one number a row"),
    ],
)
def test_wrong_lengths_are_refused(arguments, message):
    advantages = stratified_advantages(REWARDS, GROUPS, STRATA)
    with pytest.raises(ValueError, match=message):
        diagnose(advantages, *arguments)
