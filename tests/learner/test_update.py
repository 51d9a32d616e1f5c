"""One update against a readable loop, and the identities that hold from end to end."""

import math
import random

import numpy as np
import pytest
import torch

from stratified_grpo.errors import TrainingError
from stratified_grpo.optimizer import Optimizer, OptimizerSettings
from stratified_grpo.policy import token_logprobs
from stratified_grpo.update import UpdateSettings, estimate, update


class Noting:
    """Stands for an optimizer: keeps the gradients it is asked to apply."""

    lr = 0.0

    def __init__(self, policy):
        self.named = list(policy.model.named_parameters())
        self.calls = []

    def step(self):
        self.calls.append({n: p.grad.clone() for n, p in self.named if p.grad is not None})
        for _, parameter in self.named:
            parameter.grad = None
        return 0.0


@pytest.fixture
def adam():
    def make(policy, **changes):
        values = {
            "lr": 1e-2,
            "warmup": 0,
            "weight_decay": 0.0,
            "betas": (0.9, 0.95),
            "max_grad_norm": 1e9,
            "nonfinite_limit": 5,
        }
        return Optimizer(policy.model, OptimizerSettings(**{**values, **changes}))

    return make


@pytest.fixture
def make_groups(build):
    """Return a function: rewards and strata of each group in, groups of random rows out."""

    def make(*rewards, strata=None, seed=0, off_policy=0.0, invalid=()):
        rng = random.Random(seed)
        groups = []
        for number, values in enumerate(rewards):
            rollouts = []
            for member, reward in enumerate(values):
                ids = [[rng.randrange(6, 300) for _ in range(rng.randint(1, 6))] for _ in range(4)]
                parts = [(0, [5, *ids[0]]), (1, ids[1]), (0, ids[2]), (1, ids[3])]
                logprobs = [-5.5 + off_policy * rng.uniform(-1, 1) for _ in ids[1] + ids[3]]
                rollouts.append(
                    build.rollout(
                        build.row(parts, logprobs),
                        group=f"0.{number}",
                        stratum=str(strata[number][member]) if strata else "0",
                        reward=reward,
                        valid=(number, member) not in invalid,
                        metrics={"num_searches": float(member)},
                    )
                )
            groups.append(build.group(f"0.{number}", rollouts))
        return groups

    return make


def on_policy(policy, groups):
    """Set the rows' old log-probabilities to the policy's own."""
    for row in (r.tokens for g in groups for r in g.rollouts):
        values = iter(token_logprobs(policy, [row.ids], [row.mask]).tolist())
        row.logprobs = [next(values) if mask else 0.0 for mask in row.mask]
    return groups


def gradient(policy, groups, *, alpha=0.5, reference=None, **changes):
    """The gradient of one update, by parameter, and its metrics."""
    noting = Noting(policy)
    metrics = update(
        policy,
        noting,
        groups,
        alpha=alpha,
        settings=UpdateSettings(**changes),
        reference=reference,
    )
    assert len(noting.calls) <= 1
    return (noting.calls or [{}])[0], metrics


def assert_same(found, expected, tolerance=1e-6):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=tolerance, rtol=1e-4)


def by_hand(policy, groups, advantages, *, agg="token", low=0.2, high=0.2):
    """The gradient by a loop over rows and tokens, with the model's own logits."""
    rollouts = [r for g in groups for r in g.rollouts]
    used = [(r.tokens, a) for r, a in zip(rollouts, advantages, strict=True) if r.usable]
    rows = [row for row, _ in used]
    total = sum(row.num_trainable for row in rows)
    policy.model.zero_grad(set_to_none=True)
    for row, advantage in used:
        table = policy.model(input_ids=torch.tensor([row.ids])).logits[0].float().log_softmax(-1)
        for i, mask in enumerate(row.mask):
            if mask:
                ratio = (table[i - 1, row.ids[i]] - row.logprobs[i]).exp()
                bounded = ratio.clamp(1 - low, 1 + high)
                weight = 1 / total if agg == "token" else 1 / (len(rows) * row.num_trainable)
                loss = -weight * torch.minimum(ratio * advantage, bounded * advantage)
                loss.backward(retain_graph=True)
    named = policy.model.named_parameters()
    out = {n: p.grad.clone() for n, p in named if p.grad is not None}
    policy.model.zero_grad(set_to_none=True)
    return out


REWARDS = ([1.0, 0.0, 0.0, 1.0], [0.2, 0.9, 0.4])
STRATA = ([0, 0, 1, 1], [1, 1, 2])


@pytest.mark.parametrize("agg", ["token", "sequence"])
def test_the_gradient_is_the_loops(tiny, make_groups, agg):
    groups = make_groups(*REWARDS, strata=STRATA, off_policy=0.5, invalid=[(1, 0)])
    rollouts = [r for g in groups for r in g.rollouts]
    values = estimate(rollouts, alpha=0.5, settings=UpdateSettings()).values
    found, _ = gradient(tiny, groups, loss_agg=agg)
    assert_same(found, by_hand(tiny, groups, values, agg=agg))


def test_on_policy_it_is_reinforce_with_the_advantage(tiny, make_groups):
    groups = on_policy(tiny, make_groups(*REWARDS))
    rollouts = [r for g in groups for r in g.rollouts]
    values = estimate(rollouts, alpha=0.0, settings=UpdateSettings()).values
    found, metrics = gradient(tiny, groups, alpha=0.0)
    assert metrics["clip_share"] == 0.0
    assert metrics["kl_behaviour"] == pytest.approx(0.0, abs=1e-6)
    total = sum(r.tokens.num_trainable for r in rollouts)
    loss = 0.0
    for rollout, value in zip(rollouts, values, strict=True):
        row = rollout.tokens
        loss = loss - float(value) * token_logprobs(tiny, [row.ids], [row.mask]).sum() / total
    loss.backward()
    assert_same(found, {n: p.grad for n, p in tiny.model.named_parameters()})


@pytest.mark.parametrize("budget", [1, 30, 100_000])
@pytest.mark.parametrize("agg", ["token", "sequence", "constant"])
def test_micro_batches_do_not_matter(tiny, make_groups, budget, agg):
    groups = make_groups(*REWARDS, strata=STRATA, off_policy=0.5)
    changes = {"loss_agg": agg, "loss_constant": 5}
    whole, expected = gradient(tiny, groups, **changes)
    found, metrics = gradient(tiny, groups, micro_batch_tokens=budget, **changes)
    assert_same(found, whole)
    assert metrics.keys() == expected.keys()
    for name in metrics:
        assert metrics[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name


def test_the_order_of_rows_and_groups_does_not_matter(tiny, make_groups, build):
    groups = make_groups(*REWARDS, strata=STRATA, off_policy=0.5)
    shuffled = [build.group(g.key, g.rollouts[::-1]) for g in groups[::-1]]
    whole, _ = gradient(tiny, groups)
    assert_same(gradient(tiny, shuffled)[0], whole)


def test_log_probabilities_at_masked_places_are_never_read(tiny, make_groups):
    groups = make_groups(*REWARDS, off_policy=0.5)
    expected, _ = gradient(tiny, groups)
    for row in (r.tokens for g in groups for r in g.rollouts):
        row.logprobs = [v if m else math.nan for v, m in zip(row.logprobs, row.mask, strict=True)]
    found, metrics = gradient(tiny, groups)
    assert metrics["nonfinite_rows"] == 0
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_good_rows_become_likelier_and_bad_ones_less(tiny, make_groups, adam):
    groups = on_policy(tiny, make_groups([1.0, 0.0, 0.5]))

    def chance(rollout):
        row = rollout.tokens
        return float(token_logprobs(tiny, [row.ids], [row.mask]).detach().sum())

    before = [chance(r) for r in groups[0].rollouts]
    update(tiny, adam(tiny, lr=1e-3), groups, alpha=0.0, settings=UpdateSettings())
    after = [chance(r) for r in groups[0].rollouts]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_invalid_rows_have_no_influence(tiny_folder, make_groups, build, adam):
    from stratified_grpo.policy import load_policy

    groups = make_groups(*REWARDS, strata=STRATA, invalid=[(0, 1), (1, 2)])
    without = [build.group(g.key, [r for r in g.rollouts if r.valid]) for g in groups]
    weights = []
    for batch in (groups, without):
        policy = load_policy(tiny_folder)
        update(policy, adam(policy), batch, alpha=0.5, settings=UpdateSettings())
        weights.append(policy.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_rows_of_no_advantage_count_but_are_not_run(tiny, make_groups):  # known fault 22
    groups = make_groups([1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0], off_policy=0.3)
    values = estimate([r for g in groups for r in g.rollouts], alpha=0.5, settings=UpdateSettings())
    assert values.gn[4:] == pytest.approx([1.7320, -0.5773, -0.5773, -0.5773], abs=1e-4)
    found, metrics = gradient(tiny, groups)
    assert (metrics["trained_rows"], metrics["rollouts"]) == (4, 8)
    assert metrics["groups/zero_variance"] == 0.5
    assert_same(found, by_hand(tiny, groups, values.values.tolist()))


def test_an_update_without_any_advantage_leaves_the_weights_alone(tiny, make_groups, adam):
    before = {n: p.clone() for n, p in tiny.model.named_parameters()}
    optimizer = adam(tiny, weight_decay=0.1)
    metrics = update(tiny, optimizer, make_groups([1.0] * 3), alpha=0.5, settings=UpdateSettings())
    assert all(torch.equal(p, before[n]) for n, p in tiny.model.named_parameters())
    assert (metrics["trained_rows"], metrics["grad_norm"], optimizer.steps) == (0, 0.0, 0)


def test_minibatches_are_steps_over_whole_groups(tiny_folder, make_groups, adam):
    from stratified_grpo.policy import load_policy

    groups = make_groups([1.0, 0.0, 0.4], [0.0, 1.0], [0.3, 0.6, 0.1])
    together, apart = load_policy(tiny_folder), load_policy(tiny_folder)
    first, second = adam(together), adam(apart)
    metrics = update(together, first, groups, alpha=0.3, settings=UpdateSettings(minibatches=2))
    for part in ([groups[0], groups[2]], [groups[1]]):
        update(apart, second, part, alpha=0.3, settings=UpdateSettings())
    assert first.steps == second.steps == 2
    ours, theirs = together.model.state_dict(), apart.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert metrics["trained_rows"] == 4  # mean over the two steps
    more = adam(together)
    update(together, more, groups, alpha=0.3, settings=UpdateSettings(minibatches=9))
    assert more.steps == 3  # never more steps than groups


def test_the_kl_penalty_pulls_towards_the_reference(tiny, tiny_folder, make_groups, adam):
    from stratified_grpo.policy import load_policy

    reference = load_policy(tiny_folder)
    with torch.no_grad():
        for parameter in tiny.model.parameters():
            parameter += 0.02 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(3)
            )
    groups = make_groups([1.0] * 4)  # no advantage: the penalty is all there is
    optimizer, gaps = adam(tiny, lr=2e-4), []
    for _ in range(12):
        settings = UpdateSettings(kl_coef=1.0)
        metrics = update(tiny, optimizer, groups, alpha=0.5, settings=settings, reference=reference)
        gaps.append(metrics["kl_reference"])
    assert gaps[:3] == sorted(gaps[:3], reverse=True)
    assert max(gaps[1:]) < gaps[0]
    assert gaps[-1] < 0.5 * gaps[0]


def test_a_kl_penalty_without_a_reference_is_refused(tiny, make_groups):
    with pytest.raises(ValueError, match="needs a reference"):
        gradient(tiny, make_groups([1.0, 0.0]), kl_coef=0.1)


def test_a_row_without_a_finite_log_probability_is_left_out_and_counted(tiny, make_groups):
    groups = make_groups([1.0, 0.0, 0.5, 0.2], off_policy=0.3)  # known fault 3
    values = estimate(groups[0].rollouts, alpha=0.0, settings=UpdateSettings()).values.tolist()
    expected = by_hand(tiny, groups, [0.0, *values[1:]])
    row = groups[0].rollouts[0].tokens
    row.logprobs[row.mask.index(1)] = math.nan
    for budget in (1, 8192):
        found, metrics = gradient(tiny, groups, alpha=0.0, micro_batch_tokens=budget)
        assert metrics["nonfinite_rows"] == 1
        assert math.isfinite(metrics["loss"])
        assert_same(found, expected)


def test_steps_in_which_every_row_is_lost_are_skipped_and_stop_the_run(tiny, make_groups, adam):
    groups = make_groups([1.0, 0.0], [0.5, 0.2])
    for row in (r.tokens for g in groups for r in g.rollouts):
        row.logprobs = [math.nan * mask for mask in row.mask]
    before = {n: p.clone() for n, p in tiny.model.named_parameters()}
    optimizer = adam(tiny, nonfinite_limit=3, weight_decay=0.1)
    for number in (1, 2):
        metrics = update(tiny, optimizer, groups, alpha=0.0, settings=UpdateSettings())
        assert (metrics["nonfinite_rows"], metrics["skipped_steps"]) == (4, 1)
        assert (optimizer.skipped, optimizer.steps) == (number, 0)
    with pytest.raises(TrainingError, match="3 optimizer steps in a row"):
        update(tiny, optimizer, groups, alpha=0.0, settings=UpdateSettings())
    assert all(torch.equal(p, before[n]) for n, p in tiny.model.named_parameters())
    update(tiny, optimizer, make_groups([1.0, 0.0]), alpha=0.0, settings=UpdateSettings())
    assert (optimizer.skipped, optimizer.steps) == (0, 1)


@pytest.mark.parametrize("reward", [math.inf, -math.inf, math.nan, None])
def test_a_reward_that_is_no_number_is_an_invalid_rollout(tiny, make_groups, build, reward):
    given = [1.0, 0.0, 0.5, 0.2]
    found, metrics = gradient(tiny, make_groups([*given[:3], reward]))
    assert metrics["invalid"] == 1
    assert all(math.isfinite(value) for value in metrics.values())
    expected, _ = gradient(tiny, make_groups(given, invalid=[(0, 3)]))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_step_that_overflows_is_skipped_and_counted(tiny, make_groups, adam):
    groups = make_groups([1.0, 0.0])
    row = groups[0].rollouts[1].tokens
    row.logprobs = [-200.0 * mask for mask in row.mask]  # a ratio no float32 holds
    before = {n: p.clone() for n, p in tiny.model.named_parameters()}
    optimizer = adam(tiny)
    metrics = update(tiny, optimizer, groups, alpha=0.0, settings=UpdateSettings())
    assert (metrics["skipped_steps"], optimizer.skipped) == (1.0, 1)
    assert all(torch.equal(p, before[n]) for n, p in tiny.model.named_parameters())


def test_nothing_to_train_on_is_an_error(tiny, make_groups):
    groups = make_groups([1.0, 0.0], invalid=[(0, 0), (0, 1)])
    with pytest.raises(TrainingError, match=r"none of the 2 rollouts.*ended with: answered"):
        gradient(tiny, groups)


@pytest.mark.parametrize(
    "change",
    [{"alpha": 0.9}, {"eps": 0.5}, {"ddof": 1}, {"scale": False}, {"min_stratum": 3},
     {"clip_low": 0.01}, {"clip_high": 0.01}, {"loss_agg": "sequence"}, {"loss_agg": "constant"},
     {"loss_agg": "constant", "loss_constant": 3}, {"temperature": 0.6}, {"kl_coef": 0.3}],
)  # fmt: skip
def test_every_switch_changes_the_gradient(
    tiny, tiny_folder, make_groups, change
):  # known fault 29
    from stratified_grpo.policy import load_policy

    reference = load_policy(tiny_folder)
    groups = on_policy(tiny, make_groups(*REWARDS, strata=STRATA))
    with torch.no_grad():  # ratios of 0.9 to 1.1
        tiny.model.get_output_embeddings().weight.mul_(1.03)
    base = {"loss_agg": "constant"} if "loss_constant" in change else {}
    plain, _ = gradient(tiny, groups, reference=reference, **base)
    changed, _ = gradient(tiny, groups, reference=reference, **change)
    gap = max(float((plain[name] - changed[name]).abs().max()) for name in plain)
    assert gap > 1e-6


def test_metrics_say_what_was_trained(tiny, make_groups):
    groups = make_groups(*REWARDS, strata=STRATA, invalid=[(0, 3)])
    _, metrics = gradient(tiny, groups)
    good = [r for g in groups for r in g.rollouts if r.valid]
    every = [r for g in groups for r in g.rollouts]
    assert metrics["rollouts"] == 7
    assert metrics["invalid"] == 1
    assert metrics["reward"] == pytest.approx(np.mean([r.reward for r in good]))
    assert metrics["policy_tokens"] == sum(sum(r.tokens.mask) for r in every)
    assert metrics["tokens"] == sum(len(r.tokens) for r in every)
    assert metrics["episode/num_searches"] == pytest.approx(
        np.mean([r.metrics["num_searches"] for r in good])
    )
    assert metrics["stratum/0/share"] == pytest.approx(2 / 6)
    assert metrics["stratum/1/share"] == pytest.approx(3 / 6)
    assert metrics["bias/cross_stratum"] > 0.0
    assert metrics["entropy"] > 0
