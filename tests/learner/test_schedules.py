"""Alpha stays in range, moves as described, and survives its own text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.schedules import Anneal, Constant, parse_schedule

ALPHAS = st.floats(0, 1)
SCHEDULES = st.one_of(
    st.builds(Constant, ALPHAS),
    st.tuples(ALPHAS, ALPHAS, st.integers(0, 500), st.integers(0, 500)).map(
        lambda t: Anneal(start=t[0], end=t[1], hold=t[2], until=t[2] + t[3])
    ),
)


@given(SCHEDULES)
def test_text_round_trip(schedule):
    assert parse_schedule(str(schedule)) == schedule


@given(SCHEDULES, st.integers(0, 2000))
def test_alpha_stays_in_range_and_is_monotone(schedule, step):
    here, there = schedule(step), schedule(step + 1)
    assert 0 <= here <= 1
    if isinstance(schedule, Anneal):
        rising = schedule.end >= schedule.start
        assert there >= here - 1e-15 if rising else there <= here + 1e-15


def test_hold_then_linear_then_stay():
    alpha = Anneal()
    assert [alpha(step) for step in (0, 60, 120, 10_000)] == [1.0, 1.0, 0.3, 0.3]
    assert alpha(90) == pytest.approx(0.65)
    assert alpha(61) - alpha(62) == pytest.approx(0.7 / 60)


def test_equal_hold_and_until_jump():
    alpha = Anneal(start=1.0, end=0.0, hold=3, until=3)
    assert [alpha(step) for step in range(5)] == [1.0, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("0.8", Constant(0.8)),
        (0.6, Constant(0.6)),
        (1, Constant(1.0)),
        ("anneal", Anneal()),
        ("anneal:0.9..0.1", Anneal(start=0.9, end=0.1)),
        ("anneal@5..9", Anneal(hold=5, until=9)),
        ("anneal:1..0.25@0..8", Anneal(start=1.0, end=0.25, hold=0, until=8)),
        ("anneal:1.0->0.3@60..120", Anneal()),
    ],
)
def test_the_grammar(text, schedule):
    assert parse_schedule(text) == schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.5", "alpha must lie between 0 .* got 1.5"),
        ("-0.1", "alpha must lie between"),
        ("nan", "alpha must lie between"),
        ("anneal:2..1", "alpha must lie between 0 .* got 2.0"),
        ("anneal@9..5", "needs 0 <= hold <= until"),
        ("", "alpha must be NUMBER or anneal"),
        ("fast", "such as 0.8 or anneal.*got 'fast'"),
        ("anneal:a..b", "got 'anneal:a..b'"),
        ("anneal:1@3..4", "alpha must be NUMBER or anneal"),
    ],
)
def test_bad_text_is_refused_in_a_sentence(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_schedule(text)
    assert "\n" not in str(caught.value)
