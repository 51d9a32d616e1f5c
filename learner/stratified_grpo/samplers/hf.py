"""The Transformers sampler: batched decoding with the learner's weights, cached across turns.

Each request names its random stream; one uniform per token is drawn from it and inverted through
the cumulative distribution, so the same seed gives the same tokens whatever order rows finish in.
Rows that are done leave the batch at once: the last live row moves into their slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stratified_grpo.policy import Policy
from stratified_grpo.samplers.ragged_cache import RaggedCache
from stratified_grpo.types import Completion, Request


class _Turn:
    """One row while it is being continued."""

    __slots__ = ("finish", "ids", "logprobs", "request", "text", "uniforms")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.text = ""
        self.finish = ""
        self.uniforms = _stream(request.key).random(request.max_new_tokens)


def _stream(key: tuple[int, ...]) -> np.random.Generator:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


class HFSampler:
    """Samples from `policy` in this process.

    Args:
        policy: shared with the learner, so weights are never out of step.
        prefill_budget: padded tokens in one prefill pass; bounds memory on long prompts.
    """

    def __init__(self, policy: Policy, *, prefill_budget: int = 16_384) -> None:
        self.policy = policy
        self.version = 0
        self._budget = prefill_budget
        self._cache: RaggedCache | None = None
        self._slot_of: dict[int, int] = {}
        self._cached: dict[int, list[int]] = {}
        self._stop_tokens: dict[tuple[str, ...], frozenset[int]] = {}

    def update_weights(self, version: int) -> None:
        """The weights are the learner's; only cached keys and values go stale."""
        self.version = version
        self.end()

    def end(self) -> None:
        """Forget cached rows."""
        self._cache = None
        self._slot_of.clear()
        self._cached.clear()

    @torch.no_grad()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Continue every row by one turn; one completion per request, in order."""
        if not requests:
            return []
        turns = [_Turn(request) for request in requests]
        self._arrange([request.row for request in requests])
        logits = self._prefill(turns)
        live = list(turns)
        while live:
            self._sample(live, logits)
            live = self._drop_finished(live)
            if live:
                logits = self._decode(live)
        return [self._completion(turn) for turn in turns]

    def _completion(self, turn: _Turn) -> Completion:
        return Completion(
            ids=tuple(turn.ids),
            logprobs=tuple(turn.logprobs),
            versions=(self.version,) * len(turn.ids),
            text=turn.text,
            finish=turn.finish,
        )

    # -- slots -------------------------------------------------------------------------------

    def _arrange(self, rows: Sequence[int]) -> None:
        """Bring the requested rows into slots 0..n-1, in order."""
        if self._cache is None or any(row not in self._slot_of for row in rows):
            self._cache = RaggedCache(len(rows))
            self._slot_of = {row: slot for slot, row in enumerate(rows)}
            self._cached = {row: [] for row in rows}
            return
        wanted = set(rows)
        order = [*rows, *(row for row in self._slot_of if row not in wanted)]
        moves = [(self._slot_of[row], slot) for slot, row in enumerate(order)]
        moves = [(source, target) for source, target in moves if source != target]
        self._cache.move([source for source, _ in moves], [target for _, target in moves])
        self._slot_of = {row: slot for slot, row in enumerate(order)}

    def _drop_finished(self, live: list[_Turn]) -> list[_Turn]:
        """Fill the slots of finished rows with the last live ones; ``live[i]`` sits in slot i."""
        assert self._cache is not None
        count = sum(not turn.finish for turn in live)
        holes = [slot for slot in range(count) if live[slot].finish]
        tail = [slot for slot in range(count, len(live)) if not live[slot].finish]
        order = list(range(len(live)))
        for hole, last in zip(holes, tail, strict=True):
            order[hole], order[last] = last, hole
        moved = holes + tail
        self._cache.move([order[slot] for slot in moved], moved)
        arranged = [live[slot] for slot in order]
        for slot in moved:
            self._slot_of[arranged[slot].request.row] = slot
        return arranged[:count]

    # -- forward passes ----------------------------------------------------------------------

    def _prefill(self, turns: list[_Turn]) -> Tensor:
        """Run what is new in each row's context; returns last-token logits, [n, vocabulary]."""
        new: list[list[int]] = []
        starts: list[int] = []
        for turn in turns:
            ids = list(turn.request.ids)
            # At least one token is run, for its logits, even when nothing is new.
            start = min(_common_prefix(self._cached[turn.request.row], ids), len(ids) - 1)
            starts.append(start)
            new.append(ids[start:])
            self._cached[turn.request.row] = ids
        parts: list[Tensor] = []
        first = 0
        while first < len(turns):
            last = first + 1
            width = len(new[first])
            while last < len(turns):
                width = max(width, len(new[last]))
                if width * (last + 1 - first) > self._budget:
                    break
                last += 1
            parts.append(self._prefill_part(new[first:last], starts[first:last], first))
            first = last
        return torch.cat(parts)

    def _prefill_part(self, new: list[list[int]], starts: list[int], first: int) -> Tensor:
        device = self.policy.device
        lengths = torch.tensor([len(ids) for ids in new], device=device)
        width = int(lengths.max())
        ids = torch.zeros(len(new), width, dtype=torch.long)
        for index, row in enumerate(new):
            ids[index, : len(row)] = torch.tensor(row)
        offsets = torch.arange(width, device=device)[None]
        positions = torch.tensor(starts, device=device)[:, None] + offsets
        valid = offsets < lengths[:, None]
        hidden = self._forward(ids.to(device), positions, valid, first)
        return self.policy.logits(hidden[torch.arange(len(new), device=device), lengths - 1])

    def _decode(self, live: list[_Turn]) -> Tensor:
        device = self.policy.device
        ids = torch.tensor([[turn.ids[-1]] for turn in live], device=device)
        lengths = []
        for turn in live:
            cached = self._cached[turn.request.row]
            cached.append(turn.ids[-1])
            lengths.append(len(cached) - 1)
        positions = torch.tensor(lengths, device=device)[:, None]
        return self.policy.logits(self._forward(ids, positions, None, 0)[:, -1])

    def _forward(self, ids: Tensor, positions: Tensor, valid: Tensor | None, first: int) -> Tensor:
        assert self._cache is not None
        self._cache.begin(first, positions, valid)
        reach = torch.arange(self._cache.longest, device=ids.device)
        mask = reach[None, None, None, :] <= positions[:, None, :, None]
        return self.policy.hidden(
            ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        )

    # -- sampling ----------------------------------------------------------------------------

    def _sample(self, live: list[_Turn], logits: Tensor) -> None:
        """Draw one token per row and note which rows are done."""
        temperatures = torch.tensor(
            [turn.request.temperature for turn in live], device=logits.device
        )[:, None]
        greedy = temperatures[:, 0] == 0
        scaled = logits / torch.where(temperatures == 0, 1.0, temperatures)
        logprobs = torch.log_softmax(scaled, dim=-1)
        uniforms = torch.tensor(  # float32 would round the largest ones up to 1
            [turn.uniforms[len(turn.ids)] for turn in live],
            dtype=torch.float64,
            device=logits.device,
        )
        tokens = torch.where(greedy, logits.argmax(-1), _invert(logprobs, uniforms))
        chosen = logprobs.gather(-1, tokens[:, None])[:, 0]
        for turn, token, logprob in zip(live, tokens.tolist(), chosen.tolist(), strict=True):
            turn.ids.append(token)
            turn.logprobs.append(logprob)
            self._check_end(turn, token)

    def _check_end(self, turn: _Turn, token: int) -> None:
        codec, request = self.policy.codec, turn.request
        if token in codec.eos_ids:
            turn.finish = "eos"
        elif token in self._enders(request.stop) and any(
            stop in codec.decode(turn.ids) for stop in request.stop
        ):
            turn.finish = "stop"
        elif len(turn.ids) >= request.max_new_tokens:
            turn.finish = "length"
        if turn.finish:
            turn.text = codec.decode(turn.ids)

    def _enders(self, stop: tuple[str, ...]) -> frozenset[int]:
        """Tokens whose text holds the last character of a stop string: only they complete one."""
        if stop not in self._stop_tokens:
            tokenizer = self.policy.codec.tokenizer
            last = {string[-1] for string in stop}
            tokens = tokenizer.batch_decode([[index] for index in range(len(tokenizer))])
            self._stop_tokens[stop] = frozenset(
                index for index, text in enumerate(tokens) if last & set(text) or "\ufffd" in text
            )
        return self._stop_tokens[stop]


def _common_prefix(known: Sequence[int], ids: Sequence[int]) -> int:
    shared = min(len(known), len(ids))
    if known[:shared] == ids[:shared]:
        return shared
    return next(index for index in range(shared) if known[index] != ids[index])


def _invert(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse-CDF sampling, [b, v] log-probabilities and [b] uniforms in [0, 1) -> [b] tokens.

    The sum is float64 and scaled to its own total, so no token of probability zero is drawn as long
    as the uniforms are float64 too.
    """
    cumulative = logprobs.double().exp().cumsum(-1)
    targets = uniforms.double()[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp_(
        max=logprobs.shape[-1] - 1
    )
