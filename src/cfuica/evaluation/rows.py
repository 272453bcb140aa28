"""Sets of items by row, compressed: what each user did, what is relevant to each user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class ItemRows:
    """Row r holds the items members[offsets[r]:offsets[r + 1]], ascending and each once."""

    offsets: npt.NDArray[np.int64]
    """(rows + 1,)"""
    members: npt.NDArray[np.int32]
    """(n,)"""

    @classmethod
    def of_pairs(cls, rows: npt.ArrayLike, members: npt.ArrayLike, n_rows: int) -> ItemRows:
        """Of (n,) row numbers and their items, in any order, repeated or not."""
        key = _keys(np.asarray(rows, np.int64), np.asarray(members, np.int64))
        return cls._of_keys(_distinct(key), n_rows)

    @property
    def n_rows(self) -> int:
        return int(self.offsets.size) - 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """(rows,)"""
        return np.diff(self.offsets)

    def row_of_member(self) -> npt.NDArray[np.int64]:
        """(n,) the row that each of the members is in."""
        return np.repeat(np.arange(self.n_rows), self.sizes)

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> ItemRows:
        """These rows, in this order."""
        sizes = self.sizes[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        shift = np.repeat(self.offsets[:-1][rows] - offsets[:-1], sizes)
        return ItemRows(offsets, self.members[np.arange(offsets[-1]) + shift])

    def union(self, other: ItemRows) -> ItemRows:
        """Row by row, what is in either."""
        keys = np.concatenate([self._own_keys(), other._own_keys()])
        return self._of_keys(_distinct(keys), self.n_rows)

    def without(self, other: ItemRows) -> ItemRows:
        """Row by row, what is not in the other's."""
        keys, others = self._own_keys(), other._own_keys()
        if others.size == 0:
            return self
        place = np.minimum(np.searchsorted(others, keys), others.size - 1)
        return self._of_keys(keys[others[place] != keys], self.n_rows)

    def _own_keys(self) -> npt.NDArray[np.int64]:
        return _keys(self.row_of_member(), self.members.astype(np.int64))

    @classmethod
    def _of_keys(cls, keys: npt.NDArray[np.int64], n_rows: int) -> ItemRows:
        offsets = np.searchsorted(keys, np.arange(n_rows + 1, dtype=np.int64) << 32)
        return cls(offsets.astype(np.int64), (keys & 0xFFFFFFFF).astype(np.int32))


def _keys(rows: npt.NDArray[np.int64], members: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """One number per pair, in the order of rows and then of members."""
    return (rows << 32) | members


def _distinct(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Ascending, each once; where parts of it are in order already, several times as fast as
    `np.unique`, which hashes."""
    ordered = np.sort(keys, kind="stable")
    is_first = np.ones(ordered.size, np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    distinct: npt.NDArray[np.int64] = ordered[is_first]
    return distinct
