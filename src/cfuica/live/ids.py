"""External ids that come and go, to the indices of a live state and back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap, as_ids
from cfuica.errors import DataError

# So many ids are looked up one by one faster than together.
FEW = 16


class LiveIds:
    """The ids of one axis: those of a saved model first, then newcomers in the order they came.

    Between the two is one index that belongs to nobody: whoever is unknown is served with it, as a
    stranger without behaviours.

    A *name* is an id as this model has its ids: a string, or a whole number. Strings meet whole
    numbers by their text, as in `IdMap`.
    """

    def __init__(self, role: str, base: IdMap) -> None:
        self.role = role
        self._base = base
        self._newcomers: dict[Any, int] = {}
        self._names: list[Any] = []
        """Of newcomers, by index; None where they are forgotten."""
        self._gone: set[int] = set()
        """Indices of the saved model's who are forgotten."""

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
        """An id that is known, for messages."""
        for index in range(self._base.size):
            if index not in self._gone:
                return f", such as {self._base.ids[index]!r}"
        return f", such as {next(iter(self._newcomers))!r}" if self._newcomers else ""

    def encode(self, ids: pl.Series) -> np.ndarray:
        """(n,) int32 indices of n ids; -1 where an id is unknown or forgotten."""
        if len(ids) <= FEW:
            found = [-1 if name is None else self.find(name) for name in self.names(ids)]
            return np.array(found, np.int32)
        index = self._base.encode(ids)
        if self._gone:
            index[np.isin(index, list(self._gone))] = -1
        if self._newcomers:
            unknown = np.flatnonzero(index < 0)
            names = self.names(ids.gather(unknown))
            index[unknown] = [self._newcomers.get(name, -1) for name in names]
        return index

    def find(self, name: Any) -> int:
        """The index of one name, or -1; unlike `encode` it takes no time to speak of."""
        index = self._newcomers.get(name)
        if index is not None:
            return index
        index = bisect_left(self._base.ids, name)
        is_there = index < self._base.size and self._base.ids[index] == name
        return index if is_there and index not in self._gone else -1

    def decode(self, indices: np.ndarray) -> pl.Series:
        """The ids of (n,) indices; null for nobody."""
        is_own = indices < self.nobody
        own = self._base.ids.gather(
            pl.Series(indices, dtype=pl.Int64).set(pl.Series(~is_own), None)
        )
        if is_own.all():
            return own
        new = np.flatnonzero(~is_own)
        names = [self._name(int(index)) for index in indices[new]]
        return own.cast(self._dtype).scatter(new, pl.Series(names, dtype=self._dtype))

    def names(self, ids: pl.Series) -> pl.Series:
        """The names of n ids, null where an id is of another kind than this model's."""
        given = as_ids(ids)
        names = given.cast(self._dtype, strict=False)
        if given.dtype == pl.String and self._dtype != pl.String:
            # "007" is the text of no whole number, whatever it would be read as.
            names = names.set(~names.cast(pl.String).eq_missing(given), None)
        return names

    def name(self, one: str | int) -> Any:
        """The name of one id, None where it is of another kind than this model's."""
        if self._dtype == pl.String:
            return str(one)
        if self._dtype == pl.Int64 and isinstance(one, int):
            return one
        return self.names(pl.Series(self.role, [one]))[0]

    def shown(self, ids: pl.Series) -> pl.Series:
        """Ids that were asked about, as this model has its ids where all of them can be."""
        names = self.names(ids)
        return names if not names.null_count() else ids

    def check(self, ids: pl.Series) -> None:
        """Refuse ids that cannot be taken in."""
        wrong = ids.filter(self.names(ids).is_null())
        if len(wrong):
            raise DataError(
                f"The {self.role} {wrong[0]!r} cannot be taken in: this model's {self.role} ids "
                f"are whole numbers{self.example}; use ids of the same kind."
            )

    def add(self, names: Iterable[Any]) -> int:
        """Take in names that are unknown; they get the indices that follow. How many."""
        new = list(dict.fromkeys(names))
        first = self.nobody + 1 + len(self._names)
        self._newcomers |= {name: first + at for at, name in enumerate(new)}
        self._names += new
        return len(new)

    def forget(self, index: int) -> None:
        """Its id is unknown from now on; who comes again under it is a newcomer."""
        if index < self.nobody:
            self._gone.add(index)
        else:
            del self._newcomers[self._name(index)]
            self._names[index - self.nobody - 1] = None

    def present(self) -> np.ndarray:
        """(n,) int32: the indices of all who are known, in the order of their ids."""
        own = np.delete(np.arange(self._base.size, dtype=np.int32), list(self._gone))
        if not self._newcomers:
            return own
        new = np.fromiter(self._newcomers.values(), np.int32)
        indices = np.concatenate((own, new))
        by_id: np.ndarray = indices[self.decode(indices).arg_sort().to_numpy()]
        return by_id

    @property
    def _dtype(self) -> pl.DataType:
        """Wide enough for newcomers."""
        known = self._base.ids.dtype
        if known == pl.UInt64:
            return pl.UInt64()
        return pl.Int64() if known.is_integer() else pl.String()

    def _name(self, index: int) -> Any:
        if index == self.nobody:
            return None
        if index < self.nobody:
            return self._base.ids[index]
        return self._names[index - self.nobody - 1]
