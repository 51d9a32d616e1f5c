"""The structure of a trajectory: how many searches, where, and with what outcome.

A learner that stratifies (Stratified GRPO, arXiv 2510.06214) compares only episodes of equal
structure, so these counters say what was *executed*, never what a tag in the text suggests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from searchqa.errors import ConfigError
from searchqa.types import SearchCall

COUNTERS = (
    "num_turns",
    "num_searches",
    "num_attempted",
    "num_failed",
    "num_over_budget",
    "num_empty",
    "num_repeated",
    "num_invalid",
    "num_hits",
    "num_supporting",
    "num_fabricated",
    "num_dropped_chars",
)
"""Counters of an episode; ``info`` and the record carry each under its name.

``num_attempted = num_searches + num_failed + num_over_budget``. Empty, repeated and hit searches
are subsets of ``num_searches``. ``num_supporting`` counts distinct supporting passages found and
is -1 where the question names none.
"""

StratumKey = str | Callable[[Mapping[str, int], str], str]
"""A counter's name, ``"structure"``, or a function of (counters, signature)."""


def call_token(call: SearchCall) -> str:
    """One call in the signature.

    ``S2h``: executed in turn 2, an answer among its results as shown; ``S2m``: executed, none;
    ``S2e``: executed, no results at all; ``B2``: over budget; ``F2``: the search failed.
    """
    if call.status == "over_budget":
        return f"B{call.turn}"
    if call.status == "failed":
        return f"F{call.turn}"
    outcome = "e" if call.status == "empty" else "h" if call.hit else "m"
    return f"S{call.turn}{outcome}"


def signature(tokens: Sequence[str]) -> str:
    """Join the tokens of an episode, such as ``S1h X2 S3m A`` (X: invalid turn, A: answer)."""
    return " ".join(tokens)


def stratum(key: StratumKey, counts: Mapping[str, int], structure: str) -> str:
    """The stratum an episode belongs to.

    Args:
        key: What to stratify by.
        counts: Counters by name.
        structure: Signature of the episode so far.

    Returns:
        Always a string, so that any key works in any learner.
    """
    if callable(key):
        return str(key(counts, structure))
    return structure if key == "structure" else str(counts[key])


def check_stratum_key(key: StratumKey) -> StratumKey:
    """Return the key, or say which ones exist.

    Raises:
        ConfigError: The name is unknown.
    """
    if callable(key) or key == "structure" or key in COUNTERS:
        return key
    known = ", ".join(("structure", *COUNTERS))
    raise ConfigError(f"stratum={key!r} is unknown; use one of {known}, or a function")
