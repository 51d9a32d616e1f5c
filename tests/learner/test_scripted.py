"""The scripted sampler ends turns as a real one does."""

from stratified_grpo.samplers.scripted import ScriptedSampler
from stratified_grpo.types import Request


def request(codec, text="q ", **changes):
    values = {"row": 0, "ids": codec.content(text), "stop": ("</search>",), "max_new_tokens": 50}
    return Request(**{**values, "temperature": 1.0, "key": (0,), **changes})


def say(codec, text, **changes):
    return ScriptedSampler(codec, lambda *_: text).generate([request(codec, **changes)])[0]


def test_it_stops_with_the_token_that_completes_a_stop_string(codec):
    completion = say(codec, "a<search>x</search> and more")
    assert (completion.text, completion.finish) == ("a<search>x</search>", "stop")
    assert list(completion.ids) == codec.content("a<search>x</search>")
    assert completion.logprobs == (0.0,) * len(completion.ids)


def test_it_ends_with_the_end_token(codec):
    completion = say(codec, "a b")
    assert list(completion.ids) == [*codec.content("a b"), *codec.eos_ids]
    assert (completion.text, completion.finish) == ("a b", "eos")


def test_it_keeps_to_the_token_limit(codec):
    for limit in (1, 3):
        completion = say(codec, "one two three four five", max_new_tokens=limit)
        assert len(completion.ids) == limit
        assert completion.finish == "length"
    exact = len(codec.content("one"))
    assert say(codec, "one", max_new_tokens=exact).finish == "length"  # no room for the end token
    assert say(codec, "one", max_new_tokens=exact + 1).finish == "eos"
    closed = "<search>x</search>"
    assert say(codec, closed, max_new_tokens=len(codec.content(closed))).finish == "stop"


def test_the_script_reads_the_request_and_its_context(codec):
    sampler = ScriptedSampler(codec, lambda asked, text: f"{text.upper()}{asked.row}")
    sampler.update_weights(4)
    both = sampler.generate([request(codec, "ab"), request(codec, "cd", row=1)])
    sampler.end()
    assert [c.text for c in both] == ["AB0", "CD1"]
    assert {v for c in both for v in c.versions} == {4}
