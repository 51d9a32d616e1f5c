"""Models the sampler would sample from another distribution than is trained are refused."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from stratified_grpo.cli import main
from stratified_grpo.errors import ConfigError
from stratified_grpo.policy import load_policy
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.samplers.self_test import check_sampler

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


@pytest.fixture
def write(tmp_path, still):
    """Return a function: a kind of model in, the folder of a small random one out."""

    def write(kind, **changes):
        size = len(still.codec.tokenizer)
        config = AutoConfig.for_model(kind, vocab_size=size, **{**SHAPE, **changes})
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():  # fresh weights are so small that the context would hardly matter
            for parameter in model.parameters():
                if parameter.dim() >= 2:
                    parameter *= 5.0
        model.save_pretrained(tmp_path / kind)
        still.codec.tokenizer.save_pretrained(tmp_path / kind)
        return tmp_path / kind

    return write


def accept(folder, **options):
    policy = load_policy(folder, **options)
    check_sampler(policy, HFSampler(policy))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gpt_neox"])
def test_plain_decoders_pass(write, kind):
    accept(write(kind))


def test_half_precision_passes(write):
    accept(write("qwen3"), dtype="bfloat16")


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
         "has layers of type sliding_attention"),
        ("gemma2", {"final_logit_softcapping": None}, "has layers of type sliding_attention"),
        ("mistral", {"sliding_window": 8}, "gives sampled tokens other log-probabilities"),
        ("gptj", {"n_embd": 32, "n_layer": 2, "n_head": 2, "rotary_dim": 8},
         "gives sampled tokens other log-probabilities"),
        ("bloom", {"n_head": 2, "n_layer": 2}, "cannot be sampled by this learner"),
        ("mamba", {}, "Mamba"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "has layers of type conv"),
        ("cohere", {}, "computes logits beyond hidden states times head"),
    ],
)  # fmt: skip
def test_other_ways_to_attend_are_refused_in_one_sentence(write, kind, changes, says):
    folder = write(kind, **changes)
    with pytest.raises(ConfigError, match=says) as refused:
        accept(folder)
    assert "\n" not in str(refused.value)


def test_a_window_bounds_the_episodes(write, tmp_path, capsys):
    folder = write("mistral", sliding_window=64)
    policy = load_policy(folder)
    assert policy.max_positions == 64
    check_sampler(policy, HFSampler(policy))
    base = ["--model", str(folder), "--env-id", "fake_text_env:FakeText-v0", "--questions", "8"]
    out = ["--out", str(tmp_path / "run"), "--max-episode-tokens", "65"]
    assert main(["train", *base, *out]) == 2
    assert "max_episode_tokens is 65" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_sampler_that_forgets_is_found(still, monkeypatch):
    sampler = HFSampler(still)
    forward = HFSampler._forward

    def shifted(self, ids, positions, valid, first):
        return forward(self, ids, positions + 1, valid, first)

    check_sampler(still, sampler)
    monkeypatch.setattr(HFSampler, "_forward", shifted)
    with pytest.raises(ConfigError, match="by up to"):
        check_sampler(still, sampler)
