"""A model in use: ids of the outside world on a live state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.matrix import BehaviourMatrix
from cfuica.errors import DataError
from cfuica.knowledge import Knowledge
from cfuica.live.compacting import compacted
from cfuica.live.ids import LiveIds
from cfuica.live.state import LiveState
from cfuica.model.pairs import AXES, SideName

# From so many events on, a state made anew from all behaviours is faster than a change at a time.
# Both give the same bits.
MANY_EVENTS = 2000


@dataclass(frozen=True)
class Observed:
    """What some events changed."""

    added: int
    changed: int
    removed: int
    new_users: int
    new_items: int


class LiveModel:
    """What a model knows and has observed since."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._base = knowledge
        self._item_table = knowledge.item_table
        self._changed = False
        self.scale = knowledge.scale
        self.calibration = knowledge.calibration
        self.ids: dict[SideName, LiveIds] = {
            axis: LiveIds(axis.removesuffix("s"), knowledge.ids(axis)) for axis in AXES
        }
        self.state = LiveState.of(knowledge.network, knowledge.behaviours, knowledge.rows)
        for axis in AXES:
            self.state.add(axis)  # nobody

    @property
    def item_table(self) -> pl.DataFrame | None:
        """What is known of the items, one row per index; null of nobody and of newcomers."""
        table, n_items = self._item_table, self.state.size("items")
        if table is not None and table.height < n_items:
            unknown = table.clear(n_items - table.height)
            self._item_table = table = pl.concat([table, unknown])
        return table

    def is_present(self, axis: SideName) -> np.ndarray:
        """(n,) whether each index is that of somebody known."""
        present = np.zeros(self.state.size(axis), np.bool_)
        present[self.ids[axis].present()] = True
        return present

    def indices(self, axis: SideName, ids: pl.Series, *, serve_unknown: bool) -> np.ndarray:
        """(n,) int32 indices of n ids; whoever is unknown is nobody, or an error."""
        known = self.ids[axis]
        index = known.encode(ids)
        unknown = np.flatnonzero(index < 0)
        if len(unknown) and not serve_unknown:
            row = int(unknown[0])
            others = f", like {len(unknown) - 1} more of {len(ids)}" if len(unknown) > 1 else ""
            raise DataError(
                f"The {known.role} {ids[row]!r} (row {row + 1}) is unknown to this model{others}: "
                f"it knows {known.size} {axis}{known.example}; leave the unknown ones out, let it "
                f"observe them, or serve them as strangers (unknown='serve')."
            )
        index[unknown] = known.nobody
        return index

    def observe(self, events: pl.DataFrame) -> Observed:
        """Take in rows of user, item, rating, at most one of a pair; no rating takes one back.

        Nothing is changed where a row is refused.
        """
        given = events["rating"].is_not_null().to_numpy()
        labels = np.zeros(len(given), np.uint8)
        labels[given] = self.scale.encode(
            events["rating"].filter(given), lambda at: f"of event {np.flatnonzero(given)[at] + 1}"
        )
        before = {axis: self.ids[axis].size for axis in AXES}
        self._welcome(events.filter(given))
        index = [self.ids[axis].encode(events[axis.removesuffix("s")]) for axis in AXES]
        known = (index[0] >= 0) & (index[1] >= 0)  # what is taken back may never have been there
        change = self._rebuild if len(events) >= MANY_EVENTS else self._change
        counts = change(*(part[known] for part in (*index, labels, given)))
        self._changed = True
        new = (self.ids[axis].size - before[axis] for axis in AXES)
        return Observed(*counts, *new)

    def forget(self, axis: SideName, index: int) -> int:
        """Remove all that is known of a user or item; how many behaviours that were."""
        removed = self.state.forget(axis, index)
        self.ids[axis].forget(index)
        self._changed = True
        return removed

    def knowledge(self) -> Knowledge:
        """All of it as a saved model has it: ids in order, and no trace of the forgotten."""
        if not self._changed:
            return self._base
        present = {axis: self.ids[axis].present() for axis in AXES}
        network, rows = compacted(
            self.state.network,
            {axis: self.state.rows(axis)[present[axis]] for axis in AXES},
        )
        users, items = (IdMap(self.ids[axis].decode(present[axis]).rename("id")) for axis in AXES)
        return replace(
            self._base,
            network=network,
            users=users,
            items=items,
            rows=rows,
            behaviours=_between(self.state.matrix(), present),
            item_table=_about(self._base.item_table, items),
            card={**self._base.card},
        )

    def _welcome(self, events: pl.DataFrame) -> None:
        """Give newcomers an index; all of them or none."""
        unknown = {}
        for axis in AXES:
            ids = events[axis.removesuffix("s")]
            unknown[axis] = ids.filter(self.ids[axis].encode(ids) < 0).unique(maintain_order=True)
            self.ids[axis].check(unknown[axis])
        for axis, ids in unknown.items():
            if len(ids):
                self.state.add(axis, self.ids[axis].add(ids))

    def _change(
        self, users: np.ndarray, items: np.ndarray, labels: np.ndarray, given: np.ndarray
    ) -> tuple[int, int, int]:
        """A change at a time; how many behaviours were added, changed, removed."""
        added = changed = removed = 0
        for user, item, label, is_given in zip(
            users.tolist(), items.tolist(), labels.tolist(), given.tolist(), strict=True
        ):
            if is_given:
                old = self.state.rate(user, item, label)
                added += old is None
                changed += old is not None and old != label
            else:
                removed += self.state.unrate(user, item) is not None
        return added, changed, removed

    def _rebuild(
        self, users: np.ndarray, items: np.ndarray, labels: np.ndarray, given: np.ndarray
    ) -> tuple[int, int, int]:
        """The same by a state made anew."""
        old = self.state.matrix()
        old_users, old_items, old_labels = old.triplets()
        cell_of_old = _cells(old_users, old_items, old.n_items)
        cell = _cells(users, items, old.n_items)
        place = np.searchsorted(cell_of_old, cell)  # by user and item, so ascending
        place[place == len(cell_of_old)] = 0
        was_there = cell_of_old[place] == cell if len(cell_of_old) else np.zeros(len(cell), bool)
        stays = np.ones(len(cell_of_old), bool)
        stays[place[was_there]] = False
        matrix = BehaviourMatrix.from_triplets(
            np.concatenate((old_users[stays], users[given])),
            np.concatenate((old_items[stays], items[given])),
            np.concatenate((old_labels[stays], labels[given])),
            n_users=old.n_users,
            n_items=old.n_items,
            n_labels=old.n_labels,
        )
        rows = {axis: self.state.rows(axis) for axis in AXES}
        self.state = LiveState.of(self.state.network, matrix, rows)
        again = was_there & given
        differs = old_labels[place[again]] != labels[again]
        return int((given & ~was_there).sum()), int(differs.sum()), int((was_there & ~given).sum())


def as_events(events: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """(user, item, rating) each, or more, as rows; of several for a pair the last counts."""
    last = {(event[0], event[1]): event[2] for event in events}
    return pl.DataFrame(
        {
            "user": [user for user, _ in last],
            "item": [item for _, item in last],
            "rating": pl.Series(list(last.values()), dtype=pl.Float64),
        }
    )


def _cells(users: np.ndarray, items: np.ndarray, n_items: int) -> np.ndarray:
    cells: np.ndarray = users.astype(np.int64) * n_items + items
    return cells


def _between(matrix: BehaviourMatrix, present: dict[SideName, np.ndarray]) -> BehaviourMatrix:
    """The matrix with only these users and items, in this order; the others have no behaviour."""
    users, items, labels = matrix.triplets()
    place = {}
    for axis in AXES:
        place[axis] = np.full(matrix.by(axis).n_rows, -1, np.int32)
        place[axis][present[axis]] = np.arange(len(present[axis]), dtype=np.int32)
    return BehaviourMatrix.from_triplets(
        place["users"][users],
        place["items"][items],
        labels,
        n_users=len(present["users"]),
        n_items=len(present["items"]),
        n_labels=matrix.n_labels,
    )


def _about(item_table: pl.DataFrame | None, items: IdMap) -> pl.DataFrame | None:
    if item_table is None:
        return None
    ids = pl.DataFrame({"item": items.ids})
    about = item_table.with_columns(pl.col("item").cast(items.ids.dtype))
    return ids.join(about, on="item", how="left", maintain_order="left")
