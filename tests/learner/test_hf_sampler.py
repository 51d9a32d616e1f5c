"""The Transformers sampler against a plain loop that has no cache and no batch."""

import dataclasses
import math
import typing

import pytest
import torch

from stratified_grpo.policy import Policy, token_logprobs
from stratified_grpo.samplers.hf import HFSampler, _stream
from stratified_grpo.types import Request

PROMPTS = (
    "Which word follows amber ?\n",
    "Which word follows",
    "<information>birch birch birch cedar </information>\n\n Please",
    "x",
    "Which word follows heron ?\n<search> heron </search>",
)


def ask(codec, row, text, **changes):
    values = {
        "row": row,
        "ids": text if isinstance(text, list) else codec.content(text),
        "stop": ("</search>", "</answer>"),
        "max_new_tokens": 12,
        "temperature": 1.0,
        "key": (0, 0, row, 0, 0),
    }
    return Request(**{**values, **changes})


@torch.no_grad()
def loop(policy, request):
    """Sample one token after the other, each from the whole context."""
    codec, ids, uniforms = policy.codec, list(request.ids), _stream(request.key).random(100)
    new, finish = [], ""
    while not finish:
        logits = policy.model(input_ids=torch.tensor([ids + new])).logits[0, -1].double()
        if request.temperature == 0:
            token = int(logits.argmax())
        else:
            chances = torch.softmax(logits / request.temperature, dim=-1).tolist()
            token, rest = 0, uniforms[len(new)] * sum(chances) - chances[0]
            while rest >= 0:
                token += 1
                rest -= chances[token]
        new.append(token)
        if token in codec.eos_ids:
            finish = "eos"
        elif any(stop in codec.decode(new) for stop in request.stop):
            finish = "stop"
        elif len(new) == request.max_new_tokens:
            finish = "length"
    return tuple(new), finish


def ids_of(completions):
    return [completion.ids for completion in completions]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.6])
def test_it_equals_the_plain_loop(still, codec, temperature):
    requests = [ask(codec, i, p, temperature=temperature) for i, p in enumerate(PROMPTS)]
    completions = HFSampler(still).generate(requests)
    for request, completion in zip(requests, completions, strict=True):
        assert (completion.ids, completion.finish) == loop(still, request)
        assert completion.text == codec.decode(completion.ids)
        assert len(completion.logprobs) == len(completion.versions) == len(completion.ids)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_log_probabilities_are_the_learners(still, codec, temperature):
    requests = [ask(codec, i, p, temperature=temperature) for i, p in enumerate(PROMPTS)]
    completions = HFSampler(still).generate(requests)
    ids = [[*r.ids, *c.ids] for r, c in zip(requests, completions, strict=True)]
    masks = [
        [0] * len(r.ids) + [1] * len(c.ids) for r, c in zip(requests, completions, strict=True)
    ]
    found = torch.tensor([value for c in completions for value in c.logprobs])
    expected = token_logprobs(still, ids, masks, temperature).detach()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


class Fixed(Policy):
    """The same logits whatever it reads."""

    def hidden(self, input_ids, **_):
        return torch.zeros(*input_ids.shape, 1)

    def logits(self, hidden):
        return torch.tensor(self.model).expand(*hidden.shape[:-1], len(self.model))


def test_the_largest_uniform_draws_the_last_possible_token(codec, monkeypatch):
    class Largest:
        def random(self, count):
            return [math.nextafter(1.0, 0.0)] * count

    monkeypatch.setattr("stratified_grpo.samplers.hf._stream", lambda key: Largest())
    policy = Fixed(model=(2.0, 1.0, -math.inf), codec=codec, device=torch.device("cpu"))
    (completion,) = HFSampler(policy).generate([ask(codec, 0, [5], stop=(), max_new_tokens=3)])
    assert completion.ids == (1, 1, 1)


def test_only_new_tokens_are_run(still, codec):
    class Counting(Policy):
        run: typing.ClassVar[list[int]] = []

        def hidden(self, input_ids, **kwargs):
            self.run.append(input_ids.numel())
            return super().hidden(input_ids, **kwargs)

    sampler = HFSampler(Counting(model=still.model, codec=codec, device=still.device))
    ids = codec.content(PROMPTS[0])
    for new in (len(ids), 4, 4):
        Counting.run.clear()
        request = ask(codec, 0, list(ids), stop=(), max_new_tokens=5)
        (completion,) = sampler.generate([request])
        # what the row has gained, among it the last token of the turn before, then one by one
        assert Counting.run == [new, 1, 1, 1, 1]
        ids += [*completion.ids, 7, 8, 9]


def test_log_probabilities_are_of_the_scaled_distribution(codec):  # known fault 33
    sampler = HFSampler(Fixed(model=(2.0, 1.0, 0.0), codec=codec, device=torch.device("cpu")))
    request = ask(codec, 0, [5], temperature=0.5, max_new_tokens=30, stop=())
    (completion,) = sampler.generate([request])
    expected = torch.log_softmax(torch.tensor([4.0, 2.0, 0.0]), -1).tolist()
    assert expected[0] == pytest.approx(-0.1429, abs=1e-4)
    for token, logprob in zip(completion.ids, completion.logprobs, strict=True):
        assert logprob == pytest.approx(expected[token], abs=1e-6)
    assert 0 in completion.ids


def test_a_turn_depends_on_its_key_alone(still, codec):
    requests = [ask(codec, i, p) for i, p in enumerate(PROMPTS)]
    together = HFSampler(still).generate(requests)
    alone = [HFSampler(still).generate([request])[0] for request in requests]
    backwards = HFSampler(still).generate(requests[::-1])[::-1]
    shorter = [
        dataclasses.replace(r, max_new_tokens=1 + i) if i != 2 else r
        for i, r in enumerate(requests)
    ]
    some = HFSampler(still).generate(shorter)
    assert ids_of(together) == ids_of(alone) == ids_of(backwards)
    assert some[2].ids == together[2].ids  # its neighbours finished early
    for part, whole in zip(some, together, strict=True):
        assert whole.ids[: len(part.ids)] == part.ids
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    other_key = [dataclasses.replace(r, key=(1, *r.key[1:])) for r in requests]
    assert ids_of(HFSampler(still).generate(other_key)) != ids_of(together)


def test_members_of_a_group_differ_and_rows_do_not_name_the_stream(still, codec):
    same = [ask(codec, row, PROMPTS[0], key=(0, 0, 0, 0, 0)) for row in (3, 7)]
    first, second = HFSampler(still).generate(same)
    assert first == second
    members = [ask(codec, row, PROMPTS[0], key=(0, 0, 0, row, 0)) for row in range(4)]
    assert len({c.ids for c in HFSampler(still).generate(members)}) == 4


@pytest.mark.parametrize("budget", [1, 20, 16_384])
def test_prefill_in_parts_is_the_same(still, codec, budget):
    requests = [ask(codec, i, p) for i, p in enumerate(PROMPTS)]
    assert ids_of(HFSampler(still, prefill_budget=budget).generate(requests)) == ids_of(
        HFSampler(still).generate(requests)
    )


def play(sampler, codec, *, forget, cut=0, turns=4):
    """Several turns of five rows that shrink in number and change order; what was sampled."""
    rows = {i: codec.content(text) for i, text in enumerate(PROMPTS)}
    said = []
    orders = [[0, 1, 2, 3, 4], [4, 2, 0, 3], [3, 4, 2], [2], [2, 4]][:turns]
    for turn, order in enumerate(orders):
        requests = [ask(codec, row, list(rows[row]), key=(9, 9, row, 0, turn)) for row in order]
        for row, completion in zip(order, sampler.generate(requests), strict=True):
            kept = completion.ids[: max(1, len(completion.ids) - cut)]
            rows[row] += [*kept, *codec.content(f"\nseen {row} {turn}\n")]
            said.append((row, turn, completion.ids))
        if forget:
            sampler.end()
    return said


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_the_cache_across_turns_changes_nothing(still, codec, cut):
    cached = play(HFSampler(still), codec, forget=False, cut=cut, turns=5)
    assert cached == play(HFSampler(still), codec, forget=True, cut=cut, turns=5)
    split = play(HFSampler(still, prefill_budget=25), codec, forget=False, cut=cut, turns=5)
    assert cached == split


def test_a_context_that_changed_in_the_middle_is_run_again(still, codec):
    sampler = HFSampler(still)
    sampler.generate([ask(codec, 0, PROMPTS[0] + " amber amber")])
    changed = ask(codec, 0, PROMPTS[4] + " amber amber amber")
    assert ids_of(sampler.generate([changed])) == ids_of(HFSampler(still).generate([changed]))
    shorter = ask(codec, 0, list(changed.ids[:3]))
    assert ids_of(sampler.generate([shorter])) == ids_of(HFSampler(still).generate([shorter]))


def test_the_same_context_again_gives_the_same_turn(still, codec):
    sampler, request = HFSampler(still), ask(codec, 0, PROMPTS[0])
    assert ids_of(sampler.generate([request])) == ids_of(sampler.generate([request]))


def test_an_unknown_row_starts_a_new_cache(still, codec):
    sampler = HFSampler(still)
    sampler.generate([ask(codec, 0, PROMPTS[0])])
    requests = [ask(codec, 0, PROMPTS[0]), ask(codec, 5, PROMPTS[1])]
    assert ids_of(sampler.generate(requests)) == ids_of(HFSampler(still).generate(requests))


def test_no_requests_no_completions(still):
    assert HFSampler(still).generate([]) == []


def test_a_stop_string_may_span_tokens(still, codec):
    free = ask(codec, 0, PROMPTS[0], stop=(), max_new_tokens=30)
    (unstopped,) = HFSampler(still).generate([free])
    assert unstopped.finish == "length"
    pieces = [codec.decode([token]) for token in unstopped.ids]
    joint = next(
        i for i in range(3, 29) if "\ufffd" not in pieces[i] + pieces[i + 1] + pieces[i - 1]
    )
    stop = pieces[joint - 1][-1] + pieces[joint] + pieces[joint + 1][0]
    request = dataclasses.replace(free, stop=("never said", stop))
    (stopped,) = HFSampler(still).generate([request])
    assert stopped.finish == "stop"
    assert stop in stopped.text
    assert stop not in codec.decode(stopped.ids[:-1])
    assert stopped.ids == unstopped.ids[: len(stopped.ids)]


def test_one_stop_string_may_be_part_of_another(still, codec):  # known fault 48
    free = ask(codec, 0, PROMPTS[0], stop=(), max_new_tokens=30)
    (unstopped,) = HFSampler(still).generate([free])
    pieces = [codec.decode([token]) for token in unstopped.ids]
    joint = next(i for i in range(3, 29) if "\ufffd" not in pieces[i] + pieces[i + 1])
    short, long = pieces[joint], pieces[joint] + pieces[joint + 1]
    for stops in ((short, long), (long, short)):
        (stopped,) = HFSampler(still).generate([dataclasses.replace(free, stop=stops)])
        (alone,) = HFSampler(still).generate([dataclasses.replace(free, stop=(short,))])
        assert stopped == alone
        assert stopped.finish == "stop"


def test_a_stop_string_of_a_character_in_several_tokens(still, codec):
    ids = codec.content("\u0394")  # a letter the vocabulary has only as bytes
    assert len(ids) == 2
    assert ids[-1] in HFSampler(still)._enders(("\u0394",))


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_the_token_limit_is_exact(still, codec, limit):
    requests = [ask(codec, i, p, stop=(), max_new_tokens=limit) for i, p in enumerate(PROMPTS)]
    for completion in HFSampler(still).generate(requests):
        assert completion.finish == "length"
        assert len(completion.ids) == limit


def test_the_end_token_stays_in_ids_and_not_in_text(tiny, codec):
    (eos,) = codec.eos_ids
    request = ask(codec, 0, PROMPTS[0], temperature=0.0)
    with torch.no_grad():
        last = tiny.hidden(torch.tensor([request.ids]))[0, -1]
        tiny.model.get_output_embeddings().weight[eos] = 10 * last
    other = ask(codec, 1, PROMPTS[1], max_new_tokens=3)
    completion, _ = HFSampler(tiny).generate([request, other])
    assert (completion.ids, completion.text, completion.finish) == ((eos,), "", "eos")


def test_new_weights_are_followed_at_once_and_stamped(tiny, codec):  # known faults 30 and 31
    sampler, request = HFSampler(tiny), ask(codec, 0, PROMPTS[0], stop=())
    (before,) = sampler.generate([request])
    assert set(before.versions) == {0}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in tiny.model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    sampler.update_weights(7)
    (after,) = sampler.generate([request])
    assert set(after.versions) == {7}
    assert after.ids == loop(tiny, request)[0]
    assert after.ids != before.ids
