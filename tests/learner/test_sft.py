"""Imitation: what is memorised, what is learned from, and what is not."""

import json

import pytest
import torch

from stratified_grpo.config import SftConfig
from stratified_grpo.errors import ConfigError
from stratified_grpo.policy import load_policy
from stratified_grpo.records import read_rollouts
from stratified_grpo.rollout import collect
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.samplers.scripted import ScriptedSampler
from stratified_grpo.sft import _epochs, imitate


@pytest.fixture
def demonstrations(tmp_path, make_pool, codec, settings, fake_env):
    """One search and the right answer for each of the questions; rewards 1, and one of 0."""
    prompts = {fake_env.prompt_of(n): n for n in range(8)}

    def policy(request, text):
        number = next(n for prompt, n in prompts.items() if text.startswith(prompt))
        if request.key[-1] == 0:
            return f"<search> {fake_env.WORDS[number]} </search>"
        return f"<answer> {fake_env.answer_of(0 if number == 7 else number)} </answer>"

    sampler = ScriptedSampler(codec, policy)
    given = settings(group_size=1, max_turn_tokens=30)
    groups = collect(make_pool(), sampler, codec, given, step=0, cursors=range(8))
    path = tmp_path / "episodes.jsonl"
    records = [group.rollouts[0].record for group in groups]
    path.write_text("".join(f"{record}\n" for record in records))
    return path


def config(path, folder, tmp_path, **changes):
    values = {"steps": 60, "batch": 8, "lr": 1e-2, "warmup": 5, "weight_decay": 0.0}
    return SftConfig(
        episodes=path, model=str(folder), out=tmp_path / "out", **{**values, **changes}
    )


def test_a_memorisable_set_is_reproduced_greedily(
    demonstrations, tiny, tiny_folder, tmp_path, make_pool, settings
):
    reported = {}
    given = config(demonstrations, tiny_folder, tmp_path, min_reward=0.5, steps=90)
    tail = imitate(tiny, given, reported.__setitem__)
    assert list(reported) == list(range(1, 91))
    assert tail < 0.02 < 2.0 < reported[1]
    assert tail == pytest.approx(sum(reported[s] for s in range(82, 91)) / 9)
    learned = load_policy(tmp_path / "out")  # what was written is what was trained
    greedy = settings(group_size=1, temperature=0.0, max_turn_tokens=30)
    groups = collect(
        make_pool(), HFSampler(learned), learned.codec, greedy, step=0, cursors=range(7)
    )
    assert [group.rollouts[0].reward for group in groups] == [1.0] * 7
    shown = list(read_rollouts(demonstrations, learned))
    for group, demonstration in zip(groups, shown, strict=False):
        assert group.rollouts[0].tokens.ids == demonstration.tokens.ids


@pytest.mark.parametrize("all_tokens", [False, True])
def test_only_model_segments_are_learned_unless_all_are_asked_for(
    demonstrations, tiny, tiny_folder, tmp_path, all_tokens
):
    """The loss of the first step, by hand over the tokens that count."""
    rows = [r.tokens for r in read_rollouts(demonstrations, tiny)]
    counts = [[i for i in range(1, len(row)) if all_tokens or row.mask[i]] for row in rows]
    total = sum(map(len, counts))
    loss = 0.0
    for row, places in zip(rows, counts, strict=True):
        table = tiny.model(input_ids=torch.tensor([row.ids])).logits[0].float().log_softmax(-1)
        for i in places:
            loss = loss - table[i - 1, row.ids[i]] / total
    reported = {}
    base = {"steps": 1, "lr": 0.0, "warmup": 0, "all_tokens": all_tokens}
    given = config(demonstrations, tiny_folder, tmp_path, **base)
    tail = imitate(tiny, given, reported.__setitem__)
    assert tail == reported[1] == pytest.approx(float(loss.detach()), rel=1e-5)


def test_micro_batches_do_not_matter(demonstrations, tiny_folder, tmp_path):
    losses = []
    for budget in (1, 100_000):
        policy = load_policy(tiny_folder)
        given = config(demonstrations, tiny_folder, tmp_path, steps=3, micro_batch_tokens=budget)
        losses.append(imitate(policy, given))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_poor_episodes_are_left_out(demonstrations, tiny, tiny_folder, tmp_path):
    lines = demonstrations.read_text().splitlines()
    best = tmp_path / "best.jsonl"
    best.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["reward"] == 1.0))
    assert 0 < len(best.read_text().splitlines()) < len(lines)
    ours = config(demonstrations, tiny_folder, tmp_path, steps=2, min_reward=1.0)
    theirs = config(best, tiny_folder, tmp_path, steps=2)
    other = load_policy(tiny_folder)
    assert imitate(tiny, ours) == imitate(other, theirs)
    every = load_policy(tiny_folder)
    assert imitate(every, config(demonstrations, tiny_folder, tmp_path, steps=2)) != imitate(
        load_policy(tiny_folder), theirs
    )


def test_nothing_to_imitate_is_an_error(demonstrations, tiny, tiny_folder, tmp_path):
    given = config(demonstrations, tiny_folder, tmp_path, min_reward=2.0)
    with pytest.raises(ConfigError, match=r"no valid episode.*reward of at least 2.0"):
        imitate(tiny, given)
    assert not (tmp_path / "out").exists()


def test_the_model_can_be_written_on_the_way(demonstrations, tiny, tiny_folder, tmp_path):
    written = []

    def note(step, loss):
        written.append((tmp_path / "out").exists())

    imitate(tiny, config(demonstrations, tiny_folder, tmp_path, steps=3, save_every=1), note)
    assert written == [False, True, True]


def test_epochs_are_permutations_named_by_the_seed():
    def take(count, seed):
        order = _epochs(5, seed)
        return [next(order) for _ in range(count)]

    first = take(15, seed=0)
    assert [sorted(first[i : i + 5]) for i in (0, 5, 10)] == [[0, 1, 2, 3, 4]] * 3
    assert first == take(15, seed=0) != take(15, seed=1)
