"""Whether the sampler samples from the distribution that is trained, tried before a run starts.

The sampler keeps keys and values across turns and sets positions and masks itself. An architecture
that attends in another way, or keeps another kind of state, would be sampled wrongly in silence.
"""

from __future__ import annotations

import torch

from stratified_grpo.errors import ConfigError
from stratified_grpo.policy import Policy, token_logprobs
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.types import Request, TokenRow

_PROMPTS = (3, 11)
"""Tokens of the two rows' contexts; different, so that padding and positions are tried."""
_TURN = 5
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3}
"""Largest difference of a log-probability, in nats; half precision gets ``_TOLERANCE_HALF``."""
_TOLERANCE_HALF = 0.25


def check_sampler(policy: Policy, sampler: HFSampler) -> None:
    """Sample two turns of two rows and compare with the log-probabilities training computes.

    Raises:
        ConfigError: they differ, or the model fails in either computation.
    """
    name = type(policy.model).__name__
    try:  # the status is the refusal: a foreign model's code may fail in any way
        gap = _largest_gap(policy, sampler)
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"{name} cannot be sampled by this learner ({reason[0]}); use a decoder with full "
            "causal attention, such as Llama or Qwen3"
        ) from error
    finally:
        sampler.end()
    if not gap <= _TOLERANCE.get(policy.model.dtype, _TOLERANCE_HALF):
        raise ConfigError(
            f"{name} gives sampled tokens other log-probabilities than training does (they differ "
            f"by up to {gap:.2g}); use a decoder with full causal attention, such as Llama or Qwen3"
        )


@torch.no_grad()
def _largest_gap(policy: Policy, sampler: HFSampler) -> float:
    vocabulary = policy.vocabulary
    rows = [TokenRow() for _ in _PROMPTS]
    for row, length in zip(rows, _PROMPTS, strict=True):
        row.context([(7 * place + 3 * length) % vocabulary for place in range(length)])
    for turn in range(2):
        requests = [
            Request(
                row=index,
                ids=row.ids,
                stop=(),
                max_new_tokens=_TURN + index,
                temperature=1.0,
                key=(index, turn),
            )
            for index, row in enumerate(rows)
        ]
        for row, completion in zip(rows, sampler.generate(requests), strict=True):
            row.sampled(completion.ids, completion.logprobs, completion.versions)
            row.context([(5 * place + 1) % vocabulary for place in range(3)])
    trained = token_logprobs(policy, [row.ids for row in rows], [row.mask for row in rows])
    pairs = ((row.logprobs, row.mask) for row in rows)
    sampled = [
        value for values, mask in pairs for value, on in zip(values, mask, strict=True) if on
    ]
    return float((trained - torch.tensor(sampled).to(trained)).abs().max())
