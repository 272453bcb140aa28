"""The vocabularies of a model in use: external ids that come and go, and the item metadata.

`LiveVocabulary` maps external ids to the indices of a live state and back. `Catalogue` is what
every recommender reads of its data: users, items, their support, and what is known about the items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.vocabulary import Vocabulary, as_ids
from cfuica.errors import DataError
from cfuica.ops.tables import ROLES, SideName

# So many ids are looked up one by one faster than together.
FEW = 16


class LiveVocabulary:
    """The ids of users or of items: those of the artifact first, then new ones in order of arrival.

    Between the two is the unknown index: an id that the model does not know is served with it, as a
    cold-start user or item without interactions.

    A *name* is an id in the type of this model's ids: a string, or a whole number. Strings match
    whole numbers by their text, as in `Vocabulary`.
    """

    def __init__(self, role: str, base: Vocabulary) -> None:
        self.role = role
        self._base = base
        self._added: dict[Any, int] = {}
        self._names: list[Any] = []
        """Of new ids, by index; None where forgotten."""
        self._gone: set[int] = set()
        """Forgotten indices of the artifact."""

    @property
    def unknown_index(self) -> int:
        """The index of every id that the model does not know."""
        return self._base.size

    @property
    def n_indices(self) -> int:
        """How many indices there are: those of forgotten ids and the unknown index too."""
        return self.unknown_index + 1 + len(self._names)

    @property
    def size(self) -> int:
        """How many ids the model knows."""
        return self._base.size + len(self._added) - len(self._gone)

    @property
    def example(self) -> str:
        """An id of the vocabulary, for error messages."""
        for index in range(self._base.size):
            if index not in self._gone:
                return f", such as {self._base.ids[index]!r}"
        return f", such as {next(iter(self._added))!r}" if self._added else ""

    def encode(self, ids: pl.Series) -> np.ndarray:
        """(n,) int32 indices of n ids; -1 where an id is unknown or forgotten."""
        if len(ids) <= FEW:
            found = [-1 if name is None else self.find(name) for name in self.names(ids)]
            return np.array(found, np.int32)
        index = self._base.encode(ids)
        if self._gone:
            index[np.isin(index, list(self._gone))] = -1
        if self._added:
            unknown = np.flatnonzero(index < 0)
            names = self.names(ids.gather(unknown))
            index[unknown] = [self._added.get(name, -1) for name in names]
        return index

    def find(self, name: Any) -> int:
        """The index of one name, or -1; much faster than `encode`."""
        index = self._added.get(name)
        if index is not None:
            return index
        index = bisect_left(self._base.ids, name)
        is_there = index < self._base.size and self._base.ids[index] == name
        return index if is_there and index not in self._gone else -1

    def decode(self, indices: np.ndarray) -> pl.Series:
        """The ids of (n,) indices; null for the unknown index."""
        is_own = indices < self.unknown_index
        own = self._base.ids.gather(
            pl.Series(indices, dtype=pl.Int64).set(pl.Series(~is_own), None)
        )
        if is_own.all():
            return own
        new = np.flatnonzero(~is_own)
        names = [self._name(int(index)) for index in indices[new]]
        return own.cast(self._dtype).scatter(new, pl.Series(names, dtype=self._dtype))

    def names(self, ids: pl.Series) -> pl.Series:
        """The names of n ids, null where an id is of another type than this model's."""
        given = as_ids(ids)
        names = given.cast(self._dtype, strict=False)
        if given.dtype == pl.String and self._dtype != pl.String:
            # "007" is the text of no whole number, whatever it would be read as.
            names = names.set(~names.cast(pl.String).eq_missing(given), None)
        return names

    def name(self, one: str | int) -> Any:
        """The name of one id, None where it is of another type than this model's."""
        if self._dtype == pl.String:
            return str(one)
        if self._dtype == pl.Int64 and isinstance(one, int):
            return one
        return self.names(pl.Series(self.role, [one]))[0]

    def shown(self, ids: pl.Series) -> pl.Series:
        """Ids as results show them: in the type of this model's ids, where all of them fit it."""
        names = self.names(ids)
        return names if not names.null_count() else ids

    def check(self, ids: pl.Series) -> None:
        """Refuse ids of a type that this model does not have."""
        wrong = ids.filter(self.names(ids).is_null())
        if len(wrong):
            raise DataError(
                f"The {self.role} {wrong[0]!r} cannot be added: this model's {self.role} ids are "
                f"whole numbers{self.example}; use ids of the same type."
            )

    def add(self, names: Iterable[Any]) -> int:
        """Add names that are unknown, at the indices that follow; returns how many."""
        new = list(dict.fromkeys(names))
        first = self.n_indices
        self._added |= {name: first + at for at, name in enumerate(new)}
        self._names += new
        return len(new)

    def forget(self, index: int) -> None:
        """Make an id unknown; if it comes again, it is a new user or item."""
        if index < self.unknown_index:
            self._gone.add(index)
        else:
            del self._added[self._name(index)]
            self._names[index - self.unknown_index - 1] = None

    def present(self) -> np.ndarray:
        """(n,) int32: the indices of all known ids, in the order of the ids."""
        own = np.delete(np.arange(self._base.size, dtype=np.int32), list(self._gone))
        if not self._added:
            return own
        new = np.fromiter(self._added.values(), np.int32)
        indices = np.concatenate((own, new))
        by_id: np.ndarray = indices[self.decode(indices).arg_sort().to_numpy()]
        return by_id

    @property
    def _dtype(self) -> pl.DataType:
        """Wide enough for new ids."""
        stored = self._base.ids.dtype
        if stored == pl.UInt64:
            return pl.UInt64()
        return pl.Int64() if stored.is_integer() else pl.String()

    def _name(self, index: int) -> Any:
        if index == self.unknown_index:
            return None
        if index < self.unknown_index:
            return self._base.ids[index]
        return self._names[index - self.unknown_index - 1]


class Catalogue(ABC):
    """The users and items of a model by external id and by index, and the item metadata.

    The unknown user and the unknown item have an index too, without interactions.
    """

    def __init__(
        self, users: Vocabulary, items: Vocabulary, item_metadata: pl.DataFrame | None
    ) -> None:
        self._item_table = item_metadata
        self.ids: dict[SideName, LiveVocabulary] = {
            "users": LiveVocabulary(ROLES["users"], users),
            "items": LiveVocabulary(ROLES["items"], items),
        }

    @abstractmethod
    def support(self, axis: SideName) -> np.ndarray:
        """(n,) how many interactions each user or item has, by index."""

    @property
    def item_metadata(self) -> pl.DataFrame | None:
        """The item metadata, one row per index; null where there is none."""
        table, n_items = self._item_table, self.ids["items"].n_indices
        if table is not None and table.height < n_items:
            unknown = table.clear(n_items - table.height)
            self._item_table = table = pl.concat([table, unknown])
        return table

    def vocabulary(self, axis: SideName) -> Vocabulary:
        """The ids of all known users or items, sorted."""
        return Vocabulary(self.ids[axis].decode(self.ids[axis].present()).rename("id"))

    @property
    def titles(self) -> Callable[[np.ndarray], pl.Series] | None:
        """Titles by item index, null where there is none."""
        table = self.item_metadata
        if table is None or "title" not in table.columns:
            return None
        return lambda index: table["title"].gather(index)

    def indices(self, axis: SideName, ids: pl.Series, *, serve_unknown: bool) -> np.ndarray:
        """(n,) int32 indices of n ids; an unknown id gets the unknown index, or is an error."""
        stored = self.ids[axis]
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0) + 1
            raise DataError(f"The {stored.role} in row {row} is missing; give an id or no row.")
        index = stored.encode(ids)
        unknown = np.flatnonzero(index < 0)
        if len(unknown) and not serve_unknown:
            row = int(unknown[0])
            others = f", like {len(unknown) - 1} more of {len(ids)}" if len(unknown) > 1 else ""
            raise DataError(
                f"The {stored.role} {ids[row]!r} (row {row + 1}) is unknown to this model{others}: "
                f"it knows {stored.size} {axis}{stored.example}; leave the unknown ones out, or "
                f"have them served as cold-start users or items."
            )
        index[unknown] = stored.unknown_index
        return index
