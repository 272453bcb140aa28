"""A model in use: ids of the outside world on live states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.matrix import BehaviourMatrix
from cfuica.errors import DataError
from cfuica.knowledge import Knowledge, Predictor
from cfuica.live.compacting import compacted
from cfuica.live.events import Changes, merged
from cfuica.live.ids import LiveIds
from cfuica.live.state import LiveState
from cfuica.model.calibration import Calibration
from cfuica.model.pairs import AXES, SideName
from cfuica.recommending.scores import expected_rating

# From so many events on, states made anew from all behaviours are faster than a change at a time.
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


@dataclass
class Answerer:
    """A network with its live state, and what corrects its distributions."""

    state: LiveState
    calibration: Calibration


class LiveModel:
    """What a model knows and has observed since.

    Where both the user and the item were known to training, the network of the known answers, else
    that of strangers, where there is one.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self._base = knowledge
        self._changed = False
        self._item_table = knowledge.item_table
        self.scale = knowledge.scale
        self.ids: dict[SideName, LiveIds] = {
            axis: LiveIds(axis.removesuffix("s"), knowledge.ids(axis)) for axis in AXES
        }

        def answerer(predictor: Predictor) -> Answerer:
            state = LiveState.of(predictor.network, knowledge.behaviours, knowledge.rows)
            for axis in AXES:
                state.add(axis)  # nobody
            return Answerer(state, predictor.calibration)

        self.known = answerer(knowledge.known)
        self.for_strangers = answerer(knowledge.strangers) if knowledge.strangers else self.known

    @property
    def state(self) -> LiveState:
        """The behaviours, and the network of the known on them."""
        return self.known.state

    @property
    def item_table(self) -> pl.DataFrame | None:
        """What is known of the items, one row per index; null of nobody and of newcomers."""
        table, n_items = self._item_table, self.state.size("items")
        if table is not None and table.height < n_items:
            unknown = table.clear(n_items - table.height)
            self._item_table = table = pl.concat([table, unknown])
        return table

    def is_present(self, axis: SideName) -> np.ndarray:
        """(n,) whether each index is that of somebody known by an id."""
        present = np.zeros(self.state.size(axis), np.bool_)
        present[self.ids[axis].present()] = True
        return present

    def is_stranger(self, axis: SideName) -> np.ndarray:
        """(n,) whether training did not know the user or item of each index."""
        side = self.state.network.sides.get(axis)
        is_stranger: np.ndarray = self.state.rows(axis) == (side.shared_row if side else -1)
        return is_stranger

    def answerer(self, user: int | None, item: int) -> Answerer:
        """Who answers about a pair; a visitor, None, is a stranger."""
        if user is None or self.is_stranger("users")[user] or self.is_stranger("items")[item]:
            return self.for_strangers
        return self.known

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

    def distributions(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 predicted distributions of pairs, corrected."""
        values_k = self.scale.values_array()
        return self._answers(
            users_p, items_p, lambda one, act_pk: one.calibration.distributions(act_pk, values_k)
        )

    def expected(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) float32 expected ratings of pairs, which correcting does not change."""
        activation_pk = self._answers(users_p, items_p, lambda _, act_pk: act_pk)
        expected_p: np.ndarray = expected_rating(activation_pk[None], self.scale.values_array())[0]
        return expected_p

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
        users, items = (self.ids[axis].encode(events[axis.removesuffix("s")]) for axis in AXES)
        there = (users >= 0) & (items >= 0)  # what is taken back may never have been
        changes = Changes(users[there], items[there], labels[there], given[there])
        counts = self._rebuild(changes) if len(events) >= MANY_EVENTS else self._change(changes)
        self._changed = True
        return Observed(*counts, *(self.ids[axis].size - before[axis] for axis in AXES))

    def forget(self, axis: SideName, index: int) -> int:
        """Remove all that is known of a user or item; how many behaviours that were."""
        removed = [one.state.forget(axis, index) for one in self._answerers()]
        self.ids[axis].forget(index)
        self._changed = True
        return removed[0]

    def knowledge(self) -> Knowledge:
        """All of it as a saved model has it: ids in order, and no trace of the forgotten."""
        if not self._changed:
            return self._base
        present = {axis: self.ids[axis].present() for axis in AXES}
        rows = {axis: self.state.rows(axis)[present[axis]] for axis in AXES}
        predictors = [
            Predictor(compacted(one.state.network, rows)[0], one.calibration)
            for one in self._answerers()
        ]
        users, items = (IdMap(self.ids[axis].decode(present[axis]).rename("id")) for axis in AXES)
        return replace(
            self._base,
            known=predictors[0],
            strangers=predictors[1] if len(predictors) > 1 else None,
            users=users,
            items=items,
            rows=compacted(self.state.network, rows)[1],
            behaviours=_between(self.state.matrix(), present),
            item_table=_about(self._base.item_table, items),
            card={**self._base.card},
        )

    def _answerers(self) -> list[Answerer]:
        return [self.known] + [self.for_strangers] * (self.for_strangers is not self.known)

    def _answers(
        self,
        users_p: np.ndarray,
        items_p: np.ndarray,
        finish: Callable[[Answerer, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """(P, K): what is made of the activations of each pair by whoever answers about it."""
        strange_p = self.is_stranger("users")[users_p] | self.is_stranger("items")[items_p]
        answer_pk = np.empty((len(users_p), self.scale.size), np.float32)
        for one, asked in ((self.known, ~strange_p), (self.for_strangers, strange_p)):
            activation_pk = one.state.pair_activations(users_p[asked], items_p[asked])
            answer_pk[asked] = finish(one, activation_pk)
        return answer_pk

    def _welcome(self, events: pl.DataFrame) -> None:
        """Give newcomers an index; all of them or none."""
        unknown = {}
        for axis in AXES:
            ids = events[axis.removesuffix("s")]
            unknown[axis] = ids.filter(self.ids[axis].encode(ids) < 0).unique(maintain_order=True)
            self.ids[axis].check(unknown[axis])
        for axis, ids in unknown.items():
            if len(ids):
                count = self.ids[axis].add(ids)
                for one in self._answerers():
                    one.state.add(axis, count)

    def _change(self, changes: Changes) -> tuple[int, int, int]:
        """A change at a time; how many behaviours were added, changed, removed."""
        added = changed = removed = 0
        for user, item, label in changes.rows():
            for one in self._answerers():
                if label is None:
                    old = one.state.unrate(user, item)
                else:
                    old = one.state.rate(user, item, label)
            added += old is None and label is not None
            changed += old is not None and label is not None and old != label
            removed += old is not None and label is None
        return added, changed, removed

    def _rebuild(self, changes: Changes) -> tuple[int, int, int]:
        """The same by states made anew."""
        matrix, counts = merged(self.state.matrix(), changes)
        for one in self._answerers():
            rows = {axis: one.state.rows(axis) for axis in AXES}
            one.state = LiveState.of(one.state.network, matrix, rows)
        return counts


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
