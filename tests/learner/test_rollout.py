"""Rollouts: exact rows, budgets, groups, determinism; what environments may do to them."""

import dataclasses
import json
import math

import pytest

from stratified_grpo.codec import Codec
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.errors import EpisodeError
from stratified_grpo.rollout import collect
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.samplers.scripted import ScriptedSampler
from stratified_grpo.types import Completion

SEARCH = "look<search> amber </search>"
ANSWER = "<answer> birch </answer>"


def script(*turns):
    """Says its lines in order; the turn is the last part of a request's key."""
    return lambda request, _: turns[min(request.key[-1], len(turns) - 1)]


class Recorder:
    """A sampler that notes every request it is given."""

    def __init__(self, inner, spoil=None):
        self.inner, self.requests, self.ended = inner, [], 0
        self.spoil = spoil or (lambda request, completion: completion)

    def generate(self, requests):
        self.requests.append([dataclasses.replace(r, ids=list(r.ids)) for r in requests])
        found = self.inner.generate(requests)
        return [self.spoil(r, c) for r, c in zip(requests, found, strict=True)]

    def end(self):
        self.ended += 1

    def update_weights(self, version):
        self.inner.update_weights(version)


def play(pool, codec, settings, *turns, cursors=(0,), spoil=None, **changes):
    sampler = Recorder(ScriptedSampler(codec, script(*turns)), spoil)
    groups = collect(
        pool, sampler, codec, settings(max_turn_tokens=30, **changes), step=0, cursors=cursors
    )
    return groups, sampler


def test_a_row_is_prompt_sample_observation_sample(make_pool, codec, settings, fake_env):
    groups, sampler = play(make_pool(), codec, settings, SEARCH, ANSWER)  # known faults 1 and 2
    row = groups[0].rollouts[0].tokens
    prompt = codec.content(fake_env.prompt_of(0))
    first, second = codec.content(SEARCH), codec.content(ANSWER)
    seen = codec.content("\n\n<information>amber amber amber amber </information>\n\n")
    assert row.ids == [*prompt, *first, *seen, *second]
    parts = ((prompt, 0), (first, 1), (seen, 0), (second, 1))
    assert row.mask == [mask for part, mask in parts for _ in part]
    assert row.versions == [mask - 1 for mask in row.mask]
    assert row.num_trainable == len(first) + len(second)
    assert sampler.ended == 1
    assert [list(r[0].ids) for r in sampler.requests] == [prompt, [*prompt, *first, *seen]]


def test_what_an_episode_was_worth_comes_from_the_environment(make_pool, codec, settings):
    groups, _ = play(make_pool(), codec, settings, SEARCH, ANSWER, cursors=(0, 1))
    right, wrong = (group.rollouts[0] for group in groups)
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert (right.status, right.stratum, right.valid) == ("answered", "1", True)
    assert right.metrics["num_searches"] == 1.0
    assert right.metrics["em"] == 1.0


def test_rewards_of_all_turns_add_up(make_pool, codec, settings):
    groups, _ = play(make_pool(step_reward=0.25), codec, settings, SEARCH, "hm", ANSWER)
    assert groups[0].rollouts[0].reward == 1.5


@pytest.mark.parametrize("reward", [float("inf"), float("nan")])
def test_a_reward_that_is_no_number_is_unusable_and_leaves_valid_json(
    make_pool, codec, settings, reward
):
    groups, _ = play(make_pool(step_reward=reward), codec, settings, SEARCH, ANSWER)
    (rollout, *_) = groups[0].rollouts
    assert not rollout.usable

    def refuse(word):
        raise AssertionError(word)

    assert json.loads(rollout.record, parse_constant=refuse)["reward"] is None


def test_what_follows_the_action_leaves_row_and_context(make_pool, codec, settings):
    class Talkative(ScriptedSampler):
        def _stopped(self, ids, stop):
            return None

    def run(text):
        sampler = Recorder(Talkative(codec, script(text, ANSWER)))
        given = settings(max_turn_tokens=60)
        return collect(make_pool(), sampler, codec, given, step=0, cursors=[0]), sampler

    trailing = f"{SEARCH} and then <answer>no</answer>"  # known fault 38
    (long,), sampler = run(trailing)
    (short,), _ = play(make_pool(), codec, settings, SEARCH, ANSWER)
    eos = sorted(codec.eos_ids)
    assert long.rollouts[0].tokens.ids == [*short.rollouts[0].tokens.ids, *eos]
    assert (
        list(sampler.requests[1][0].ids)
        == short.rollouts[0].tokens.ids[: -len(codec.content(ANSWER))]
    )


def test_the_observation_follows_the_token_that_completes_the_action(make_pool, settings, codec):
    class OddBytes(Codec):
        """Reads and writes one id a character, but ``>`` with the two characters after it."""

        def content(self, text):
            return [ord(c) + 1 for c in text]

        def decode(self, ids):
            return "".join(">\n\n" if i == 9999 else chr(i - 1) for i in ids if i)

    odd = OddBytes(codec.tokenizer)
    tag = [*odd.content("<search> x </search"), 9999]

    class Sampler(Recorder):
        def generate(self, requests):
            super().generate(requests)
            ids = tag if len(self.requests) == 1 else odd.content(ANSWER)
            return [
                Completion(
                    ids=tuple(ids),
                    logprobs=(-1.0,) * len(ids),
                    versions=(0,) * len(ids),
                    text=odd.decode(ids),
                    finish="stop",
                )
                for _ in requests
            ]

    sampler = Sampler(ScriptedSampler(odd, script("x")))
    given = settings(max_turn_tokens=60, max_episode_tokens=400)
    (group,) = collect(make_pool(), sampler, odd, given, step=0, cursors=[0])
    prompt = len(sampler.requests[0][0].ids)
    ids = group.rollouts[0].tokens.ids
    assert ids[prompt : prompt + len(tag)] == tag  # whole token kept: newlines and all
    seen = odd.content("\n\n<information>x x x x </information>\n\n")
    assert ids[prompt + len(tag) :][: len(seen)] == seen


def test_every_group_has_its_members_on_its_question(make_pool, codec, settings, fake_env):
    groups, sampler = play(
        make_pool(), codec, settings, ANSWER, cursors=(3, 11, 4), group_size=4
    )  # known faults 18, 19 and 25
    assert [(g.key, g.cursor, len(g.rollouts)) for g in groups] == [
        ("0.0", 3, 4),
        ("0.1", 11, 4),
        ("0.2", 4, 4),
    ]
    for group in groups:
        prompt = codec.content(fake_env.prompt_of(group.cursor))
        for rollout in group.rollouts:
            assert rollout.group == group.key
            assert rollout.tokens.ids[: len(prompt)] == prompt
    keys = [request.key for request in sampler.requests[0]]
    assert keys == [(0, 0, group, member, 0) for group in range(3) for member in range(4)]
    assert [request.row for request in sampler.requests[0]] == list(range(12))


def test_voided_episodes_are_invalid(make_pool, codec, settings):
    groups, _ = play(make_pool(questions="8:void"), codec, settings, SEARCH, ANSWER)
    for rollout in groups[0].rollouts:
        assert (rollout.status, rollout.valid, rollout.usable) == ("error_search", False, False)


def test_turns_and_episodes_have_their_own_budgets(make_pool, codec, settings):  # known fault 120
    free = make_pool(max_searches=99, words=0)
    prompt = len(codec.content("Which word follows amber ?\n"))
    hint = len(codec.content("\nPlease search or answer.\n"))
    room = prompt + 6 + hint + 6 + hint + 3
    given = settings(max_turn_tokens=6, max_episode_tokens=room)
    sampler = Recorder(ScriptedSampler(codec, lambda *_: "and " * 20))
    (group,) = collect(free, sampler, codec, given, step=0, cursors=[0])
    assert [r[0].max_new_tokens for r in sampler.requests] == [6, 6, 3]
    rollout = group.rollouts[0]
    assert (rollout.status, rollout.reward, rollout.usable) == ("length", 0.0, True)
    assert rollout.tokens.num_trainable == 15
    assert len(rollout.tokens) == room


def test_an_observation_that_does_not_fit_ends_the_episode(make_pool, codec, settings):
    words = make_pool(words=80, max_searches=9)
    groups, sampler = play(words, codec, settings, SEARCH, max_episode_tokens=60)
    rollout = groups[0].rollouts[0]
    assert (rollout.status, rollout.reward, rollout.usable) == ("length", 0.0, True)
    assert len(sampler.requests) == 1  # no call beyond the budget
    assert rollout.tokens.mask[-1] == 1
    assert len(rollout.tokens) <= 60


def test_an_environment_need_not_keep_records(codec, settings):
    pool = EnvironmentPool("fake_text_env:BareText-v0", {"words": 80}, stratum="stratum")
    for budget, status in ((60, "length"), (400, "turn_limit")):
        groups, _ = play(pool, codec, settings, SEARCH, max_episode_tokens=budget)
        for rollout in groups[0].rollouts:
            assert (rollout.status, rollout.usable, rollout.record) == (status, True, "")
    pool.close()


def test_a_prompt_that_fills_the_budget_leaves_nothing_to_train(make_pool, codec, settings):
    length = len(codec.content("Which word follows amber ?\n"))  # known fault 117
    groups, sampler = play(make_pool(), codec, settings, ANSWER, max_episode_tokens=length)
    assert sampler.requests == [[]]
    assert {r.status for r in groups[0].rollouts} == {"length"}
    assert not any(r.usable for r in groups[0].rollouts)


def test_an_empty_prompt_is_refused(make_pool, codec, settings):
    with pytest.raises(EpisodeError, match="prompt is empty"):
        play(make_pool(), EmptyCodec(codec.tokenizer), settings, ANSWER)


class EmptyCodec(Codec):
    def prompt(self, text):
        return []


@pytest.mark.parametrize("turn", [0, 1])
def test_a_turn_without_log_probabilities_voids_its_episode(make_pool, codec, settings, turn):
    def spoil(request, completion):  # known faults 3 and 35
        if request.row == 0 and request.key[-1] == turn:
            return dataclasses.replace(completion, logprobs=(math.nan,) * len(completion.ids))
        return completion

    groups, _ = play(make_pool(), codec, settings, SEARCH, ANSWER, spoil=spoil)
    spoilt, good = groups[0].rollouts
    assert (spoilt.status, spoilt.usable, spoilt.record) == ("nonfinite_logprob", False, "")
    assert all(map(math.isfinite, spoilt.tokens.logprobs))
    assert good.usable


def test_the_same_seed_gives_the_same_rollouts(make_pool, still, codec, settings):
    def run(**changes):
        given = settings(**{"group_size": 3, "seed": 5, **changes})
        return collect(make_pool(), HFSampler(still), codec, given, step=2, cursors=[4, 5])

    assert run() == run()
    assert run() != run(seed=6)
    members = [r.tokens.ids for r in run()[0].rollouts]
    assert len(set(map(tuple, members))) == 3
    greedy = run(temperature=0.0)[0].rollouts
    assert greedy[0].tokens.ids == greedy[1].tokens.ids


def test_rows_of_a_random_policy_hold_their_promises(make_pool, still, codec, settings):
    sampler = Recorder(HFSampler(still))
    given = settings(group_size=4, max_turn_tokens=10)
    groups = collect(make_pool(), sampler, codec, given, step=0, cursors=range(6))
    for rollout in (r for g in groups for r in g.rollouts):
        row = rollout.tokens
        assert len(row.ids) == len(row.mask) == len(row.logprobs) == len(row.versions)
        assert all(lp < 0 for lp, mask in zip(row.logprobs, row.mask, strict=True) if mask)
        assert rollout.metrics["num_turns"] >= 1
    asked = [len(requests) for requests in sampler.requests]
    assert asked == sorted(asked, reverse=True)
    for before, after in zip(sampler.requests, sampler.requests[1:], strict=False):
        known = {r.row: list(r.ids) for r in before}
        for request in after:  # every context starts with the one before
            assert list(request.ids)[: len(known[request.row])] == known[request.row]


def test_chat_rows_are_the_templates_rendering(make_pool, settings, tiny_folder):
    from stratified_grpo.policy import load_policy

    tokenizer = load_policy(tiny_folder).codec.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    chat = Codec(tokenizer)
    groups, _ = play(make_pool(role="user"), chat, settings, SEARCH, "hm", ANSWER)
    said = tokenizer.decode(groups[0].rollouts[0].tokens.ids)
    seen = "\n\n<information>amber amber amber amber </information>\n\n"
    assert said == (
        f"[user]Which word follows amber ?\n<|end|>[assistant]{SEARCH}<|end|>[user]{seen}<|end|>"
        f"[assistant]hm<|end|>[user]\nPlease search or answer.\n<|end|>[assistant]{ANSWER}"
    )
