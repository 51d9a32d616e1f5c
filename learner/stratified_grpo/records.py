"""Recorded episodes (``searchqa.episode/1``, JSON lines) as token rows, whoever produced them.

Ids and log-probabilities in a model segment are used as they are when its tokenizer hash is ours.
Otherwise the text is tokenised once and the row is flagged: its old log-probabilities are computed
before the update.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from stratified_grpo.codec import Codec
from stratified_grpo.errors import EpisodeError
from stratified_grpo.packing import micro_batches
from stratified_grpo.policy import Policy, token_logprobs
from stratified_grpo.types import Group, Rollout, TokenRow, numeric_metrics

SCHEMA = "searchqa.episode/1"


def read_rollouts(path: Path, policy: Policy) -> Iterator[Rollout]:
    """Read a JSON-lines file of episode records that ``policy`` shall be trained on.

    Raises:
        EpisodeError: a line is not an episode record, or not one the model can be run on; the
            message names file and line.
    """
    found = False
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                rollout = to_rollout(json.loads(line), policy.codec)
            except json.JSONDecodeError as error:
                raise EpisodeError(f"{path}, line {number}: not JSON ({error.msg})") from error
            except (KeyError, TypeError, ValueError, AttributeError, EpisodeError) as error:
                reason = f"no key {error}" if isinstance(error, KeyError) else str(error)
                raise EpisodeError(
                    f"{path}, line {number}: not an episode record of schema {SCHEMA} ({reason})"
                ) from error
            _require_fits(rollout, policy, f"{path}, line {number}")
            found = True
            yield rollout
    if not found:
        raise EpisodeError(f"{path} holds no episodes")


def _require_fits(rollout: Rollout, policy: Policy, where: str) -> None:
    """Refuse rows that would index beyond the model's embeddings or its window."""
    for index in rollout.tokens.ids:
        if type(index) is not int or not 0 <= index < policy.vocabulary:
            raise EpisodeError(
                f"{where}: token id {index!r} is no integer from 0 to {policy.vocabulary - 1}, the "
                "ids this model knows"
            )
    if rollout.usable and len(rollout.tokens) > policy.max_positions:
        raise EpisodeError(
            f"{where}: the episode has {len(rollout.tokens)} tokens, but the model has positions "
            f"for {policy.max_positions}; leave it out or take a model with a longer window"
        )


def read_texts(path: Path) -> Iterator[str]:
    """The text of every segment of a JSON-lines file of episode records."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                text = "".join(segment["text"] for segment in json.loads(line)["segments"])
            except (ValueError, KeyError, TypeError) as error:
                raise EpisodeError(f"{path}, line {number}: not an episode record") from error
            yield text


def to_rollout(record: Mapping[str, Any], codec: Codec) -> Rollout:
    """One record as a rollout; the group is the record's ``group``, else its question's id."""
    if record["schema"] != SCHEMA:
        raise EpisodeError(f"schema is {record['schema']!r}")
    tokens, exact = TokenRow(), True
    last: Sequence[int] = ()
    for segment in record["segments"]:
        if segment["source"] == "prompt":
            tokens.context(codec.prompt(segment["text"]))
        elif segment["source"] == "model":
            exact = _sampled(tokens, segment, codec) and exact
            last = tokens.ids[-1:]
        elif segment["text"]:
            role = segment.get("role", "continue")
            tokens.context(codec.observation(segment["text"], role, last))
    if not tokens.mask or tokens.mask[0]:
        raise EpisodeError("the first segment must be a prompt with text")
    reward = record["reward"]
    return Rollout(
        tokens=tokens,
        group=str(record.get("group") or record["question"]["id"]),
        stratum=str(record["stratum"]),
        reward=None if reward is None else float(reward),
        valid=bool(record["valid"]),
        status=str(record["status"]),
        metrics={
            **numeric_metrics(record.get("counts", {})),
            **numeric_metrics(record.get("reward_parts", {})),
        },
        fresh_logprobs=exact,
    )


def _sampled(tokens: TokenRow, segment: Mapping[str, Any], codec: Codec) -> bool:
    """Append a model segment; False when it had to be tokenised here."""
    ids, logprobs = segment.get("token_ids"), segment.get("logprobs")
    if ids is None or segment.get("tokenizer_hash") != codec.fingerprint:
        ids = codec.content(segment["text"])
    elif logprobs or not ids:
        tokens.sampled(ids, logprobs or (), [int(segment.get("version", -1))] * len(ids))
        return True
    tokens.sampled(ids, [0.0] * len(ids), [-1] * len(ids))
    return False


def grouped(rollouts: Sequence[Rollout]) -> list[Group]:
    """Rollouts by group, in order of first appearance.

    Raises:
        EpisodeError: a group has rollouts of different prompts, or no group has two rollouts.
    """
    members: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        rows = members.setdefault(rollout.group, [])
        if rows and _prompt(rows[0].tokens) != _prompt(rollout.tokens):
            raise EpisodeError(
                f"group {rollout.group!r} holds rollouts of different prompts; rollouts of one "
                "prompt and no others may share a group, in all files together"
            )
        rows.append(rollout)
    if all(len(rows) < 2 for rows in members.values()):
        raise EpisodeError(
            f"none of the {len(members)} groups has two rollouts, so there is nothing to compare; "
            'rollouts of one prompt must have the same "group"'
        )
    return [Group(key=key, cursor=-1, rollouts=tuple(rows)) for key, rows in members.items()]


def _prompt(row: TokenRow) -> list[int]:
    """What was there before the first sampled token."""
    return row.ids[: row.mask.index(1)] if row.num_trainable else row.ids


@torch.no_grad()
def fill_logprobs(
    policy: Policy, groups: Sequence[Group], *, temperature: float, budget: int
) -> list[Group]:
    """Groups whose retokenised rows carry the policy's current log-probabilities.

    Args:
        policy: the policy about to be updated; it stands in for the unknown sampler.
        groups: left as they are where all log-probabilities are the sampler's.
        temperature: as in the update.
        budget: padded tokens in one forward pass.
    """
    stale = [r for g in groups for r in g.rollouts if not r.fresh_logprobs and r.usable]
    for batch in micro_batches([len(r.tokens) for r in stale], budget):
        rows = [stale[index].tokens for index in batch]
        values = token_logprobs(
            policy, [row.ids for row in rows], [row.mask for row in rows], temperature
        ).tolist()
        for row in rows:
            count = row.num_trainable
            fresh, values = iter(values[:count]), values[count:]
            row.logprobs = [next(fresh) if mask else 0.0 for mask in row.mask]
    return [
        replace(g, rollouts=tuple(replace(r, fresh_logprobs=True) for r in g.rollouts))
        for g in groups
    ]
