"""Exact match as Search-R1 scores it, and whether a passage holds an answer.

Only the parsed answer of the agent is ever scored, never a transcript. One deviation from
Search-R1 is deliberate: two texts that normalise to nothing do not match each other for it.
Source: ``verl/utils/reward_score/qa_em.py`` of Search-R1 (SQuAD's normalisation).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Reward = Callable[[str, Sequence[str]], float]
"""From the agent's answer (empty without one) and the golden answers to a number."""


def normalise(text: str) -> str:
    """Normalise an answer exactly as Search-R1 does.

    Lower-case, drop ASCII punctuation, drop the whole words a, an and the, collapse whitespace.

    Args:
        text: Any answer.

    Returns:
        The normalised text; empty for an answer of only articles and punctuation.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _canonical(text: str) -> str:
    """The normalised text, or the plain lower-case one where normalising leaves nothing."""
    return normalise(text) or " ".join(text.lower().split())


def em(prediction: str, golden_answers: Sequence[str]) -> float:
    """Exact match: 1.0 if the normalised prediction equals a normalised golden answer.

    Agrees with Search-R1 wherever the prediction normalises to something. Where it normalises to
    nothing ("The", "!", ""), Search-R1 matches it with every golden answer that does so too; here
    the lower-cased texts must agree, and an empty prediction never scores.

    Args:
        prediction: The agent's answer; empty without one.
        golden_answers: Accepted answers.

    Returns:
        1.0 or 0.0.
    """
    if isinstance(golden_answers, str):
        raise TypeError("golden_answers must be a sequence of strings, not one string")
    wanted = _canonical(prediction)
    return float(wanted != "" and any(wanted == _canonical(gold) for gold in golden_answers))


@lru_cache(maxsize=16384)
def _padded(text: str) -> str:
    return f" {normalise(text)} "


def contains_answer(contents: str, golden_answers: Sequence[str]) -> bool:
    """Whether a passage holds a golden answer as a run of whole normalised words.

    It says little about answers such as yes and no, which occur anywhere or nowhere.

    Args:
        contents: Title and body of a passage.
        golden_answers: Accepted answers; those that normalise to nothing are never found.
    """
    text = _padded(contents)
    return any(_padded(gold) in text for gold in golden_answers if _padded(gold) != "  ")


REWARDS: Mapping[str, Reward] = MappingProxyType({"em": em})
"""Rewards by name; each becomes a ``reward_<name>`` in ``info`` and in the episode record."""
