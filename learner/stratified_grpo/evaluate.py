"""Evaluation: exact match and searches per question, by number of hops, with confidence intervals.

Greedy by default, as Search-R1 evaluates; sampled as well on request. The rollout code is the
trainer's own, so an evaluation measures exactly what is trained.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stratified_grpo.checkpoint import write_text
from stratified_grpo.codec import Codec
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.errors import ConfigError, TrainingError
from stratified_grpo.rollout import RolloutSettings, collect
from stratified_grpo.samplers.base import Sampler
from stratified_grpo.types import Rollout

_BATCH = 128
_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One row of an evaluation."""

    name: str
    """``all``, or ``hops=2``."""
    questions: int
    """Questions answered by valid episodes."""
    em: float
    """Mean exact match."""
    low: float
    """Lower end of the 95 % Wilson interval of ``em``."""
    high: float
    """Upper end."""
    searches: float
    """Executed searches per question."""
    answered: float
    """Share of episodes that ended with an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Scores of a policy on a set of questions."""

    metric: str
    """Name of the metric, as the environment's info calls it."""
    temperature: float
    """0: greedy."""
    invalid: int
    """Episodes left out for infrastructure failures."""
    scores: tuple[Score, ...]
    """``all`` first, then one per number of hops."""

    @property
    def overall(self) -> Score:
        """The row over all questions."""
        return self.scores[0]

    def require_valid(self, limit: float) -> None:
        """Stop where scores would rest on too few episodes.

        Args:
            limit: share of invalid episodes that is still accepted, from 0 to 1.

        Raises:
            TrainingError: more are invalid; a dead search service is no score of 0.
        """
        total = self.overall.questions + self.invalid
        if self.invalid > limit * total:
            raise TrainingError(
                f"{self.invalid} of {total} episodes of an evaluation are invalid, more than "
                f"max_invalid={limit} allows: look after the environment's search"
            )

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self))

    def append(self, path: Path, step: int) -> None:
        """Add one line to a JSON-lines file; lines of the same or a later step are dropped."""
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if json.loads(line)["step"] < step]
        kept.append(json.dumps({"step": step, **asdict(self)}))
        write_text(path, "".join(f"{line}\n" for line in kept))


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """95 % Wilson score interval of a proportion; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    p, z2 = successes / trials, _Z95 * _Z95
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 / (1 + z2 / trials) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def evaluate(
    pool: EnvironmentPool,
    sampler: Sampler,
    codec: Codec,
    settings: RolloutSettings,
    *,
    limit: int = 0,
    temperature: float = 0.0,
    metric: str = "em",
) -> Evaluation:
    """Answer the first ``limit`` questions of the environment's order, one episode each.

    Args:
        pool: environments on the evaluation questions.
        sampler: the inference engine.
        codec: text to ids and back.
        settings: budgets; group size and temperature are replaced.
        limit: questions; 0 takes all of them once.
        temperature: 0 is greedy.
        metric: the `info` key that is averaged.

    Raises:
        ConfigError: the environment does not say how many questions it has and no limit is given,
            or its `info` does not hold the metric.
    """
    available = pool.check()
    total = min(limit, available) if limit and available else (limit or available)
    if not total:
        raise ConfigError("give a limit: the environment does not tell how many questions it has")
    single = replace(settings, group_size=1, temperature=temperature)
    rollouts: list[Rollout] = []
    for first in range(0, total, _BATCH):
        cursors = range(first, min(first + _BATCH, total))
        # the step names the random streams, and no two questions may share one
        groups = collect(pool, sampler, codec, single, step=-1 - first, cursors=cursors)
        rollouts.extend(group.rollouts[0] for group in groups)
    valid = [rollout for rollout in rollouts if rollout.valid]
    lacking = sum(metric not in rollout.metrics for rollout in valid)
    if lacking:
        raise ConfigError(
            f"{lacking} of {len(valid)} episodes have no number {metric!r} in their info, so there "
            "is nothing to score; name another metric, or let the environment give it"
        )
    return Evaluation(
        metric=metric,
        temperature=temperature,
        invalid=len(rollouts) - len(valid),
        scores=_scores(valid, metric),
    )


def _scores(rollouts: Sequence[Rollout], metric: str) -> tuple[Score, ...]:
    hops = sorted({int(rollout.metrics.get("hops", 0)) for rollout in rollouts})
    parts = [("all", list(rollouts))]
    if hops != [0]:
        parts += [
            (f"hops={count}", [r for r in rollouts if int(r.metrics.get("hops", 0)) == count])
            for count in hops
        ]
    return tuple(_score(name, part, metric) for name, part in parts)


def _score(name: str, rollouts: Sequence[Rollout], metric: str) -> Score:
    count = len(rollouts)
    hits = sum(rollout.metrics[metric] for rollout in rollouts)
    low, high = wilson(hits, count)
    return Score(
        name=name,
        questions=count,
        em=hits / count if count else 0.0,
        low=low,
        high=high,
        searches=sum(r.metrics.get("num_searches", 0.0) for r in rollouts) / max(count, 1),
        answered=sum(r.status == "answered" for r in rollouts) / max(count, 1),
    )
