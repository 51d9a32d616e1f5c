"""Registers ``SearchQA-v0`` with Gymnasium; safe to run any number of times.

No step limit is registered: the environment counts turns itself, because the protocol treats the
last turn differently, and an outer ``TimeLimit`` still works.
"""

from __future__ import annotations

import gymnasium

ENV_ID = "SearchQA-v0"


def register_envs() -> None:
    """Make the id known, unless it is already."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(id=ENV_ID, entry_point="searchqa.env:SearchQAEnv")
