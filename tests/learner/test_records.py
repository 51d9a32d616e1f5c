"""Recorded episodes become the very rows that were sampled; foreign ones are tokenised once."""

import json

import pytest
import torch

from stratified_grpo.codec import Codec
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.errors import EpisodeError
from stratified_grpo.policy import load_policy, token_logprobs
from stratified_grpo.records import fill_logprobs, grouped, read_rollouts, read_texts, to_rollout
from stratified_grpo.rollout import collect
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.samplers.scripted import ScriptedSampler
from stratified_grpo.types import Group

RECORD = {
    "schema": "searchqa.episode/1",
    "question": {"id": "q1", "golden_answers": ["birch"]},
    "segments": [
        {"source": "prompt", "text": "Which word follows amber ?\n"},
        {"source": "model", "text": "<search> amber </search>"},
        {"source": "environment", "text": "\n\n<information>amber </information>\n\n"},
        {"source": "model", "text": "<answer> birch </answer>"},
    ],
    "counts": {"num_searches": 1},
    "stratum": "1",
    "reward": 1.0,
    "reward_parts": {"em": 1.0},
    "status": "answered",
    "valid": True,
}


def changed(**changes):
    return {**json.loads(json.dumps(RECORD)), **changes}


@pytest.fixture
def write(tmp_path):
    def write(*records, name="episodes.jsonl"):
        path = tmp_path / name
        lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def sampled(still, settings):
    """Rollouts of the random policy, among them cut, voided and answered ones."""
    random = HFSampler(still)
    script = ScriptedSampler(still.codec, lambda *_: "ah<search> \u0394 </search>")
    groups = []
    for sampler, kwargs, budget in (
        (random, {}, 300),
        (script, {"questions": "8:void"}, 300),
        (random, {"words": 40}, 70),
        (script, {"words": 40}, 70),
    ):
        pool = EnvironmentPool("fake_text_env:FakeText-v0", kwargs, stratum="turns")
        given = settings(group_size=4, max_turn_tokens=40, max_episode_tokens=budget)
        groups += collect(pool, sampler, still.codec, given, step=len(groups), cursors=[0, 3])
        pool.close()
    return [rollout for group in groups for rollout in group.rollouts]


def test_sampled_rows_come_back_identical(sampled, write, still):
    back = list(read_rollouts(write(*[r.record for r in sampled]), still))
    assert {r.status for r in sampled} >= {"length", "turn_limit", "error_search"}
    assert len(back) == len(sampled)
    for ours, theirs in zip(sampled, back, strict=True):
        assert theirs.tokens == ours.tokens
        assert theirs.fresh_logprobs
        for name in ("group", "stratum", "reward", "valid", "usable"):
            assert getattr(theirs, name) == getattr(ours, name), name
        assert theirs.metrics["num_turns"] == ours.metrics["num_turns"]
    assert {r.stratum[:2] for r in back} == {"t/"}  # the key that was trained on


def test_a_record_is_the_environments_own_with_additions(sampled, codec):
    for rollout in sampled:
        record = json.loads(rollout.record)
        assert record["schema"] == "searchqa.episode/1"
        assert record["group"] == rollout.group
        said = [s for s in record["segments"] if s["source"] == "model"]
        for segment in said:
            assert segment["tokenizer_hash"] == codec.fingerprint
            assert codec.decode(segment["token_ids"]).startswith(segment["text"])
        trained = sum(len(s["token_ids"]) for s in said)
        assert trained == rollout.tokens.num_trainable


def test_chat_rows_come_back_identical(settings, tiny_folder):
    tokenizer = load_policy(tiny_folder).codec.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    chat = Codec(tokenizer)
    pool = EnvironmentPool("fake_text_env:FakeText-v0", {"role": "tool"}, stratum="stratum")
    lines = ("hm", "<search> birch </search>", "<answer> x </answer>")
    sampler = ScriptedSampler(chat, lambda request, _: lines[request.key[-1]])
    (group,) = collect(pool, sampler, chat, settings(max_turn_tokens=30), step=0, cursors=[0])
    pool.close()
    for rollout in group.rollouts:
        back = to_rollout(json.loads(rollout.record), chat)
        assert back.tokens == rollout.tokens
        assert back.fresh_logprobs


def foreign(rollout):
    """The rollout's record as another tokenizer's."""
    record = json.loads(rollout.record)
    for segment in record["segments"]:
        if segment["source"] == "model":
            segment["tokenizer_hash"] = "another"
    return record


def test_a_foreign_tokenizers_rows_are_tokenised_here(sampled, codec):
    for rollout in sampled:
        if not all(mask == 0 for mask in rollout.tokens.mask):
            row = to_rollout(foreign(rollout), codec)
            assert not row.fresh_logprobs
            assert set(row.tokens.versions) <= {-1}
            record = json.loads(rollout.record)
            said = "".join(s["text"] for s in record["segments"] if s["source"] == "model")
            trained = [t for t, m in zip(row.tokens.ids, row.tokens.mask, strict=True) if m]
            assert codec.decode(trained) == said


def test_text_alone_is_enough(codec):
    row = to_rollout(RECORD, codec)
    texts = [segment["text"] for segment in RECORD["segments"]]
    parts = [(codec.content(text), number % 2) for number, text in enumerate(texts)]
    assert row.tokens.ids == [t for ids, _ in parts for t in ids]
    assert row.tokens.mask == [mask for ids, mask in parts for _ in ids]
    assert (row.group, row.stratum, row.reward, row.fresh_logprobs) == ("q1", "1", 1.0, False)
    assert row.metrics == {"num_searches": 1.0, "em": 1.0}


def test_ids_without_log_probabilities_are_kept(codec):
    record = changed()
    odd = [codec.content("a")[0], *codec.content(" b")]  # any ids, not what the text encodes to
    for segment in record["segments"]:
        if segment["source"] == "model":
            segment.update(token_ids=odd, tokenizer_hash=codec.fingerprint)
    row = to_rollout(record, codec)
    assert [t for t, m in zip(row.tokens.ids, row.tokens.mask, strict=True) if m] == odd * 2
    assert not row.fresh_logprobs


def test_an_empty_reply_of_ours_keeps_the_row_exact(codec):
    record = changed()
    said = [s for s in record["segments"] if s["source"] == "model"]
    said[0].update(token_ids=[], logprobs=[], version=3, tokenizer_hash=codec.fingerprint)
    said[1].update(token_ids=[7], logprobs=[-0.5], version=3, tokenizer_hash=codec.fingerprint)
    row = to_rollout(record, codec)
    assert row.fresh_logprobs
    assert row.tokens.num_trainable == 1


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_unknown_log_probabilities_are_computed_and_known_ones_left(
    still, sampled, codec, temperature
):
    rows = [to_rollout(RECORD, codec), to_rollout(changed(valid=False), codec), sampled[0]]
    known = list(sampled[0].tokens.logprobs)
    (group,) = fill_logprobs(still, [_group(rows)], temperature=temperature, budget=30)
    filled, invalid, ours = group.rollouts
    assert all(r.fresh_logprobs for r in group.rollouts)
    row = filled.tokens
    expected = token_logprobs(still, [row.ids], [row.mask], temperature)
    found = torch.tensor([v for v, m in zip(row.logprobs, row.mask, strict=True) if m])
    torch.testing.assert_close(found, expected.detach(), atol=1e-5, rtol=1e-5)
    assert all(v == 0.0 for v, m in zip(row.logprobs, row.mask, strict=True) if not m)
    assert ours.tokens.logprobs == known
    assert set(invalid.tokens.logprobs) == {0.0}  # nobody will read them


def _group(rows):
    return Group(key="g", cursor=-1, rollouts=tuple(rows))


def test_groups_are_named_by_the_record_or_by_its_question(codec):
    records = [changed(group="b"), changed(), changed(group="a"), changed(group="b")]
    groups = grouped([to_rollout(record, codec) for record in records])
    assert [(g.key, len(g.rollouts)) for g in groups] == [("b", 2), ("q1", 1), ("a", 1)]


def test_rollouts_of_different_prompts_never_share_a_group(codec):
    other = changed(group="0.0")
    other["segments"][0]["text"] = "Which word follows birch ?\n"
    mixed = [to_rollout(record, codec) for record in (changed(group="0.0"), other)]
    with pytest.raises(EpisodeError, match=r"group '0\.0' holds rollouts of different prompts"):
        grouped(mixed)
    silent = changed(group="0.0", segments=RECORD["segments"][:1])  # voided before its first reply
    assert len(grouped([mixed[0], to_rollout(silent, codec)])) == 1


def test_groups_of_one_teach_nothing(codec):
    alone = [to_rollout(changed(group=name), codec) for name in "abc"]
    with pytest.raises(EpisodeError, match=r"none of the 3 groups has two rollouts.*\"group\""):
        grouped(alone)


@pytest.mark.parametrize("index", [400_000, -1, 5.0, "5", True, None])
def test_ids_the_model_does_not_know_are_named(write, still, index):
    record = changed()
    record["segments"][1].update(
        token_ids=[5, index], logprobs=[-1.0, -2.0], tokenizer_hash=still.codec.fingerprint
    )
    with pytest.raises(EpisodeError, match=rf"episodes\.jsonl, line 2: token id {index!r} is no"):
        list(read_rollouts(write(RECORD, record), still))


def test_rows_beyond_the_models_window_are_named(write, still):
    long, invalid = changed(), changed(valid=False)
    for record in (long, invalid):
        record["segments"][2]["text"] = "amber birch " * 600
    assert len(list(read_rollouts(write(RECORD, invalid), still))) == 2  # it will not be run
    with pytest.raises(EpisodeError, match=r"line 2: the episode has \d+ tokens.*for 1024"):
        list(read_rollouts(write(RECORD, long), still))


def test_an_unscored_record_is_not_usable(codec):
    row = to_rollout(changed(reward=None), codec)
    assert row.reward is None
    assert not row.usable


NO_PROMPT = changed(segments=RECORD["segments"][1:])
SPOILT = changed()
SPOILT["segments"][1].update(token_ids=[5], logprobs=[-1.0, -2.0])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: not an episode record of schema searchqa.episode/1"),
        (changed(schema="other/2"), "line 2: .*schema is 'other/2'"),
        ({k: v for k, v in RECORD.items() if k != "stratum"}, "line 2: .*no key 'stratum'"),
        (changed(segments="text"), "line 2: not an episode record"),
        (changed(reward="much"), "line 2: not an episode record"),
        (changed(question=None, group=""), "line 2: not an episode record"),
        (NO_PROMPT, "line 2: .*first segment must be a prompt"),
    ],
)
def test_a_malformed_line_is_named(write, line, says, still):
    with pytest.raises(EpisodeError, match=says):
        list(read_rollouts(write(RECORD, line), still))


def test_ids_and_log_probabilities_that_do_not_match_are_named(write, codec, still):
    SPOILT["segments"][1]["tokenizer_hash"] = codec.fingerprint
    with pytest.raises(EpisodeError, match=r"line 1: .*1 sampled tokens came with 2 log"):
        list(read_rollouts(write(SPOILT), still))


def test_a_line_that_is_not_utf8_is_named(tmp_path, still):
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(json.dumps(RECORD).encode() + b'\n{"schema": "\xff"}\n')
    with pytest.raises(EpisodeError, match="line 2: not an episode record"):
        list(read_rollouts(path, still))
    with pytest.raises(EpisodeError, match="line 2: not an episode record"):
        list(read_texts(path))


def test_blank_lines_do_not_count_and_an_empty_file_is_refused(write, still):
    path = write("", RECORD, "  ")
    assert len(list(read_rollouts(path, still))) == 1
    (text,) = read_texts(path)
    assert text == "".join(segment["text"] for segment in RECORD["segments"])
    with pytest.raises(EpisodeError, match="holds no episodes"):
        list(read_rollouts(write("", name="empty.jsonl"), still))
