"""AdamW, by hand and by PyTorch's own; warm-up, clipping, and steps that must not be taken."""

import math

import pytest
import torch

from stratified_grpo.errors import TrainingError
from stratified_grpo.optimizer import Optimizer, OptimizerSettings


def settings(**changes):
    values = {
        "lr": 0.1,
        "warmup": 0,
        "weight_decay": 0.01,
        "betas": (0.9, 0.95),
        "max_grad_norm": 1e9,
        "nonfinite_limit": 3,
    }
    return OptimizerSettings(**{**values, **changes})


def model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(3, 2)


def gradients(steps, seed=1, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, 3), (2,)]
    return [[scale * torch.randn(s, generator=generator) for s in shapes] for _ in range(steps)]


def drive(net, optimizer, steps):
    norms = []
    for pair in steps:
        for parameter, gradient in zip((net.weight, net.bias), pair, strict=True):
            parameter.grad = gradient.clone()
        norms.append(optimizer.step())
    return norms


def by_hand(net, steps, lrs, *, decay=0.01, betas=(0.9, 0.95), clip=math.inf):
    """The textbook's AdamW on (weight, bias); only the matrix decays."""
    values = [net.weight.detach().clone().double(), net.bias.detach().clone().double()]
    first, second = ([torch.zeros_like(v) for v in values] for _ in range(2))
    for t, (pair, lr) in enumerate(zip(steps, lrs, strict=True), start=1):
        norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in pair))
        for i, gradient in enumerate(pair):
            gradient = gradient.double() * min(1.0, clip / (norm + 1e-6))
            values[i] = values[i] * (1 - lr * (decay if i == 0 else 0.0))
            first[i] = betas[0] * first[i] + (1 - betas[0]) * gradient
            second[i] = betas[1] * second[i] + (1 - betas[1]) * gradient**2
            mean = first[i] / (1 - betas[0] ** t)
            scale = (second[i] / (1 - betas[1] ** t)).sqrt() + 1e-8
            values[i] = values[i] - lr * mean / scale
    return [value.float() for value in values]


def weights(net):
    return [net.weight.detach(), net.bias.detach()]


def test_it_is_adamw_by_hand():
    net, steps = model(), gradients(4)
    expected = by_hand(net, steps, [0.1] * 4)
    drive(net, Optimizer(net, settings()), steps)
    torch.testing.assert_close(weights(net), expected)


def test_it_is_torchs_adamw():
    ours, theirs, steps = model(), model(), gradients(5)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.1, betas=(0.9, 0.95), weight_decay=0.0)
    optimizer = Optimizer(ours, settings(weight_decay=0.0))
    for pair in steps:
        drive(ours, optimizer, [pair])
        for parameter, gradient in zip(theirs.parameters(), pair, strict=True):
            parameter.grad = gradient.clone()
        reference.step()
        assert all(map(torch.equal, weights(ours), weights(theirs)))


def test_the_rate_rises_linearly_and_then_follows_the_decay():
    net = model()
    optimizer = Optimizer(net, settings(lr=1.0, warmup=4), decay=lambda step: 0.5**step)
    rates = []
    for pair in gradients(6):
        rates.append(optimizer.lr)
        drive(net, optimizer, [pair])
    assert rates == [min(1.0, (s + 1) / 4) * 0.5**s for s in range(6)]


def test_warm_up_decides_the_first_steps():
    net, steps = model(), gradients(3)
    expected = by_hand(net, steps, [0.05, 0.1, 0.1])
    drive(net, Optimizer(net, settings(warmup=2)), steps)
    torch.testing.assert_close(weights(net), expected)


def test_large_gradients_are_scaled_to_the_limit():
    net, steps = model(), gradients(3, scale=10.0)
    expected = by_hand(net, steps, [0.1] * 3, clip=0.5)
    norms = drive(net, Optimizer(net, settings(max_grad_norm=0.5)), steps)
    torch.testing.assert_close(weights(net), expected)
    for norm, pair in zip(norms, steps, strict=True):  # the norm before clipping is reported
        assert norm == pytest.approx(float(torch.cat([g.flatten() for g in pair]).norm()))


def test_steps_that_are_not_finite_change_nothing_and_are_counted():  # known faults 3 and 23
    net, twin = model(), model()
    optimizer, undisturbed = Optimizer(net, settings()), Optimizer(twin, settings())
    good = gradients(2)
    for spoilt in (math.nan, math.inf):
        bad = [g.clone() for g in good[0]]
        bad[0][0, 0] = spoilt
        before = [w.clone() for w in weights(net)]
        assert not math.isfinite(drive(net, optimizer, [bad])[0])
        assert all(map(torch.equal, weights(net), before))
        assert net.weight.grad is None
    assert (optimizer.skipped, optimizer.steps) == (2, 0)
    drive(net, optimizer, good)
    drive(twin, undisturbed, good)
    assert (optimizer.skipped, optimizer.steps) == (0, 2)
    assert all(map(torch.equal, weights(net), weights(twin)))


def test_too_many_skipped_steps_in_a_row_stop_the_run():
    net = model()
    optimizer = Optimizer(net, settings(nonfinite_limit=2))
    bad = [torch.full((2, 3), math.nan), torch.zeros(2)]
    drive(net, optimizer, [bad, *gradients(1), bad])
    with pytest.raises(TrainingError, match=r"2 optimizer steps in a row.*not finite"):
        drive(net, optimizer, [bad])


@pytest.mark.parametrize("done", [0, 3])
def test_restored_state_continues_identically(done):
    steps = gradients(6)
    net, again = model(), model(seed=5)
    optimizer = Optimizer(net, settings(warmup=5))
    drive(net, optimizer, steps[:done])
    tensors, numbers = optimizer.state()
    again.load_state_dict(net.state_dict())
    resumed = Optimizer(again, settings(warmup=5))
    resumed.load_state(tensors, numbers)
    drive(net, optimizer, steps[done:])
    drive(again, resumed, steps[done:])
    assert all(map(torch.equal, weights(net), weights(again)))
    assert resumed.lr == optimizer.lr


def test_the_state_handed_out_is_a_copy():
    net = model()
    optimizer = Optimizer(net, settings())
    drive(net, optimizer, gradients(1))
    tensors, _ = optimizer.state()
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    drive(net, optimizer, gradients(2))
    assert {name.split("/")[0] for name in tensors} == {"step", "exp_avg", "exp_avg_sq"}
    assert all(torch.equal(tensors[name], before[name]) for name in tensors)


def test_frozen_parameters_are_left_alone():
    net = model()
    net.bias.requires_grad_(False)
    before = net.bias.clone()
    optimizer = Optimizer(net, settings())
    net.weight.grad = torch.ones(2, 3)
    optimizer.step()
    assert torch.equal(net.bias, before)
    assert all("bias" not in name for name in optimizer.state()[0])
