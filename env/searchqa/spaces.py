"""A space of free text: any Unicode string, of any length, at no cost.

Gymnasium's ``Text`` wants a character set: the default one rejects a blank, and one with all of
Unicode takes seconds to build. Worse, ``AsyncVectorEnv(shared_memory=True)`` never refreshes a
``Text`` observation. A space of its own kind makes that combination fail with a clear error.
"""

from __future__ import annotations

import re
from typing import Any

import gymnasium

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_SAMPLES = (
    "<search> {} </search>",
    "<answer> {} </answer>",
    "<think> {} </think>",
    "{}",
    "{}\n日本 é 😀 <search>",
)
"""Shapes of random actions: each branch of an environment should be met by sampling."""


def well_formed(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, by U+FFFD, one character for one.

    Args:
        text: Any string.

    Returns:
        A string of the same length that can be written to a file or sent over HTTP.
    """
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


class FreeText(gymnasium.Space[str]):
    """All strings. Equal to any other ``FreeText``; pickles to a few hundred bytes."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size array form."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string."""
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a short text, now and then shaped like an action.

        Args:
            mask: Not supported.
            probability: Not supported.
        """
        if mask is not None or probability is not None:
            raise ValueError("FreeText cannot be masked; call sample() without arguments")
        shape = _SAMPLES[int(self.np_random.integers(len(_SAMPLES)))]
        letters = self.np_random.integers(97, 123, size=int(self.np_random.integers(1, 12)))
        return shape.format("".join(map(chr, letters)))

    def to_jsonable(self, sample_n: Any) -> list[Any]:
        """A batch of samples as JSON: the strings themselves."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """The inverse of :meth:`to_jsonable`."""
        return [str(sample) for sample in sample_n]

    def __repr__(self) -> str:
        return "FreeText()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeText)

    def __hash__(self) -> int:
        return hash(FreeText)
