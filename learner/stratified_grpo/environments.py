"""Gymnasium environments by id: made once, checked once, reused.

The learner knows an environment by its id string and by documented `info` keys (``stop``,
``consumed_chars``, ``role``, ``valid``, ``status``, the stratum key, ``record``), nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from stratified_grpo.errors import ConfigError
from stratified_grpo.strata import stratum_key

REQUIRED_INFO = ("stop", "consumed_chars", "role", "valid", "status")
"""`info` keys a text environment must carry at every step."""


class EnvironmentPool:
    """As many copies of one environment as rollouts run side by side.

    Args:
        env_id: Gymnasium id, such as ``searchqa:SearchQA-v0``.
        kwargs: keyword arguments of the environment.
        stratum: the `info` key that holds the stratum.
    """

    def __init__(self, env_id: str, kwargs: Mapping[str, Any], *, stratum: str) -> None:
        self.env_id = env_id
        self.kwargs = dict(kwargs)
        self.stratum = stratum
        self._envs: list[gymnasium.Env[str, str]] = []
        self._questions: int | None = None

    def take(self, count: int) -> list[gymnasium.Env[str, str]]:
        """The first ``count`` environments; more are made when needed."""
        while len(self._envs) < count:
            self._envs.append(self._make())
        return self._envs[:count]

    def check(self) -> int:
        """Reset one environment, once, and check what the learner will read.

        Returns:
            The number of questions (``num_questions``), 0 where the environment does not say.

        Raises:
            ConfigError: the environment cannot start (its search is out of reach, for instance),
                or its `info` lacks a key the learner reads.
        """
        if self._questions is not None:
            return self._questions
        env = self.take(1)[0]
        try:
            _, info = env.reset(seed=0)
        except gymnasium.error.Error as error:
            raise ConfigError(f"environment {self.env_id!r} cannot start: {error}") from error
        missing = [key for key in (*REQUIRED_INFO, self.stratum) if key not in info]
        if missing:
            raise ConfigError(
                f"environment {self.env_id} has no info key {', '.join(map(repr, missing))}; the "
                "learner needs it at every step"
            )
        try:  # the status is the package's own error
            stratum_key(info, self.stratum)
        except ValueError as error:
            raise ConfigError(f"{error}; name another key with --stratum") from error
        self._questions = int(info.get("num_questions", 0))
        return self._questions

    def close(self) -> None:
        """Close all environments."""
        while self._envs:
            self._envs.pop().close()

    def _make(self) -> gymnasium.Env[str, str]:
        try:
            return gymnasium.make(self.env_id, disable_env_checker=True, **self.kwargs)
        except (gymnasium.error.Error, TypeError) as error:  # TypeError: an unknown argument
            raise ConfigError(f"cannot make environment {self.env_id!r}: {error}") from error
        except ModuleNotFoundError as error:
            module = error.name or self.env_id.partition(":")[0]  # gymnasium's has no name
            raise ConfigError(
                f"environment {self.env_id!r} needs module {module!r}, which is not installed"
            ) from error
