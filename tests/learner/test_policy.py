"""Log-probabilities of trainable tokens, and what must not reach them."""

import pytest
import torch

from stratified_grpo.errors import ConfigError
from stratified_grpo.policy import Policy, _check_head, load_policy, token_logprobs

IDS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14, 15, 16, 17]]
MASKS = [[0, 0, 1, 1, 0, 1], [0, 1, 1], [0, 0, 0, 1]]


def plain(policy, ids, mask, temperature=1.0):
    """One row through the model's own logits, no padding, one token after the other."""
    logits = policy.model(input_ids=torch.tensor([ids])).logits[0].float() / temperature
    table = torch.log_softmax(logits, dim=-1)
    return [table[i - 1, ids[i]] for i in range(1, len(ids)) if mask[i]]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_they_are_the_models_own(still, temperature):
    expected = [v for i, m in zip(IDS, MASKS, strict=True) for v in plain(still, i, m, temperature)]
    found = token_logprobs(still, IDS, MASKS, temperature)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-5)


def test_padding_and_order_change_nothing(still):
    parts = [token_logprobs(still, [i], [m]) for i, m in zip(IDS, MASKS, strict=True)]
    torch.testing.assert_close(token_logprobs(still, IDS, MASKS), torch.cat(parts))
    backwards = token_logprobs(still, IDS[::-1], MASKS[::-1])
    torch.testing.assert_close(backwards, torch.cat(parts[::-1]))


def test_a_greedy_temperature_counts_as_one(still):
    assert torch.equal(token_logprobs(still, IDS, MASKS, 0.0), token_logprobs(still, IDS, MASKS))


def test_a_trainable_first_token_is_refused(still):
    with pytest.raises(ValueError, match="first token of a row has no context"):
        token_logprobs(still, [[1, 2]], [[1, 1]])


def gradients_of(policy, ids, masks, change=None):
    """Gradients of a weighted sum of log-probabilities; ``change`` edits logits of every token."""
    model = policy.model
    model.zero_grad(set_to_none=True)
    logits = model(input_ids=torch.tensor([ids])).logits
    if change is not None:
        logits = change(logits)
    table = torch.log_softmax(logits.float(), dim=-1)[0, :-1]
    chosen = table.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    keep = torch.tensor(masks[1:], dtype=torch.bool)
    weights = torch.arange(1.0, 1.0 + int(keep.sum()))
    loss = (weights * chosen[keep]).sum()
    loss.backward()
    return float(loss.detach()), {n: p.grad.clone() for n, p in model.named_parameters()}


def test_logits_at_masked_places_reach_neither_loss_nor_gradients(tiny):  # known fault 13
    ids, mask = IDS[0], MASKS[0]
    masked = torch.tensor([1.0 - m for m in mask[1:]] + [1.0])
    loss, gradients = gradients_of(tiny, ids, mask)
    pushed = gradients_of(tiny, ids, mask, lambda logits: logits + 10 * masked[None, :, None])
    noise = torch.randn(1, len(ids), 400, generator=torch.Generator().manual_seed(0))
    noisy = gradients_of(
        tiny, ids, mask, lambda g: g + masked[None, :, None] * noise[..., : g.shape[-1]]
    )
    for other_loss, other in (pushed, noisy):
        assert other_loss == loss
        assert all(torch.equal(other[name], gradients[name]) for name in gradients)
    # and ours is that loss
    tiny.model.zero_grad(set_to_none=True)
    ours = token_logprobs(tiny, [ids], [mask])
    (torch.arange(1.0, 1.0 + len(ours)) * ours).sum().backward()
    for name, parameter in tiny.model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-4)
    # without the mask the same change is seen, so this test can fail
    everything = [0, *([1] * (len(ids) - 1))]
    dropped = gradients_of(
        tiny, ids, everything, lambda g: g + masked[None, :, None] * noise[..., : g.shape[-1]]
    )
    assert dropped[0] != gradients_of(tiny, ids, everything)[0]


def test_ids_after_the_last_trained_token_change_nothing(tiny):
    mask = [0, 0, 1, 0, 0]
    found = []
    for tail in ([8, 9], [200, 300]):
        tiny.model.zero_grad(set_to_none=True)
        value = token_logprobs(tiny, [[5, 6, 7, *tail]], [mask])
        value.sum().backward()
        grads = [p.grad.clone() for p in tiny.model.parameters()]
        found.append((value.detach(), grads))
    assert torch.equal(found[0][0], found[1][0])
    for a, b in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-5)


def test_end_of_sequence_is_trained_although_padding_has_no_id(still, codec):  # known fault 12
    (eos,) = codec.eos_ids
    assert eos == 0  # what rows are padded with
    ids, mask = [5, 6, 0, 7, 0], [0, 1, 1, 0, 1]
    expected = torch.stack(plain(still, ids, mask))
    padded = token_logprobs(still, [ids, [1, 2, 3, 4, 5, 6, 7]], [mask, [0, 1, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(padded[:3], expected, atol=1e-5, rtol=1e-5)


def test_a_model_that_caps_its_logits_is_refused(tiny):
    class Capped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            return super().__getattr__(name) if name == "inner" else getattr(self.inner, name)

        def forward(self, **kwargs):
            output = self.inner(**kwargs)
            output.logits = torch.tanh(output.logits) / 3
            return output

    with pytest.raises(ConfigError, match="does not support that architecture"):
        _check_head(Policy(model=Capped(tiny.model), codec=tiny.codec, device=tiny.device))


def test_loading_says_what_is_missing(tmp_path, tiny_folder):
    with pytest.raises(ConfigError, match=r"cannot load a model.*config\.json"):
        load_policy(tmp_path / "nothing" / "here")
    for path in tiny_folder.iterdir():
        if path.name != "model.safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match="cannot load a model"):
        load_policy(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ConfigError, match="cannot load a model"):
        load_policy(tmp_path)
    with pytest.raises(ConfigError, match="float33"):
        load_policy(tiny_folder, dtype="float33")
    with pytest.raises(ConfigError, match="gpu7"):
        load_policy(tiny_folder, device="gpu7")


def test_a_policy_knows_its_window(still):
    assert still.max_positions == 1024
