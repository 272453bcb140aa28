"""The two axes of a model in use: ids of the outside world that come and go, and the item table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import polars as pl

from cfuica.data.about import by_index, completed
from cfuica.data.ids import IdMap
from cfuica.errors import DataError
from cfuica.knowledge import CommonKnowledge
from cfuica.live.ids import LiveIds
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.pairs import AXES, ROLES, SideName

K = TypeVar("K", bound=CommonKnowledge)


class AxisState(Protocol):
    """A live state, as far as it has users and items."""

    @property
    def network(self) -> CoAutoregressive: ...

    def size(self, axis: SideName) -> int: ...

    def rows(self, axis: SideName) -> np.ndarray: ...

    def support(self, axis: SideName) -> np.ndarray: ...

    def vectors(self, axis: SideName) -> tuple[np.ndarray, np.ndarray]: ...

    def add(self, axis: SideName, count: int = 1) -> object: ...


class LiveAxes(ABC, Generic[K]):
    """Who and what a model knows now, whatever it is for."""

    def __init__(self, knowledge: K) -> None:
        self._base = knowledge
        self._knowledge: K | None = knowledge
        """What there is now to know, until the next change."""
        self._item_table = knowledge.item_table
        self.ids: dict[SideName, LiveIds] = {
            axis: LiveIds(ROLES[axis], knowledge.ids(axis)) for axis in AXES
        }

    @property
    @abstractmethod
    def state(self) -> AxisState:
        """The behaviours, and the network of the known on them."""

    @abstractmethod
    def add(self, axis: SideName, count: int) -> None:
        """Newcomers, who have their ids already."""

    def knowledge(self) -> K:
        """All of it as a saved model has it: ids in order, and no trace of the forgotten."""
        if self._knowledge is None:
            self._knowledge = self._compacted()
        return self._knowledge

    @abstractmethod
    def _compacted(self) -> K:
        """What there is now to know."""

    @property
    def item_table(self) -> pl.DataFrame | None:
        """What is known of the items, one row per index; null where nothing is, as of nobody."""
        table, n_items = self._item_table, self.state.size("items")
        if table is not None and table.height < n_items:
            unknown = table.clear(n_items - table.height)
            self._item_table = table = pl.concat([table, unknown])
        return table

    def is_stranger(self, axis: SideName) -> np.ndarray:
        """(n,) whether training did not know the user or item of each index.

        Without a side there are no parameters of theirs, and nobody is a stranger.
        """
        side = self.state.network.sides.get(axis)
        is_stranger: np.ndarray = self.state.rows(axis) == (side.shared_row if side else -1)
        return is_stranger

    def indices(self, axis: SideName, ids: pl.Series, *, serve_unknown: bool) -> np.ndarray:
        """(n,) int32 indices of n ids; whoever is unknown is nobody, or an error."""
        known = self.ids[axis]
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0) + 1
            raise DataError(f"The {known.role} in row {row} is missing; give an id or no row.")
        index = known.encode(ids)
        unknown = np.flatnonzero(index < 0)
        if len(unknown) and not serve_unknown:
            row = int(unknown[0])
            others = f", like {len(unknown) - 1} more of {len(ids)}" if len(unknown) > 1 else ""
            raise DataError(
                f"The {known.role} {ids[row]!r} (row {row + 1}) is unknown to this model{others}: "
                f"it knows {known.size} {axis}{known.example}; leave the unknown ones out, let it "
                f"observe them, or have strangers served instead of refused."
            )
        index[unknown] = known.nobody
        return index

    def welcome(self, events: pl.DataFrame) -> tuple[int, int]:
        """Take in the users and items of these rows; how many users and items are new.

        Nobody is taken in where one cannot be.
        """
        unknown: dict[SideName, pl.Series] = {}
        for axis, live_ids in self.ids.items():
            ids = events[live_ids.role]
            unknown[axis] = ids.filter(live_ids.encode(ids) < 0)
            live_ids.check(unknown[axis])
        new_users, new_items = (
            self._welcome(axis, self.ids[axis].names(unknown[axis])) for axis in AXES
        )
        return new_users, new_items

    def welcome_one(
        self, user: str | int, item: str | int, *, take_in: bool
    ) -> tuple[int, int, int, int] | None:
        """The indices of one user and one item, and how many of each are new; without frames.

        None where one is unknown and is not to be taken in.
        """
        index: dict[SideName, int] = {}
        newcomers: dict[SideName, Any] = {}
        for axis, one in zip(AXES, (user, item), strict=True):
            name = self.ids[axis].name(one)
            index[axis] = -1 if name is None else self.ids[axis].find(name)
            if index[axis] < 0:
                if not take_in:
                    return None
                self.ids[axis].check(pl.Series([one]))
                newcomers[axis] = name
        for axis, name in newcomers.items():
            self._welcome(axis, [name])
            index[axis] = self.ids[axis].find(name)
        new_users, new_items = (int(axis in newcomers) for axis in AXES)
        return index["users"], index["items"], new_users, new_items

    def learn(self, about: pl.DataFrame) -> None:
        """Take over what a table tells of items that nothing was known of."""
        n_items = self.state.size("items")
        more = by_index(about, self.ids["items"].encode(about["item"]), n_items)
        names = self.ids["items"].decode(np.arange(n_items))
        self._item_table = completed(self.item_table, more.with_columns(item=names))

    def present(self) -> dict[SideName, np.ndarray]:
        """The indices of all who are known, in the order of their ids."""
        return {axis: self.ids[axis].present() for axis in AXES}

    def axes_of(self, present: Mapping[SideName, np.ndarray]) -> dict[str, Any]:
        """`users`, `items` and `item_table` as a saved model has them."""
        users, items = (IdMap(self.ids[axis].decode(present[axis]).rename("id")) for axis in AXES)
        about = self.item_table
        if about is not None:
            about = about[present["items"]].with_columns(item=items.ids)
        return {"users": users, "items": items, "item_table": about}

    def _welcome(self, axis: SideName, names: Iterable[Any]) -> int:
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
