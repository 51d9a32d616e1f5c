"""Token rows grow by whole operations: nothing in them can drift."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.errors import EpisodeError
from stratified_grpo.types import TokenRow, numeric_metrics

ids = st.lists(st.integers(0, 10**6), max_size=5)
logprob = st.floats(max_value=0.0, allow_nan=False, allow_infinity=False)
spoilt = st.sampled_from([math.nan, math.inf, -math.inf])


@st.composite
def operations(draw):
    """``(name, arguments, refused)`` of one append."""
    tokens = draw(ids)
    kind = draw(st.sampled_from(["context", "sampled", "short", "spoilt"]))
    if kind == "context":
        return "context", (tokens,), False
    logprobs = draw(st.lists(logprob, min_size=len(tokens), max_size=len(tokens)))
    versions = [draw(st.integers(0, 9))] * len(tokens)
    if kind == "sampled" or not tokens:
        return "sampled", (tokens, logprobs, versions), False
    if kind == "short":
        cut = draw(st.sampled_from(["logprobs", "versions"]))
        parts = (logprobs[:-1], versions) if cut == "logprobs" else (logprobs, versions[:-1])
        return "sampled", (tokens, *parts), True
    logprobs[draw(st.integers(0, len(tokens) - 1))] = draw(spoilt)
    return "sampled", (tokens, logprobs, versions), True


def snapshot(row):
    return list(row.ids), list(row.mask), list(row.logprobs), list(row.versions)


@given(st.lists(operations(), max_size=8))
def test_any_appends_keep_a_row_whole(appends):
    row, expected = TokenRow(), []
    for name, arguments, refused in appends:
        before = snapshot(row)
        if refused:
            with pytest.raises(EpisodeError):
                getattr(row, name)(*arguments)
            assert snapshot(row) == before
            continue
        getattr(row, name)(*arguments)
        tokens = arguments[0]
        if name == "sampled":
            expected += [(t, 1, lp, v) for t, lp, v in zip(*arguments, strict=True)]
        else:
            expected += [(t, 0, 0.0, -1) for t in tokens]
        assert list(zip(*snapshot(row), strict=True)) == expected
        assert len(row) == len(expected)
        assert row.num_trainable == sum(mask for _, mask, _, _ in expected)


def test_an_observation_of_no_tokens_adds_nothing():  # known fault 5
    row = TokenRow()
    row.context([5, 6])
    row.context([])
    row.context([7, 8, 9])
    assert snapshot(row) == ([5, 6, 7, 8, 9], [0] * 5, [0.0] * 5, [-1] * 5)


def test_a_row_does_not_hold_on_to_the_lists_it_was_given():  # known fault 8
    given_ids, given_logprobs = [1, 2], [-0.5, -0.25]
    row = TokenRow()
    row.sampled(given_ids, given_logprobs, [0, 0])
    given_ids.append(3)
    given_logprobs[0] = 9.0
    assert snapshot(row) == ([1, 2], [1, 1], [-0.5, -0.25], [0, 0])


def test_refusals_say_what_is_wrong():
    with pytest.raises(EpisodeError, match=r"2 sampled tokens came with 1 log-prob.* 2 versions"):
        TokenRow().sampled([1, 2], [-1.0], [0, 0])
    with pytest.raises(EpisodeError, match="not finite"):
        TokenRow().sampled([1], [math.nan], [0])


@pytest.mark.parametrize(
    ("changes", "usable"),
    [
        ({}, True),
        ({"reward": None}, False),  # known fault 27: unscored is not 0
        ({"reward": math.nan}, False),
        ({"reward": math.inf}, False),
        ({"valid": False}, False),
    ],
)
def test_a_rollout_is_usable_when_valid_scored_and_trainable(build, changes, usable):
    row = build.row([(0, [1]), (1, [2])])
    assert build.rollout(row, **changes).usable is usable


def test_a_rollout_without_sampled_tokens_is_not_usable(build):
    assert not build.rollout(build.row([(0, [1, 2])]), reward=1.0).usable


def test_numeric_metrics_keep_numbers_and_flags():
    info = {"n": 2, "x": 0.5, "flag": True, "text": "7", "list": [1], "none": None}
    assert numeric_metrics(info) == {"n": 2.0, "x": 0.5, "flag": 1.0}
