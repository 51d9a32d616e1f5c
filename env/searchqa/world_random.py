"""Counter-based randomness for the generated world.

Every fact of the world is a pure function of (seed, purpose, index), so a passage can be made
without making its neighbours, in any process, on any platform. Integer arithmetic only: neither
``hash()`` nor a shared generator's state can leak in.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def derive_key(seed: int, purpose: str) -> int:
    """A 64-bit key for one purpose; different purposes give unrelated streams."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def mix(key: int, index: int) -> int:
    """The SplitMix64 output number ``index`` of the stream ``key``: uniform in [0, 2**64)."""
    z = (key + index * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Permutation:
    """A keyed bijection of ``range(size)``, O(1) in time and memory.

    Three rounds of multiply, add and xor-shift on the next power of two, walked until the value
    falls inside the range (fewer than two walks on average).
    """

    __slots__ = ("_add", "_mask", "_mul", "_shift", "size")

    def __init__(self, key: int, size: int) -> None:
        bits = max(2, (size - 1).bit_length())
        self.size = size
        self._mask = (1 << bits) - 1
        self._shift = (bits + 1) // 2
        self._mul = tuple(mix(key, r) & self._mask | 1 for r in range(3))
        self._add = tuple(mix(key, r) & self._mask for r in range(3, 6))

    def __call__(self, index: int) -> int:
        """The image of ``index``, which must lie in ``range(size)``."""
        mask, shift = self._mask, self._shift
        (m0, m1, m2), (a0, a1, a2) = self._mul, self._add
        x = index
        while True:
            x = (x * m0 + a0) & mask
            x ^= x >> shift
            x = (x * m1 + a1) & mask
            x ^= x >> shift
            x = (x * m2 + a2) & mask
            x ^= x >> shift
            if x < self.size:
                return x


class Skewed:
    """Draws ranks from a given falling distribution by one comparison of 64-bit integers."""

    __slots__ = ("_bounds",)

    def __init__(self, shares: Sequence[float]) -> None:
        scale = float(1 << 64)
        self._bounds = [int(c * scale) for c in accumulate(shares)][:-1]

    def __call__(self, word: int) -> int:
        """The rank in ``range(len(shares))`` that a uniform 64-bit ``word`` falls on."""
        return bisect_right(self._bounds, word)


def falling_shares(size: int, mode_share: float) -> tuple[float, ...]:
    """Shares of ``size`` ranks: the first ``mode_share``, the rest as 1/2, 1/3, 1/4 ...

    Returns:
        ``size`` numbers that sum to 1 and never rise, for 0.25 <= ``mode_share`` < 1 and size >= 8.
    """
    tail = [1.0 / (rank + 1) for rank in range(1, size)]
    scale = (1.0 - mode_share) / sum(tail)
    return (mode_share, *(scale * t for t in tail))
