"""How alpha, the weight of SAN against plain GRPO, changes with the update.

A constant is the paper's way. Annealing starts inside the strata, where skills are learned, and
moves toward the whole group, where strata compete; it is ours, not the paper's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

GRAMMAR = "NUMBER or anneal[:START..END][@HOLD..UNTIL], such as 0.8 or anneal:1.0..0.3@60..120"
"""What :func:`parse_schedule` reads."""

_ANNEAL = re.compile(
    r"anneal(?::(?P<start>[^@]+?)(?:\.\.|->)(?P<end>[^@]+))?(?:@(?P<hold>\d+)\.\.(?P<until>\d+))?"
)


class Schedule(Protocol):
    """Alpha as a pure function of the update; ``str`` of it parses back to an equal schedule."""

    def __call__(self, step: int) -> float:
        """Return alpha, in ``[0, 1]``, for update ``step``, counted from 0."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same alpha at every update."""

    alpha: float = 0.8
    """Weight of SAN, in ``[0, 1]``; the paper uses 0.6 (base model) and 0.8 (instruct model)."""

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def __call__(self, step: int) -> float:
        """Return the constant."""
        return self.alpha

    def __str__(self) -> str:
        return repr(self.alpha)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anneal:
    """Hold one alpha, then go linearly to another and stay there."""

    start: float = 1.0
    """Alpha of the first ``hold`` updates."""
    end: float = 0.3
    """Alpha from update ``until`` on."""
    hold: int = 60
    """Updates that keep ``start``."""
    until: int = 120
    """First update with ``end``, at least ``hold``; equal to it, alpha jumps."""

    def __post_init__(self) -> None:
        _check_alpha(self.start)
        _check_alpha(self.end)
        if not 0 <= self.hold <= self.until:
            raise ValueError(
                f"an annealed alpha needs 0 <= hold <= until, got hold {self.hold} "
                f"and until {self.until}"
            )

    def __call__(self, step: int) -> float:
        """Return alpha for update ``step``, counted from 0."""
        if step >= self.until:
            return self.end
        if step <= self.hold:
            return self.start
        done = (step - self.hold) / (self.until - self.hold)
        return (1.0 - done) * self.start + done * self.end

    def __str__(self) -> str:
        return f"anneal:{self.start!r}..{self.end!r}@{self.hold}..{self.until}"


def parse_schedule(text: str | float) -> Constant | Anneal:
    """Read a schedule as the command line writes it.

    ``0.8`` is constant. ``anneal:1.0..0.3@60..120`` is 1.0 for 60 updates, then linear to 0.3 at
    update 120; either part may be left out and has then these values. ``->`` may stand for the
    first ``..``, but a shell wants it quoted.

    Raises:
        ValueError: The text is neither, or an alpha lies outside ``[0, 1]``.
    """
    words = str(text).strip()
    match = _ANNEAL.fullmatch(words)
    if match is None:
        return Constant(_number(words, words))
    floats = {name: _number(match[name], words) for name in ("start", "end") if match[name]}
    steps = {name: int(match[name]) for name in ("hold", "until") if match[name]}
    return Anneal(
        start=floats.get("start", Anneal().start),
        end=floats.get("end", Anneal().end),
        hold=steps.get("hold", Anneal().hold),
        until=steps.get("until", Anneal().until),
    )


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"alpha must be {GRAMMAR}; got {whole!r}") from error


def _check_alpha(alpha: float) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must lie between 0 (GRPO) and 1 (SAN), got {alpha!r}")
