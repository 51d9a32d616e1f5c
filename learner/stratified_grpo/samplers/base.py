"""What a rollout needs of an inference engine: token ids in, ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stratified_grpo.types import Completion, Request


class Sampler(Protocol):
    """An engine that continues token rows.

    Deterministic samplers draw each turn's randomness from ``Request.key`` alone, so a result does
    not depend on which other rows happen to be in the batch (up to floating point).
    """

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Continue every row by one turn; one completion per request, in order."""
        ...

    def end(self) -> None:
        """Forget cached rows; called when a collection of rollouts is over."""
        ...

    def update_weights(self, version: int) -> None:
        """Sample from the learner's current weights from now on, stamped ``version``."""
        ...
