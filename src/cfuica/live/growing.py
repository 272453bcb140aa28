"""Arrays that can grow along their first axis, at an amortised cost per row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class GrowingArray:
    """The first `size` rows of `_room`; the rest is room to grow and was never written."""

    _room: np.ndarray
    size: int

    @classmethod
    def of(cls, values: np.ndarray) -> GrowingArray:
        """These values. They are not copied: whoever keeps them sees what is written here."""
        return cls(values, len(values))

    @property
    def values(self) -> np.ndarray:
        """A view of what is there now, until the array grows."""
        return self._room[: self.size]

    def extend(self, count: int) -> None:
        """`count` more rows, uninitialised."""
        wanted = self.size + count
        if wanted > len(self._room):
            # Pages that nobody writes to cost no memory, so the room is free until it is used.
            room = np.empty((max(wanted, 2 * self.size), *self._room.shape[1:]), self._room.dtype)
            room[: self.size] = self.values
            self._room = room
        self.size = wanted

    def append(self, count: int, value: int) -> None:
        """`count` more rows of one value."""
        self.extend(count)
        self.values[self.size - count :] = value
