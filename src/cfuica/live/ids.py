"""External ids that come and go, to the indices of a live state and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap, as_ids
from cfuica.errors import DataError


class LiveIds:
    """The ids of one axis: those of a saved model first, then newcomers in the order they came.

    Between the two is one index that belongs to nobody: whoever is unknown is served with it, as a
    stranger without behaviours.
    """

    def __init__(self, role: str, base: IdMap) -> None:
        self.role = role
        self._base = base
        self._newcomers: dict[Any, int] = {}
        self._names: list[Any] = []
        self._gone: set[int] = set()

    @property
    def nobody(self) -> int:
        """The index of whoever is unknown."""
        return self._base.size

    @property
    def size(self) -> int:
        """How many are known."""
        return self._base.size + len(self._newcomers) - len(self._gone)

    @property
    def example(self) -> str:
        """An id, for messages."""
        return f", such as {self._base.ids[0]!r}" if self._base.size else ""

    def encode(self, ids: pl.Series) -> np.ndarray:
        """(n,) int32 indices of n ids; -1 where an id is unknown or forgotten."""
        index = self._base.encode(ids)
        if self._gone:
            index[np.isin(index, list(self._gone))] = -1
        if self._newcomers:
            asked = self._alike(ids)
            for row in np.flatnonzero(index < 0):
                index[row] = self._newcomers.get(asked[int(row)], -1)
        return index

    def decode(self, indices: np.ndarray) -> pl.Series:
        """The ids of (n,) indices."""
        if not len(indices) or int(indices.max()) < self.nobody:
            return self._base.decode(indices)
        return pl.Series("id", [self._name(int(index)) for index in indices], dtype=self._dtype)

    def check(self, ids: pl.Series) -> None:
        """Refuse ids that cannot be taken in."""
        wrong = ids.filter(self._alike(ids).is_null())
        if len(wrong):
            raise DataError(
                f"The {self.role} {wrong[0]!r} cannot be taken in: this model's {self.role} ids "
                f"are whole numbers{self.example}; use ids of the same kind."
            )

    def add(self, ids: pl.Series) -> int:
        """Take in ids that are unknown; they get the indices that follow. How many."""
        asked = self._alike(ids)
        first = self.nobody + 1 + len(self._names)
        new = [name for name in dict.fromkeys(asked) if name not in self._newcomers]
        self._newcomers |= {name: first + at for at, name in enumerate(new)}
        self._names += new
        return len(new)

    def forget(self, index: int) -> None:
        """Its id is unknown from now on; who comes again under it is a newcomer."""
        if index < self.nobody:
            self._gone.add(index)
        else:
            del self._newcomers[self._names[index - self.nobody - 1]]
            self._names[index - self.nobody - 1] = None

    def present(self) -> np.ndarray:
        """(n,) int32: the indices of all who are known, in the order of their ids."""
        own = np.setdiff1d(np.arange(self._base.size), list(self._gone)).astype(np.int32)
        if not self._newcomers:
            return own
        new = np.fromiter(self._newcomers.values(), np.int32)
        indices = np.concatenate((own, new))
        by_id: np.ndarray = indices[self.decode(indices).arg_sort().to_numpy()]
        return by_id

    @property
    def _dtype(self) -> pl.DataType:
        return pl.Int64() if self._base.ids.dtype.is_integer() else pl.String()

    def _name(self, index: int) -> Any:
        if index < self.nobody:
            return self._base.ids[index]
        return self._names[index - self.nobody - 1]

    def _alike(self, ids: pl.Series) -> pl.Series:
        """The ids as the base has them: text, or whole numbers and null where they are not."""
        return as_ids(ids).cast(self._dtype, strict=False)
