"""Inverse-CDF sampling against a running sum."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.samplers.hf import _common_prefix, _invert, _stream

LARGEST = float(np.nextafter(1.0, 0.0))


def reference(chances, uniform):
    total = sum(chances)
    running = 0.0
    for token, chance in enumerate(chances):
        running += chance
        if uniform * total < running:
            return token
    raise AssertionError("a uniform below 1 has a token")


def invert(logprobs, uniforms):
    table = torch.tensor(logprobs, dtype=torch.float64)[None].expand(len(uniforms), -1)
    return _invert(table, torch.tensor(uniforms, dtype=torch.float64)).tolist()


@pytest.mark.parametrize(
    "chances", [(0.5, 0.25, 0.25), (0.0, 0.125, 0.0, 0.875, 0.0), (1.0,), (0.0, 1.0, 0.0)]
)
def test_a_grid_of_uniforms(chances):
    grid = [(i + 0.5) / 64 for i in range(64)] + [LARGEST, 5e-324]
    with np.errstate(divide="ignore"):
        logprobs = np.log(np.array(chances))
    assert invert(logprobs.tolist(), grid) == [reference(chances, u) for u in grid]


@given(
    logits=st.lists(st.floats(-30, 30) | st.just(-np.inf), min_size=1, max_size=12).filter(
        lambda row: max(row) > -np.inf
    ),
    uniform=st.floats(0, LARGEST),
)
def test_no_impossible_token_is_drawn(logits, uniform):
    logprobs = torch.log_softmax(torch.tensor([logits]), dim=-1)  # float32, as when sampling
    (token,) = _invert(logprobs, torch.tensor([uniform], dtype=torch.float64)).tolist()
    assert logprobs[0, token] > -np.inf
    cumulative = logprobs[0].double().exp().cumsum(0)
    assert cumulative[token] > uniform * cumulative[-1]


def test_the_shares_are_the_probabilities():
    chances = np.array([0.1, 0.2, 0.3, 0.4])
    uniforms = _stream((1, 2, 3)).random(20_000)
    shares = np.bincount(invert(np.log(chances).tolist(), uniforms), minlength=4) / 20_000
    assert np.abs(shares - chances).max() < 0.012  # four standard deviations


def test_streams_are_named_by_the_whole_key():
    names = [(0, 0, 0, 0, 0), (0, 0, 0, 0, 1), (0, 0, 0, 1, 0), (0, 0, 1, 0, 0), (1, 0, 0, 0, 0)]
    draws = [tuple(_stream(name).random(4)) for name in names]
    assert len(set(draws)) == len(names)
    assert draws[0] == tuple(_stream(names[0]).random(9)[:4])  # a longer turn begins the same


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_prefix(known, ids):
    found = _common_prefix(known, ids)
    assert known[:found] == ids[:found]
    assert found in (len(known), len(ids)) or known[found] != ids[found]
