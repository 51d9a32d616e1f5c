"""A sampler that says what a function tells it to: for tests and dry runs, never for training.

Every token it returns has log-probability 0.0 (probability 1), which is true of a script and of no
model. It ends turns as a real engine does: at a stop string, at its end-of-sequence token, or at
the token limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratified_grpo.codec import Codec
from stratified_grpo.types import Completion, Request


class ScriptedSampler:
    """Plays a script through the `Sampler` protocol.

    Args:
        codec: text to ids and back, as the rollouts use it.
        policy: given a request and its context as text (special tokens left out), the text of the
            turn. A pure function of the two makes rollouts deterministic.
    """

    def __init__(self, codec: Codec, policy: Callable[[Request, str], str]) -> None:
        self.codec = codec
        self.policy = policy
        self.version = 0

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Say one turn of every row; one completion per request, in order."""
        return [self._turn(request) for request in requests]

    def end(self) -> None:
        """Nothing is cached."""

    def update_weights(self, version: int) -> None:
        """Stamp tokens with ``version`` from now on."""
        self.version = version

    def _turn(self, request: Request) -> Completion:
        ids = self.codec.content(self.policy(request, self.codec.decode(request.ids)))
        stopped = self._stopped(ids, request.stop)
        finish = "eos" if stopped is None else "stop"
        ids = [*ids, *sorted(self.codec.eos_ids)[:1]] if stopped is None else ids[:stopped]
        if len(ids) > request.max_new_tokens:
            ids, finish = ids[: request.max_new_tokens], "length"
        return Completion(
            ids=tuple(ids),
            logprobs=(0.0,) * len(ids),
            versions=(self.version,) * len(ids),
            text=self.codec.decode(ids),
            finish=finish,
        )

    def _stopped(self, ids: Sequence[int], stop: Sequence[str]) -> int | None:
        """Tokens up to the first one that completes a stop string; None where none does."""
        for count in range(1, len(ids) + 1):
            text = self.codec.decode(ids[:count])
            if any(string in text for string in stop):
                return count
        return None
