"""A key-value cache of rows of different lengths that survives from turn to turn.

The Hugging Face attention layers call `update` as they would on their own caches. Rows live in
slots; the rows being extended occupy slots 0..n-1, so what attention reads is a view, not a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class RaggedCache:
    """Keys and values per layer, [slots, heads, positions, head size], grown on demand."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._rows: Tensor = torch.empty(0, dtype=torch.long)
        self._positions: Tensor = torch.empty(0, dtype=torch.long)
        self._valid: Tensor | None = None
        self._span = (0, 0, 0)

    def begin(self, first: int, positions: Tensor, valid: Tensor | None) -> None:
        """Announce the next forward pass.

        Args:
            first: slot of the first row in the batch.
            positions: [b, q] position of each new token in its row.
            valid: [b, q] False on padding; None when every token is real.
        """
        count, width = positions.shape
        device = positions.device
        slots = torch.arange(first, first + count, device=device)[:, None].expand(count, width)
        self._valid = valid
        self._rows = slots[valid] if valid is not None else slots.reshape(-1)
        self._positions = positions[valid] if valid is not None else positions.reshape(-1)
        longest = int(self._positions.max()) + 1
        self._reserve(longest)
        self._span = (first, first + count, longest)

    @property
    def longest(self) -> int:
        """Positions attention will read in the announced pass."""
        return self._span[2]

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Store the new [b, heads, q, head size] and return all of the rows' keys and values."""
        if layer == len(self._keys):
            shape = (self.slots, keys.shape[1], self.capacity)
            self._keys.append(keys.new_zeros(*shape, keys.shape[3]))
            self._values.append(values.new_zeros(*shape, values.shape[3]))
        first, last, longest = self._span
        for store, new in ((self._keys[layer], keys), (self._values[layer], values)):
            flat = new.transpose(1, 2)
            flat = flat[self._valid] if self._valid is not None else flat.flatten(0, 1)
            store[self._rows, :, self._positions] = flat
        return self._keys[layer][first:last, :, :longest], self._values[layer][
            first:last, :, :longest
        ]

    def get_seq_length(self, layer: int = 0) -> int:
        """Part of the Hugging Face cache interface; positions are always given explicitly."""
        return 0

    def move(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Put what is in slots ``source`` into slots ``target`` (a permutation of the same set)."""
        if list(source) == list(target):
            return
        for store in (*self._keys, *self._values):
            store[list(target)] = store[list(source)]

    def _reserve(self, positions: int) -> None:
        if positions <= self.capacity:
            return
        self.capacity = max(positions, min(2 * self.capacity, self.capacity + 512), 64)
        for stores in (self._keys, self._values):
            for index, old in enumerate(stores):
                grown = old.new_zeros(*old.shape[:2], self.capacity, old.shape[3])
                grown[:, :, : old.shape[2]] = old
                stores[index] = grown
