"""The policy: a causal language model in the Hugging Face format, and its log-probabilities.

Logits are computed on trainable positions only (the hidden states are selected before the head),
after a start-up check that this equals the model's own logits. Rows are right-padded, so a causal
model needs no attention mask and takes the fast attention path. Loading never unpickles and never
trusts remote code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stratified_grpo.codec import Codec
from stratified_grpo.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A model with its codec."""

    model: Any
    """A Hugging Face causal language model."""
    codec: Codec
    """Text to ids and back for its tokenizer."""
    device: torch.device
    """Where the parameters are."""

    def hidden(self, input_ids: Tensor, **kwargs: Any) -> Tensor:
        """Last hidden states, [b, n] ids -> [b, n, h]."""
        output = self.model.base_model(input_ids=input_ids, **kwargs)
        return output.last_hidden_state  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """Head on selected hidden states, [..., h] -> [..., vocabulary] in float32."""
        return self.model.get_output_embeddings()(hidden).float()  # type: ignore[no-any-return]

    @property
    def vocabulary(self) -> int:
        """Token ids the model knows: those below this number."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    @property
    def max_positions(self) -> int:
        """Longest context the model accepts and attends to in full, in tokens."""
        config = self.model.config
        positions = getattr(config, "max_position_embeddings", None) or 1 << 30
        window = getattr(config, "sliding_window", None)
        if not window or getattr(config, "use_sliding_window", True) is False:
            return int(positions)
        return min(int(positions), int(window))


def load_policy(
    path: str | Path, *, device: str = "cpu", dtype: str = "float32", chat: bool | None = None
) -> Policy:
    """Load a policy from a folder or a hub name and check that its head can be applied by itself.

    Args:
        path: a folder in the Hugging Face format, or a hub name when the hub is reachable.
        device: torch device.
        dtype: parameter type by name, such as ``float32`` or ``bfloat16``.
        chat: see `Codec`.

    Raises:
        ConfigError: there is no such model, it is not a causal language model of full attention
            and a plain head, or its device or parameter type does not exist here.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, kind = _device(device), _dtype(dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path))
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(path), dtype=kind, use_safetensors=True
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise ConfigError(
            f"cannot load a model and tokenizer from {str(path)!r} ({first_line}); give a folder "
            "with config.json, model.safetensors and tokenizer.json, or a reachable hub name"
        ) from error
    model.to(place)
    model.eval()  # no dropout: ratios must compare the same function
    policy = Policy(model=model, codec=Codec(tokenizer, chat=chat), device=place)
    _check_attention(policy)
    _check_head(policy)
    return policy


def _device(name: str) -> torch.device:
    try:
        place = torch.device(name)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # an assertion where CUDA is not built in
        first_line = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used here ({first_line}); try cpu") from error
    return place


def _dtype(name: str) -> torch.dtype:
    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise ConfigError(f"dtype must be a torch type such as float32 or bfloat16, got {name!r}")
    return kind


def _check_attention(policy: Policy) -> None:
    """Refuse layers that do not attend to the whole context: the sampler's mask is full."""
    kinds = getattr(policy.model.config, "layer_types", None) or ()
    other = sorted(set(kinds) - {"full_attention", "attention"})
    if other:
        raise ConfigError(
            f"{type(policy.model).__name__} has layers of type {', '.join(other)}; this learner "
            "samples and trains full causal attention only"
        )


@torch.no_grad()
def _check_head(policy: Policy) -> None:
    """Refuse models that scale or cap logits outside the head."""
    name = type(policy.model).__name__
    try:  # the status is the refusal: a foreign model's code may fail in any way
        probe = torch.arange(3, 19, device=policy.device).remainder(policy.vocabulary)[None]
        whole = policy.model(input_ids=probe).logits.float()
        ours = policy.logits(policy.hidden(probe))
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"{name} is not built as hidden states and a head ({reason[0]}); use a decoder such as "
            "Llama or Qwen3"
        ) from error
    if not torch.allclose(whole, ours, rtol=1e-3, atol=1e-3):
        raise ConfigError(
            f"{name} computes logits beyond hidden states times head "
            "(scaling or soft-capping); this learner does not support that architecture"
        )


def pad_rows(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Right-pad rows of ids with 0 to [b, longest]; the padding is never attended to or scored."""
    longest = max(map(len, rows))
    padded = torch.zeros(len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.as_tensor(row, dtype=torch.long)
    return padded.to(device)


def token_logprobs(
    policy: Policy,
    ids: Sequence[Sequence[int]],
    masks: Sequence[Sequence[int]],
    temperature: float = 1.0,
) -> Tensor:
    """Log-probabilities of the trainable tokens of right-padded rows.

    Args:
        policy: the model; gradients flow when enabled.
        ids: b rows of token ids.
        masks: b rows of 0/1, 1 on trainable tokens; the first token of a row cannot be one.
        temperature: the logits are divided by it, as when sampling. 0 (greedy) counts as 1.

    Returns:
        [t] float32, the rows' trainable tokens one after the other, t = sum of masks.
    """
    if any(mask[0] for mask in masks):
        raise ValueError("the first token of a row has no context and cannot be trained on")
    batch = pad_rows(ids, policy.device)
    select = pad_rows(masks, policy.device)[:, 1:].bool()
    hidden = policy.hidden(batch[:, :-1], use_cache=False)[select]
    logits = policy.logits(hidden) / (temperature or 1.0)
    targets = batch[:, 1:][select]
    return logits.gather(-1, targets[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
