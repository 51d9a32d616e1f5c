"""What a stratum is to the learner: any hashable key, read from one ``info`` key.

The environment decides the key (by default the number of executed searches); the learner only names
it. Here keys become the dense integer codes on which the estimator counts. numpy only.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Codes: TypeAlias = npt.NDArray[np.int64]
"""Dense codes ``0 .. num-1``, int64, shape ``[n]``."""

StratumKey: TypeAlias = str | int
"""What the learner accepts as a stratum in an ``info`` dictionary."""

Keys: TypeAlias = npt.NDArray[Any] | Sequence[Hashable]
"""One key a row: an integer array (fast), or any hashable values."""


def stratum_key(info: Mapping[str, Any], name: str = "stratum") -> StratumKey:
    """Read the stratum of a finished episode from its last ``info``.

    Args:
        info: The ``info`` dictionary of the episode's last step.
        name: The ``info`` key that holds the stratum.

    Returns:
        The key, a string or an integer.

    Raises:
        ValueError: The key is missing, or holds neither a string nor an integer.
    """
    if name not in info:
        known = ", ".join(sorted(map(str, info))) or "nothing"
        raise ValueError(f"info has no key {name!r} to stratify by; it holds {known}")
    value = info[name]
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    raise ValueError(
        f"info[{name!r}] must be a string or an integer to stratify by, "
        f"got {type(value).__name__} {value!r}"
    )


def dense_codes(keys: Keys, name: str = "keys") -> tuple[Codes, int]:
    """Number the distinct keys ``0 .. num-1``.

    Integers of a small range are numbered in ascending order in O(n), other integers by sorting,
    and everything else by a dictionary in order of first appearance.

    Args:
        keys: One key a row, shape ``[n]``: an integer array, or any hashable values.
        name: What the keys are called in an error.

    Returns:
        The codes, shape ``[n]``, and how many distinct ones there are.

    Raises:
        ValueError: The keys are not one-dimensional, not hashable, or hold a NaN.
    """
    array = _as_integers(keys)
    if array is None:
        return _codes_of_objects(keys, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must hold one key a row, got an array of shape {array.shape}")
    return compact(array)


def compact(values: npt.NDArray[Any]) -> tuple[Codes, int]:
    """Renumber integers of shape ``[n]`` to ``0 .. num-1``, in ascending order."""
    if values.size == 0:
        return np.zeros(0, dtype=np.int64), 0
    low, high = int(values.min()), int(values.max())
    span = high - low + 1
    if span > 8 * values.size + 1024:  # a lookup table would dwarf the rows
        distinct, inverse = np.unique(values, return_inverse=True)
        return inverse.astype(np.int64, copy=False), len(distinct)
    # int64 before the offset: int8 keys from -128 to 127 would overflow. Unsigned keys may exceed
    # int64, and cannot overflow here.
    wide = values if values.dtype.kind == "u" else values.astype(np.int64, copy=False)
    codes = (wide - wide.dtype.type(low)).astype(np.int64, copy=False)
    seen = np.zeros(span, dtype=bool)
    seen[codes] = True
    if seen.all():
        return codes, span
    lookup = np.cumsum(seen) - 1
    return lookup[codes], int(lookup[-1]) + 1


def _as_integers(keys: Keys) -> npt.NDArray[Any] | None:
    """Return integer keys as an array of any shape, or None when they are something else."""
    if not hasattr(keys, "__array__"):
        # numpy would turn tuples into rows, "1" and 1 into the same text, so look before converting
        if not isinstance(keys, Sequence):
            return None
        if not all(issubclass(kind, int | np.integer) for kind in set(map(type, keys))):
            return None
    array = np.asarray(keys)
    if array.dtype.kind == "b":
        return array.astype(np.uint8)
    if array.size == 0 and array.ndim == 1:
        return array.astype(np.int64)
    return array if array.dtype.kind in "iu" else None


def _codes_of_objects(keys: Keys, name: str) -> tuple[Codes, int]:
    """Number any hashable keys in order of first appearance."""
    rows = np.asarray(keys).tolist() if hasattr(keys, "__array__") else keys
    known: dict[Hashable, int] = {}
    try:
        codes = [known.setdefault(key, len(known)) for key in rows]
    except TypeError as error:
        raise ValueError(f"{name} must hold one hashable key a row: {error}") from error
    if any(key != key for key in known):
        raise ValueError(f"{name} must not hold NaN, which equals no other key, not even itself")
    return np.array(codes, dtype=np.int64), len(known)
