"""A deterministic text environment with the documented info keys, for tests of the learner.

``<search>WORD</search>`` returns a sentence about WORD, ``<answer>WORD</answer>`` ends the episode,
anything else is an invalid reply. Without a right answer the reward depends on the agent's text, so
that the rollouts of a random policy differ.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import gymnasium
import numpy as np

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron")
STOP = ("</search>", "</answer>")
_ACTION = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)


def prompt_of(number: int, template: str | None = None) -> str:
    word = WORDS[number % len(WORDS)]
    return (template or "Which word follows {question} ?\n").replace("{question}", word)


def answer_of(number: int) -> str:
    return WORDS[(number + 1) % len(WORDS)]


class FakeFailure(gymnasium.error.Error):
    """An error of the environment's own."""


class FakeTextEnv(gymnasium.Env[str, str]):
    """``questions`` is ``N`` (their number) or ``N:void``: replies of even length are voided."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        questions: str = "8",
        search: str = "embedded",
        max_searches: int = 2,
        top_k: int = 1,
        prompt: str | None = None,
        role: str = "continue",
        words: int = 4,
        drop: str = "",
        bad_reset: bool = False,
        crash_after: int = 10**9,
        step_reward: float = 0.0,
        shuffle: bool = False,
        em_type: str = "",
    ) -> None:
        count, _, mode = questions.partition(":")
        self.count, self.void = int(count), mode == "void"
        self.role, self.words, self.drop, self.template = role, words, drop, prompt
        self.max_searches, self.bad_reset, self.crash_after = max_searches, bad_reset, crash_after
        self.step_reward, self.shuffle, self.em_type = step_reward, shuffle, em_type
        self.steps = 0
        self.action_space = self.observation_space = gymnasium.spaces.Text(10_000)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.bad_reset:
            raise FakeFailure("no search service at this address")
        epoch, self.number = divmod(0 if seed is None else seed, self.count)
        if self.shuffle:  # every epoch an order of its own
            order = random.Random(epoch).sample(range(self.count), self.count)
            self.number = order[self.number]
        self.segments = [{"source": "prompt", "text": prompt_of(self.number, self.template)}]
        self.counts = {"num_turns": 0, "num_searches": 0, "num_invalid": 0}
        self.consumed, self.status, self.valid, self.answer = 0, "running", True, ""
        return self.segments[0]["text"], self._info()

    def step(self, action):
        assert self.status == "running"
        self.steps += 1
        if self.steps > self.crash_after:
            raise FakeFailure("the search service went away")
        self.counts["num_turns"] += 1
        match = _ACTION.search(action)
        self.consumed = match.end() if match else len(action)
        self.segments.append({"source": "model", "text": action[: self.consumed]})
        observation = self._observe(match)
        if self.void and len(action) % 2 == 0:
            self.status, self.valid = "error_search", False
        if self.status == "running" and self.counts["num_turns"] > self.max_searches:
            self.status = "turn_limit"
        done = self.status != "running"
        if not done:
            self.segments.append({"source": "environment", "text": observation, "role": self.role})
        reward = self._reward() if done else self.step_reward
        return ("" if done else observation), reward, *self._ended(), self._info()

    def abandon(self):
        self.status = "external"
        return self._info()

    def _ended(self):
        answered = self.status == "answered"
        return answered, self.status not in ("running", "answered")

    def _observe(self, match):
        if match and match[1] == "answer":
            self.answer, self.status = match[2].strip(), "answered"
            return ""
        if match:
            self.counts["num_searches"] += 1
            text = " ".join([match[2].strip() or "nothing"] * self.words)
            return f"\n\n<information>{text} </information>\n\n"
        self.counts["num_invalid"] += 1
        return "\nPlease search or answer.\n"

    def _reward(self):
        if not self.valid:
            return 0.0
        if self.answer:
            return float(self.answer == answer_of(self.number))
        said = "".join(s["text"] for s in self.segments if s["source"] == "model")
        return sum(map(ord, said)) % 4 / 3.0

    def _info(self):
        done = self.status != "running"
        info = {
            "question_id": f"q{self.number}",
            "num_questions": self.count,
            "hops": 1 + self.number % 2,
            "status": self.status,
            "valid": self.valid,
            "role": self.role,
            "stop": list(STOP),
            "consumed_chars": self.consumed,
            **self.counts,
            "stratum": str(self.counts["num_searches"]),
            "turns": f"t/{self.counts['num_turns']}",
            "em": self._reward() if done else 0.0,
            "record": json.dumps(self._record()) if done else "",
        }
        if self.em_type:
            known = hasattr(np, self.em_type)
            info["em"] = getattr(np, self.em_type)(info["em"]) if known else str(info["em"])
        info.pop(self.drop, None)
        return info

    def _record(self):
        return {
            "schema": "searchqa.episode/1",
            "question": {"id": f"q{self.number}", "golden_answers": [answer_of(self.number)]},
            "segments": [dict(segment) for segment in self.segments],
            "calls": [],
            "counts": dict(self.counts),
            "stratum": str(self.counts["num_searches"]),
            "reward": self._reward(),
            "reward_parts": {"em": self._reward()},
            "status": self.status,
            "valid": self.valid,
        }


class BareTextEnv(FakeTextEnv):
    """One that keeps no record and cannot be told that an episode is over."""

    abandon = None

    def _info(self):
        info = super()._info()
        del info["record"]
        return info


gymnasium.register("FakeText-v0", entry_point=FakeTextEnv)
gymnasium.register("BareText-v0", entry_point=BareTextEnv)
