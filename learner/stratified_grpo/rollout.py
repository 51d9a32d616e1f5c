"""Rollouts: groups of episodes through the environment, token in and token out.

All live episodes advance in lock-step, in fixed order, and every turn's randomness is named by
(run seed, step, group, member, turn). The row keeps whole sampled tokens up to the one that
completes the action; what follows leaves row and context, as the environment never saw it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium

from stratified_grpo.codec import Codec
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.errors import EpisodeError
from stratified_grpo.samplers.base import Sampler
from stratified_grpo.strata import stratum_key
from stratified_grpo.types import (
    Completion,
    Group,
    Request,
    Rollout,
    TokenRow,
    numeric_metrics,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How episodes are sampled."""

    group_size: int
    """Rollouts per prompt."""
    temperature: float
    """0 is greedy."""
    max_turn_tokens: int
    """Sampled tokens in one turn, at most."""
    max_episode_tokens: int
    """Tokens in a row (prompt, samples, observations), at most; an episode that would pass it
    ends with status ``length``."""
    seed: int
    """Run seed, first part of every random stream's name."""


class _Live:
    """One episode while it runs."""

    def __init__(self, env: gymnasium.Env[str, str], index: int, key: tuple[int, ...]) -> None:
        self.env = env
        self.index = index
        self.key = key
        self.tokens = TokenRow()
        self.turn = 0
        self.spans: list[tuple[int, int]] = []
        self.total = 0.0
        self.reward: float | None = None
        self.status = ""
        self.cut = False
        self.info: dict[str, Any] = {}

    @property
    def done(self) -> bool:
        return bool(self.status)

    def start(self, cursor: int, codec: Codec) -> None:
        prompt, self.info = self.env.reset(seed=cursor)
        self.tokens.context(codec.prompt(prompt))
        if not len(self.tokens):
            raise EpisodeError("the environment's prompt is empty: there is nothing to sample from")

    def request(self, settings: RolloutSettings) -> Request | None:
        """The next turn, or None when the token budget leaves no room for one."""
        room = settings.max_episode_tokens - len(self.tokens)
        if room < 1:
            self._out_of_room()
            return None
        return Request(
            row=self.index,
            ids=self.tokens.ids,
            stop=tuple(self.info["stop"]),
            max_new_tokens=min(settings.max_turn_tokens, room),
            temperature=settings.temperature,
            key=(*self.key, self.turn),
        )

    def advance(self, completion: Completion, codec: Codec, settings: RolloutSettings) -> None:
        """Step the environment with the sampled text and append what counts."""
        observation, reward, terminated, truncated, self.info = self.env.step(completion.text)
        self.turn += 1
        self.total += float(reward)
        kept = codec.tokens_for(completion.ids, self.info["consumed_chars"])
        start = len(self.tokens)
        try:
            self.tokens.sampled(
                completion.ids[:kept], completion.logprobs[:kept], completion.versions[:kept]
            )
        except EpisodeError:
            self.status = "nonfinite_logprob"
            return
        self.spans.append((start, len(self.tokens)))
        if terminated or truncated:
            self.status = str(self.info["status"])
            self.reward = self.total
            return
        role = str(self.info["role"])
        added = codec.observation(observation, role, completion.ids[:kept])
        if len(self.tokens) + len(added) > settings.max_episode_tokens:
            self.cut = bool(added)
            self._out_of_room()
        else:
            self.tokens.context(added)

    def _out_of_room(self) -> None:
        """End the episode here; an environment that can be told so writes its record."""
        self.status = "length"
        self.reward = 0.0
        abandon = getattr(self.env.unwrapped, "abandon", None)
        if abandon is not None:
            self.info = dict(abandon())


def collect(
    pool: EnvironmentPool,
    sampler: Sampler,
    codec: Codec,
    settings: RolloutSettings,
    *,
    step: int,
    cursors: Sequence[int],
) -> list[Group]:
    """Run ``group_size`` episodes on the question of every cursor.

    Args:
        pool: the environments.
        sampler: the inference engine.
        codec: text to ids and back.
        settings: budgets, temperature, group size and run seed.
        step: the update the rollouts are for; names groups and random streams.
        cursors: [g] data cursors; the environment's ``reset(seed=cursor)`` names the question.

    Returns:
        [g] groups in the order of the cursors, members in order.
    """
    size = settings.group_size
    envs = pool.take(len(cursors) * size)
    episodes = [
        _Live(env, index, (settings.seed, step, index // size, index % size))
        for index, env in enumerate(envs)
    ]
    for episode in episodes:
        episode.start(cursors[episode.index // size], codec)
    live = episodes
    while live:
        asked = [(episode, episode.request(settings)) for episode in live]
        running = [(episode, request) for episode, request in asked if request is not None]
        completions = sampler.generate([request for _, request in running])
        for (episode, _), completion in zip(running, completions, strict=True):
            episode.advance(completion, codec, settings)
        live = [episode for episode in live if not episode.done]
    sampler.end()
    return [
        Group(
            key=f"{step}.{number}",
            cursor=cursor,
            rollouts=tuple(
                _finish(episode, f"{step}.{number}", pool.stratum, codec)
                for episode in episodes[number * size : (number + 1) * size]
            ),
        )
        for number, cursor in enumerate(cursors)
    ]


def _finish(episode: _Live, group: str, stratum: str, codec: Codec) -> Rollout:
    info = episode.info
    rollout = Rollout(
        tokens=episode.tokens,
        group=group,
        stratum=_stratum(info, stratum),
        reward=episode.reward,
        valid=bool(info["valid"]) and episode.status != "nonfinite_logprob",
        status=episode.status,
        metrics=numeric_metrics(info),
    )
    return replace(rollout, record=_annotate(rollout, episode, codec))


def _stratum(info: Mapping[str, Any], name: str) -> str:
    try:  # the status is the package's own error
        return str(stratum_key(info, name))
    except ValueError as error:
        raise EpisodeError(f"{error}; name another key with --stratum") from error


def _annotate(rollout: Rollout, episode: _Live, codec: Codec) -> str:
    """The environment's record as it is trained on, with token ids in its model segments.

    Empty without a record, and for a turn that has no usable log-probabilities.
    """
    text = episode.info.get("record", "")
    if not text or episode.status == "nonfinite_logprob":
        return ""
    record = json.loads(text)
    if episode.cut:  # the observation that did not fit was never shown to the policy
        record["segments"].pop()
    segments = [segment for segment in record["segments"] if segment["source"] == "model"]
    for segment, (start, end) in zip(segments, episode.spans, strict=True):
        segment["token_ids"] = episode.tokens.ids[start:end]
        segment["logprobs"] = episode.tokens.logprobs[start:end]
        segment["version"] = max(episode.tokens.versions[start:end], default=-1)
        segment["tokenizer_hash"] = codec.fingerprint
    reward = rollout.reward
    if reward is not None and not math.isfinite(reward):
        reward = None  # JSON has no infinity
    record.update(group=rollout.group, stratum=rollout.stratum, reward=reward)
    return json.dumps(record, ensure_ascii=False)
