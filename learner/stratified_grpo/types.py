"""The values that cross the learner's boundaries: requests, completions, rows, rollouts, groups.

The ids that were sampled are the ids that are trained: a `TokenRow` grows by one operation that
adds ids, mask and log-probabilities together, so none of them can drift from the others.
`Episode` is the environment's word; here a finished attempt is a `Rollout`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stratified_grpo.errors import EpisodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One row's turn, as a sampler sees it: token ids in."""

    row: int
    """Stable handle of the rollout inside one collection; samplers may cache by it."""
    ids: Sequence[int]
    """The whole context, [n] token ids; it starts with what the row's last request held."""
    stop: tuple[str, ...]
    """Generation ends with the first token after which the text contains one of these."""
    max_new_tokens: int
    """At least 1."""
    temperature: float
    """0 is greedy."""
    key: tuple[int, ...]
    """Names the random stream of this turn: (run seed, step, group, member, turn)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What was sampled for one request: token ids out."""

    ids: tuple[int, ...]
    """[m] sampled ids, the end-of-sequence token included when it was sampled."""
    logprobs: tuple[float, ...]
    """[m] log-probabilities under the distribution sampled from (after temperature)."""
    versions: tuple[int, ...]
    """[m] version of the weights that sampled each token."""
    text: str
    """The ids as text, special tokens left out. A view: never encoded again."""
    finish: str
    """``stop``, ``eos`` or ``length``."""


@dataclass(slots=True)
class TokenRow:
    """A growing row of tokens: ids, loss mask, log-probabilities and versions of equal length.

    Example: prompt ``[5, 6]``, sampled ``[11, 12]``, observation ``[91]`` give
    ``ids=[5, 6, 11, 12, 91]``, ``mask=[0, 0, 1, 1, 0]``.
    """

    ids: list[int] = field(default_factory=list)
    """[n] token ids."""
    mask: list[int] = field(default_factory=list)
    """[n] 1 exactly on sampled tokens."""
    logprobs: list[float] = field(default_factory=list)
    """[n] finite where mask is 1, 0.0 elsewhere (never read there)."""
    versions: list[int] = field(default_factory=list)
    """[n] policy version where mask is 1, -1 elsewhere."""

    def context(self, ids: Sequence[int]) -> None:
        """Append tokens nobody sampled: prompt, observation, template glue. Mask 0."""
        self._extend(ids, 0, [0.0] * len(ids), [-1] * len(ids))

    def sampled(
        self, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]
    ) -> None:
        """Append sampled tokens. Mask 1.

        Raises:
            EpisodeError: lengths differ or a log-probability is not finite; nothing is appended.
        """
        if not len(ids) == len(logprobs) == len(versions):
            raise EpisodeError(
                f"{len(ids)} sampled tokens came with {len(logprobs)} log-probabilities and "
                f"{len(versions)} versions; one of each per token is needed"
            )
        if not all(map(math.isfinite, logprobs)):
            raise EpisodeError("a sampled token came with a log-probability that is not finite")
        self._extend(ids, 1, logprobs, versions)

    def _extend(
        self, ids: Sequence[int], mask: int, logprobs: Sequence[float], versions: Sequence[int]
    ) -> None:
        self.ids.extend(ids)
        self.mask.extend([mask] * len(ids))
        self.logprobs.extend(logprobs)
        self.versions.extend(versions)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_trainable(self) -> int:
        """Sampled tokens in the row."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One finished attempt at a prompt."""

    tokens: TokenRow
    """Prompt, sampled tokens and observations in order."""
    group: str
    """Rollouts of the same prompt and update share it."""
    stratum: str
    """Structural key, read from the environment's info."""
    reward: float | None
    """None until scored; an unscored rollout is invalid."""
    valid: bool
    """False leaves statistics and loss (infrastructure failure, unscored)."""
    status: str
    """Why it ended: the environment's status, or ``length`` when the token budget ran out."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the episode worth averaging, such as ``num_searches``."""
    record: str = ""
    """The episode record (JSON) with token ids in its model segments; empty where there is none."""
    fresh_logprobs: bool = True
    """False when the log-probabilities must be computed before the update (retokenised rows)."""

    @property
    def usable(self) -> bool:
        """Valid, scored by a finite number, and with at least one trainable token."""
        scored = self.reward is not None and math.isfinite(self.reward)
        return self.valid and scored and self.tokens.num_trainable > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The rollouts of one prompt in one update."""

    key: str
    """Group id, such as ``12.3`` for the fourth prompt of update 12."""
    cursor: int
    """The data cursor (environment seed) that named the question; -1 for recorded episodes."""
    rollouts: tuple[Rollout, ...]
    """[group_size] members in order."""


def numeric_metrics(info: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an ``info`` dict, numpy's scalars included, booleans as 0.0 and 1.0."""
    kinds = bool | int | float | np.bool_ | np.integer | np.floating
    return {k: float(v) for k, v in info.items() if isinstance(v, kinds)}
