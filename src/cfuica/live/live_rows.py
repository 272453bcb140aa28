"""Compressed rows of interactions, by user or by item, that can change and grow.

`LiveRows` is a `LabelledCsr` with room in every row. `GrowingArray` is an array that grows along
its first axis, at an amortised expense per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cfuica.data.matrix import LabelledCsr
from cfuica.ops import running_sums


@dataclass
class GrowingArray:
    """The first `size` rows of `_room`; the rest is room to grow and was never written."""

    _room: np.ndarray
    size: int

    @classmethod
    def of(cls, values: np.ndarray) -> GrowingArray:
        """These values, not copied: what is written here is written to them."""
        return cls(values, len(values))

    @property
    def values(self) -> np.ndarray:
        """A view of what is there now, until the array grows."""
        return self._room[: self.size]

    def extend(self, count: int) -> None:
        """`count` more rows, uninitialised."""
        wanted = self.size + count
        if wanted > len(self._room):
            # Pages that are never written take no memory, so the room is free until it is used.
            room = np.empty((max(wanted, 2 * self.size), *self._room.shape[1:]), self._room.dtype)
            room[: self.size] = self.values
            self._room = room
        self.size = wanted

    def append(self, count: int, value: int) -> None:
        """`count` more rows of one value."""
        self.extend(count)
        self.values[self.size - count :] = value


# Room of the pool for rows that outgrow theirs, beside an eighth of what it holds.
_SPARE_ENTRIES = 1024

_Length = TypeVar("_Length", int, np.ndarray)


@dataclass
class LiveRows:
    """Rows in a pool of entries: starts, lengths and capacities of each, members ascending.

    Plain arrays rather than an array per row, so that kernels run over any rows at once. A row
    that outgrows its capacity moves to the end of the pool; a pool without room is packed anew.
    The arrays given to `of` are never written to: the first change copies them.
    """

    _starts: GrowingArray
    _lengths: GrowingArray
    _capacities: GrowingArray
    _indices: np.ndarray
    _labels: np.ndarray
    _end: int
    _borrowed: bool

    @classmethod
    def of(cls, rows: LabelledCsr) -> LiveRows:
        lengths = np.diff(rows.offsets)
        return cls(
            GrowingArray.of(rows.offsets[:-1].copy()),
            GrowingArray.of(lengths),
            GrowingArray.of(lengths.copy()),
            rows.indices,
            rows.labels,
            len(rows.indices),
            True,
        )

    @property
    def n_rows(self) -> int:
        """How many rows there are, the empty ones included."""
        return self._lengths.size

    @property
    def lengths(self) -> np.ndarray:
        """(rows,) int64 entries of each row: a view, not to be written to."""
        return self._lengths.values

    @property
    def pool(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(starts, lengths, members, labels) as `ops.running_sums` reads them."""
        return self._starts.values, self._lengths.values, self._indices, self._labels

    def row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(members int32 ascending, labels uint8) of one row, copied."""
        entries = self._entries(row)
        return self._indices[entries].copy(), self._labels[entries].copy()

    def find(self, rows_p: np.ndarray, indices_p: np.ndarray) -> np.ndarray:
        """(P,) int64 label of each (row, member), -1 where there is none."""
        starts, lengths, indices, labels = self.pool
        label_p: np.ndarray = running_sums.find(starts, lengths, indices, rows_p, indices_p)
        found = label_p >= 0
        label_p[found] = labels[label_p[found]]
        return label_p

    def extend(self, count: int) -> None:
        """`count` more rows, empty."""
        self._starts.append(count, self._end)
        self._lengths.append(count, 0)
        self._capacities.append(count, 0)

    def put(self, row: int, member: int, label: int) -> int | None:
        """Add an entry or change its label; the old label, or None."""
        self._own()
        at, old = self._find(row, member)
        if old is None:
            self._make_room(row)
            start, length = int(self._starts.values[row]), int(self._lengths.values[row])
            for pool, value in ((self._indices, member), (self._labels, label)):
                entries = pool[start : start + length + 1]
                entries[at + 1 :] = entries[at:-1]
                entries[at] = value
            self._lengths.values[row] += 1
        else:
            self._labels[int(self._starts.values[row]) + at] = label
        return old

    def take(self, row: int, member: int) -> int | None:
        """Remove an entry; its label, or None where there was none."""
        self._own()
        at, old = self._find(row, member)
        if old is not None:
            for pool in (self._indices, self._labels):
                entries = pool[self._entries(row)]
                entries[at:-1] = entries[at + 1 :]
            self._lengths.values[row] -= 1
        return old

    def compressed(self) -> LabelledCsr:
        """All rows as they are now, copied."""
        offsets = np.zeros(self.n_rows + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        indices, labels = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.uint8)
        running_sums.repack(*self.pool, offsets[:-1], indices, labels)
        return LabelledCsr(offsets, indices, labels)

    def _entries(self, row: int) -> slice:
        start = int(self._starts.values[row])
        return slice(start, start + int(self._lengths.values[row]))

    def _find(self, row: int, member: int) -> tuple[int, int | None]:
        """Where in its row the member is or would be, and its label."""
        entries = self._entries(row)
        indices = self._indices[entries]
        at = int(indices.searchsorted(np.int32(member)))
        found = at < len(indices) and indices[at] == member
        return at, int(self._labels[entries.start + at]) if found else None

    def _own(self) -> None:
        if self._borrowed:
            self._pack(0)

    def _make_room(self, row: int) -> None:
        """See that one more entry fits into the row."""
        entries = self._entries(row)
        length = entries.stop - entries.start
        if length < self._capacities.values[row]:
            return
        capacity = _capacity(length)
        if self._end + capacity > len(self._indices):
            self._pack(capacity)  # which leaves room in every row
            return
        moved = slice(self._end, self._end + length)
        self._indices[moved] = self._indices[entries]
        self._labels[moved] = self._labels[entries]
        self._starts.values[row], self._capacities.values[row] = self._end, capacity
        self._end += capacity

    def _pack(self, wanted: int) -> None:
        """Copy all rows into a pool of their own, with room in each and at the end."""
        capacities = _capacity(self.lengths)
        starts = np.cumsum(capacities) - capacities
        end = int(capacities.sum())
        size = end + max(wanted, end // 8) + _SPARE_ENTRIES
        indices, labels = np.empty(size, np.int32), np.empty(size, np.uint8)
        running_sums.repack(*self.pool, starts, indices, labels)
        self._starts, self._capacities = GrowingArray.of(starts), GrowingArray.of(capacities)
        self._indices, self._labels, self._end, self._borrowed = indices, labels, end, False


def _capacity(length: _Length) -> _Length:
    """Entries to reserve for a row, or for each of several, of this length."""
    room: _Length = length + length // 4 + 4
    return room
