"""External ids that come and go, to the indices of a live state and back.

The two axes of a model in use: ids of the outside world that come and go, and the item table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import polars as pl

from cfuica.artifact.artifact import Artifact
from cfuica.data.table import by_index, completed
from cfuica.data.vocabulary import Vocabulary, as_ids
from cfuica.errors import DataError
from cfuica.model.network import Network
from cfuica.model.pairs import ROLES, SIDES, SideName

# So many ids are looked up one by one faster than together.
FEW = 16


class LiveVocabulary:
    """The ids of one axis: those of a saved model first, then new users and items in the order they
    came.

    Between the two is one index that belongs to nobody: whoever is unknown is served with it, as a
    cold-start user or item without interactions.

    A *name* is an id as this model has its ids: a string, or a whole number. Strings meet whole
    numbers by their text, as in `Vocabulary`.
    """

    def __init__(self, role: str, base: Vocabulary) -> None:
        self.role = role
        self._base = base
        self._added: dict[Any, int] = {}
        self._names: list[Any] = []
        """Of new users and items, by index; None where they are forgotten."""
        self._gone: set[int] = set()
        """Indices of the saved model's who are forgotten."""

    @property
    def unknown_index(self) -> int:
        """The index of whoever is unknown."""
        return self._base.size

    @property
    def size(self) -> int:
        """How many are known."""
        return self._base.size + len(self._added) - len(self._gone)

    @property
    def example(self) -> str:
        """An id that is known, for messages."""
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
        """The index of one name, or -1; unlike `encode` it takes no time to speak of."""
        index = self._added.get(name)
        if index is not None:
            return index
        index = bisect_left(self._base.ids, name)
        is_there = index < self._base.size and self._base.ids[index] == name
        return index if is_there and index not in self._gone else -1

    def decode(self, indices: np.ndarray) -> pl.Series:
        """The ids of (n,) indices; null for nobody."""
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
        first = self.unknown_index + 1 + len(self._names)
        self._added |= {name: first + at for at, name in enumerate(new)}
        self._names += new
        return len(new)

    def forget(self, index: int) -> None:
        """Its id is unknown from now on; who comes again under it is a new user or item."""
        if index < self.unknown_index:
            self._gone.add(index)
        else:
            del self._added[self._name(index)]
            self._names[index - self.unknown_index - 1] = None

    def present(self) -> np.ndarray:
        """(n,) int32: the indices of all who are known, in the order of their ids."""
        own = np.delete(np.arange(self._base.size, dtype=np.int32), list(self._gone))
        if not self._added:
            return own
        new = np.fromiter(self._added.values(), np.int32)
        indices = np.concatenate((own, new))
        by_id: np.ndarray = indices[self.decode(indices).arg_sort().to_numpy()]
        return by_id

    @property
    def _dtype(self) -> pl.DataType:
        """Wide enough for new users and items."""
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


K = TypeVar("K", bound=Artifact)


class VocabularyState(Protocol):
    """A live state, as far as it has users and items."""

    @property
    def network(self) -> Network: ...

    def size(self, axis: SideName) -> int: ...

    def rows(self, axis: SideName) -> np.ndarray: ...

    def support(self, axis: SideName) -> np.ndarray: ...

    def vectors(self, axis: SideName) -> tuple[np.ndarray, np.ndarray]: ...

    def add(self, axis: SideName, count: int = 1) -> object: ...


class LiveVocabularies(ABC, Generic[K]):
    """Who and what a model knows now, whatever it is for."""

    def __init__(self, artifact: K) -> None:
        self._base = artifact
        self._artifact: K | None = artifact
        """What there is now to know, until the next change."""
        self._item_table = artifact.item_metadata
        self.ids: dict[SideName, LiveVocabulary] = {
            axis: LiveVocabulary(ROLES[axis], artifact.ids(axis)) for axis in SIDES
        }

    @property
    @abstractmethod
    def state(self) -> VocabularyState:
        """The interactions, and the warm network on them."""

    @abstractmethod
    def add(self, axis: SideName, count: int) -> None:
        """New users and items, who have their ids already."""

    def artifact(self) -> K:
        """All of it as a saved model has it: ids in order, and no trace of the forgotten."""
        if self._artifact is None:
            self._artifact = self._compacted()
        return self._artifact

    @abstractmethod
    def _compacted(self) -> K:
        """What there is now to know."""

    @property
    def item_metadata(self) -> pl.DataFrame | None:
        """What is known of the items, one row per index; null where nothing is, as of nobody."""
        table, n_items = self._item_table, self.state.size("items")
        if table is not None and table.height < n_items:
            unknown = table.clear(n_items - table.height)
            self._item_table = table = pl.concat([table, unknown])
        return table

    def is_cold(self, axis: SideName) -> np.ndarray:
        """(n,) whether training did not know the user or item of each index.

        Without a side there are no parameters of theirs, and nobody is a cold-start user or item.
        """
        side = self.state.network.sides.get(axis)
        is_cold: np.ndarray = self.state.rows(axis) == (side.shared_row if side else -1)
        return is_cold

    def indices(self, axis: SideName, ids: pl.Series, *, serve_unknown: bool) -> np.ndarray:
        """(n,) int32 indices of n ids; whoever is unknown is nobody, or an error."""
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
                f"it knows {stored.size} {axis}{stored.example}; leave the unknown ones out, "
                f"let it observe them, or have them served as cold-start users or items."
            )
        index[unknown] = stored.unknown_index
        return index

    def add_ids(self, events: pl.DataFrame) -> tuple[int, int]:
        """Take in the users and items of these rows; how many users and items are new.

        Nobody is taken in where one cannot be.
        """
        unknown: dict[SideName, pl.Series] = {}
        for axis, live_ids in self.ids.items():
            ids = events[live_ids.role]
            unknown[axis] = ids.filter(live_ids.encode(ids) < 0)
            live_ids.check(unknown[axis])
        new_users, new_items = (
            self._add_ids(axis, self.ids[axis].names(unknown[axis])) for axis in SIDES
        )
        return new_users, new_items

    def add_pair(
        self, user: str | int, item: str | int, *, update: bool
    ) -> tuple[int, int, int, int] | None:
        """The indices of one user and one item, and how many of each are new; without frames.

        None where one is unknown and is not to be taken in.
        """
        index: dict[SideName, int] = {}
        added: dict[SideName, Any] = {}
        for axis, one in zip(SIDES, (user, item), strict=True):
            name = self.ids[axis].name(one)
            index[axis] = -1 if name is None else self.ids[axis].find(name)
            if index[axis] < 0:
                if not update:
                    return None
                self.ids[axis].check(pl.Series([one]))
                added[axis] = name
        for axis, name in added.items():
            self._add_ids(axis, [name])
            index[axis] = self.ids[axis].find(name)
        new_users, new_items = (int(axis in added) for axis in SIDES)
        return index["users"], index["items"], new_users, new_items

    def add_item_metadata(self, item_metadata: pl.DataFrame) -> None:
        """Take over what a table tells of items that nothing was known of."""
        n_items = self.state.size("items")
        more = by_index(item_metadata, self.ids["items"].encode(item_metadata["item"]), n_items)
        names = self.ids["items"].decode(np.arange(n_items))
        self._item_table = completed(self.item_metadata, more.with_columns(item=names))

    def present(self) -> dict[SideName, np.ndarray]:
        """The indices of all who are known, in the order of their ids."""
        return {axis: self.ids[axis].present() for axis in SIDES}

    def vocabularies_of(self, present: Mapping[SideName, np.ndarray]) -> dict[str, Any]:
        """`users`, `items` and `item_metadata` as a saved model has them."""
        users, items = (
            Vocabulary(self.ids[axis].decode(present[axis]).rename("id")) for axis in SIDES
        )
        item_metadata = self.item_metadata
        if item_metadata is not None:
            item_metadata = item_metadata[present["items"]].with_columns(item=items.ids)
        return {"users": users, "items": items, "item_metadata": item_metadata}

    def _add_ids(self, axis: SideName, names: Iterable[Any]) -> int:
        """Give those who are unknown an index; how many they are."""
        count = self.ids[axis].add(names)
        if count:
            self.add(axis, count)
        return count


def places(present: np.ndarray, size: int) -> np.ndarray:
    """(size,) int32: the place of each index among those who are present, -1 where it is not."""
    place = np.full(size, -1, np.int32)
    place[present] = np.arange(len(present), dtype=np.int32)
    return place
