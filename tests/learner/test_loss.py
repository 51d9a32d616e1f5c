"""The loss against a readable loop over rows and tokens."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.loss import AGGREGATIONS, row_weights, surrogate_loss

number = st.floats(-3, 0)


@st.composite
def batches(draw):
    """Rows of ``(new, old, reference)`` per token, and one advantage a row."""
    token = st.tuples(number, number, number)
    rows = draw(st.lists(st.lists(token, min_size=1, max_size=4), min_size=1, max_size=5))
    advantages = [draw(st.floats(-2, 2)) for _ in rows]
    return rows, advantages


def flat(rows, advantages, weights):
    """Tensors of all tokens, one after the other."""
    new, old, reference = (
        torch.tensor([token[i] for row in rows for token in row], dtype=torch.float64)
        for i in range(3)
    )
    per_token = [
        torch.tensor(
            [value for value, row in zip(values, rows, strict=True) for _ in row],
            dtype=torch.float64,
        )
        for values in (advantages, weights)
    ]
    return new.requires_grad_(), old, reference, *per_token


def losses_of(rows, advantages, *, low, high, kl):
    """The loss of every token, as in the formula."""
    out = []
    for row, advantage in zip(rows, advantages, strict=True):
        out.append([])
        for new, old, reference in row:
            ratio = math.exp(new - old)
            clipped = max(1 - low, min(1 + high, ratio))
            gap = reference - new
            k3 = math.exp(gap) - gap - 1
            out[-1].append(-min(ratio * advantage, clipped * advantage) + kl * k3)
    return out


def aggregate(losses, how, constant):
    tokens = sum(len(row) for row in losses)
    if how == "token":
        return sum(map(sum, losses)) / tokens
    if how == "sequence":
        return sum(sum(row) / len(row) for row in losses) / len(losses)
    return sum(map(sum, losses)) / (len(losses) * constant)


@given(batch=batches(), how=st.sampled_from(AGGREGATIONS), kl=st.sampled_from([0.0, 0.7]))
def test_the_loss_is_the_loop(batch, how, kl):
    rows, advantages = batch
    weights = row_weights([len(row) for row in rows], how, constant=7)
    new, old, reference, values, weight = flat(rows, advantages, weights)
    terms = surrogate_loss(
        new, old, values, weight, clip_low=0.1, clip_high=0.3, reference=reference, kl_coef=kl
    )
    expected = aggregate(losses_of(rows, advantages, low=0.1, high=0.3, kl=kl), how, 7)
    assert float(terms.loss.detach()) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    kls = [[math.exp(r - n) - (r - n) - 1 for n, _, r in row] for row in rows]
    assert terms.reference_kl == pytest.approx(aggregate(kls, how, 7), rel=1e-9, abs=1e-12)
    gaps = [[o - n for n, o, _ in row] for row in rows]
    assert terms.behaviour_kl == pytest.approx(aggregate(gaps, how, 7), rel=1e-9, abs=1e-12)
    surprise = [[-n for n, _, _ in row] for row in rows]
    assert terms.negative_logprob == pytest.approx(aggregate(surprise, how, 7), rel=1e-9)


@given(batch=batches(), how=st.sampled_from(AGGREGATIONS), data=st.data())
def test_splits_and_orders_add_up_to_the_same_loss_and_gradient(batch, how, data):
    rows, advantages = batch
    weights = row_weights([len(row) for row in rows], how, constant=3)
    new, old, reference, values, weight = flat(rows, advantages, weights)
    whole = surrogate_loss(new, old, values, weight, reference=reference, kl_coef=0.2)
    whole.loss.backward()
    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(0, len(rows)))
    total, gradients = 0.0, {}
    for part in (order[:cut], order[cut:]):
        if not part:
            continue
        pick = [[values[i] for i in part] for values in (rows, advantages, weights)]
        some, *rest = flat(*pick)
        terms = surrogate_loss(some, rest[0], *rest[2:], reference=rest[1], kl_coef=0.2)
        terms.loss.backward()
        total += float(terms.loss.detach())
        pieces = some.grad.split([len(rows[i]) for i in part])
        gradients.update(zip(part, pieces, strict=True))
    assert total == pytest.approx(float(whole.loss.detach()), rel=1e-9, abs=1e-12)
    expected = new.grad.split([len(row) for row in rows])
    for index, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[index])


def test_token_and_sequence_means_of_the_published_example():  # known fault 14
    batch = [[2, 2, 2, 2, 2, 6, 5, 3, 2, 4], [10, 3, 4, 5, 2, 3, 4, 1, 1, 3]]
    kept = [batch[0][:5], batch[1][:1]]
    sums = {
        how: sum(w * sum(row) for w, row in zip(row_weights([5, 1], how), kept, strict=True))
        for how in ("token", "sequence")
    }
    assert sums["token"] == pytest.approx(20 / 6)
    assert sums["sequence"] == pytest.approx(6.0)


def test_rows_left_out_are_in_no_denominator():  # known fault 16
    for how in AGGREGATIONS:
        assert row_weights([4, 0], how, 4) == [pytest.approx(0.25), 0.0]
    assert row_weights([4], "token")[0] * 4 == 1.0


def test_an_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="loss_agg must be one of token, sequence, constant"):
        row_weights([1], "mean")


def test_at_ratio_one_the_gradient_is_reinforce():
    new = torch.tensor([-1.0, -0.2, -2.0], requires_grad=True)
    values, weights = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([0.5, 0.25, 0.25])
    surrogate_loss(new, new.detach().clone(), values, weights).loss.backward()
    torch.testing.assert_close(new.grad, -values * weights)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.31, 1.0, False), (1.29, 1.0, True), (0.79, -1.0, False), (0.81, -1.0, True),
     (1.5, -1.0, True), (0.5, 1.0, True)],
)  # fmt: skip
def test_clipping_stops_the_gradient_only_where_it_would_go_too_far(ratio, advantage, moves):
    new = torch.tensor([math.log(ratio)], requires_grad=True)
    terms = surrogate_loss(
        new,
        torch.zeros(1),
        torch.tensor([advantage]),
        torch.ones(1),
        clip_low=0.2,
        clip_high=0.3,
    )
    terms.loss.backward()
    assert bool(new.grad.abs() > 0) is moves
    assert terms.clipped == (0.0 if moves else 1.0)


def test_the_kl_penalty_has_its_minimum_at_the_reference():
    for offset, sign in ((0.5, 1.0), (-0.5, -1.0), (0.0, 0.0)):
        new = torch.tensor([-1.0 + offset], requires_grad=True)
        zero = torch.zeros(1)
        terms = surrogate_loss(
            new, zero, zero, torch.ones(1), reference=torch.tensor([-1.0]), kl_coef=1.0
        )
        terms.loss.backward()
        assert math.copysign(1.0, float(new.grad)) == sign or (sign == 0 and float(new.grad) == 0)


@pytest.mark.parametrize(
    "change",
    [{"clip_low": 0.3}, {"clip_high": 0.3}, {"kl_coef": 0.2}, {"how": "sequence"},
     {"how": "constant"}, {"constant": 9, "how": "constant"}],
)  # fmt: skip
def test_every_switch_changes_a_number(change):  # known fault 29
    def loss(*, how="token", constant=4, clip_low=0.2, clip_high=0.2, kl_coef=0.1):
        rows = [[(-0.5, -1.5, -0.7)], [(-2.0, -1.0, -1.5)] * 3 + [(-0.1, -0.2, -0.3)]]
        weights = row_weights([1, 4], how, constant)
        new, old, reference, values, weight = flat(rows, [1.0, -0.5], weights)
        terms = surrogate_loss(
            new,
            old,
            values,
            weight,
            clip_low=clip_low,
            clip_high=clip_high,
            reference=reference,
            kl_coef=kl_coef,
        )
        return float(terms.loss.detach())

    plain = loss(how="constant") if change == {"constant": 9, "how": "constant"} else loss()
    assert abs(loss(**change) - plain) > 1e-6
