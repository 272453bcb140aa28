"""A model in use: ids of the outside world on live states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.about import by_index, completed
from cfuica.data.ids import IdMap
from cfuica.data.matrix import BehaviourMatrix
from cfuica.errors import DataError
from cfuica.knowledge import Knowledge, Predictor
from cfuica.live.compacting import compacted
from cfuica.live.events import Changes, Observed, merged
from cfuica.live.ids import LiveIds
from cfuica.live.state import LiveState
from cfuica.model.calibration import Calibration
from cfuica.model.pairs import AXES, ROLES, SideName
from cfuica.model.prediction import expected_rating

# From so many events on, states made anew from all behaviours are faster than a change at a time.
# Both give the same bits.
MANY_EVENTS = 2000


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
        self._knowledge: Knowledge | None = knowledge
        """What there is now to know, until the next change."""
        self._item_table = knowledge.item_table
        self.scale = knowledge.scale
        self.ids: dict[SideName, LiveIds] = {
            axis: LiveIds(ROLES[axis], knowledge.ids(axis)) for axis in AXES
        }

        def answerer(predictor: Predictor) -> Answerer:
            # Without a network of their own strangers have mean rows, and no bias beside them.
            values_k = self.scale.values_array() if predictor is knowledge.strangers else None
            state = LiveState.of(
                predictor.network, knowledge.behaviours, knowledge.rows, values_k=values_k
            )
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

    def answerer(self, user: int, item: int) -> Answerer:
        """Who answers about a pair; a visitor is nobody."""
        is_strange = self.is_stranger("users")[user] or self.is_stranger("items")[item]
        return self.for_strangers if is_strange else self.known

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

    def answers(
        self, users_p: np.ndarray, items_p: np.ndarray
    ) -> Iterator[tuple[Answerer, np.ndarray, np.ndarray]]:
        """Who answers about some of the pairs, which ones (A,), and their activations (A, K)."""
        is_strange_p = self.is_stranger("users")[users_p] | self.is_stranger("items")[items_p]
        for one, is_asked_p in ((self.known, ~is_strange_p), (self.for_strangers, is_strange_p)):
            asked = np.flatnonzero(is_asked_p)
            if len(asked):
                yield one, asked, one.state.pair_activations(users_p[asked], items_p[asked])

    def distributions(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 predicted distributions of pairs, corrected."""
        values_k = self.scale.values_array()
        p_pk = np.empty((len(users_p), len(values_k)), np.float32)
        for one, asked, activation_pk in self.answers(users_p, items_p):
            p_pk[asked] = one.calibration.distributions(activation_pk, values_k)
        return p_pk

    def expected(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) float32 expected ratings of pairs, which correcting does not change."""
        expected_p = np.empty(len(users_p), np.float32)
        for _, asked, activation_pk in self.answers(users_p, items_p):
            expected_p[asked] = expected_rating(activation_pk[None], self.scale.values_array())[0]
        return expected_p

    def observe(self, events: pl.DataFrame, about: pl.DataFrame | None = None) -> Observed:
        """Take in rows of user, item, rating, at most one of a pair; no rating takes one back.

        `about` is a table of items: `item`, `title`, and perhaps more.

        Nothing is changed where a row is refused.
        """
        is_given = events["rating"].is_not_null().to_numpy()
        rated = events.filter(is_given)
        labels = np.zeros(len(events), np.uint8)
        labels[is_given] = self.scale.encode(
            rated["rating"],
            lambda row: f"of user {rated['user'][row]!r} and item {rated['item'][row]!r}",
        )
        unknown: dict[SideName, pl.Series] = {}
        for axis, live_ids in self.ids.items():
            ids = rated[live_ids.role]
            unknown[axis] = ids.filter(live_ids.encode(ids) < 0)
            live_ids.check(unknown[axis])
        new_users, new_items = (
            self._welcome(axis, self.ids[axis].names(unknown[axis])) for axis in AXES
        )
        users, items = (self.ids[axis].encode(events[self.ids[axis].role]) for axis in AXES)
        is_there = (users >= 0) & (items >= 0)  # what is taken back may never have been
        changes = Changes(users[is_there], items[is_there], labels[is_there], is_given[is_there])
        self._knowledge = None
        few = len(events) < MANY_EVENTS
        made = self._change(changes.rows()) if few else self._rebuild(changes)
        if about is not None:
            self._learn(about)
        return replace(made, new_users=new_users, new_items=new_items)

    def observe_one(self, user: str | int, item: str | int, rating: float | None) -> Observed:
        """The same of one event, without frames, which take longer than all the rest."""
        label = None
        if rating is not None:
            place = f"of user {user!r} and item {item!r}"
            label = int(self.scale.encode(np.array([rating]), lambda _: place)[0])
        index: dict[SideName, int] = {}
        newcomers: dict[SideName, Any] = {}
        for axis, one in zip(AXES, (user, item), strict=True):
            name = self.ids[axis].name(one)
            index[axis] = -1 if name is None else self.ids[axis].find(name)
            if index[axis] < 0:
                if label is None:
                    return Observed()  # what is taken back has never been
                self.ids[axis].check(pl.Series([one]))
                newcomers[axis] = name
        for axis, name in newcomers.items():
            self._welcome(axis, [name])
            index[axis] = self.ids[axis].find(name)
        self._knowledge = None
        made = self._change([(index["users"], index["items"], label)])
        return replace(
            made, new_users=int("users" in newcomers), new_items=int("items" in newcomers)
        )

    def forget(self, axis: SideName, index: int) -> int:
        """Remove all that is known of a user or item; how many behaviours that were."""
        removed = [one.state.forget(axis, index) for one in self._answerers()]
        self.ids[axis].forget(index)
        self._knowledge = None
        return removed[0]

    def knowledge(self) -> Knowledge:
        """All of it as a saved model has it: ids in order, and no trace of the forgotten."""
        if self._knowledge is None:
            self._knowledge = self._compacted()
        return self._knowledge

    def _compacted(self) -> Knowledge:
        present = {axis: self.ids[axis].present() for axis in AXES}
        rows = {axis: self.state.rows(axis)[present[axis]] for axis in AXES}
        made = [compacted(one.state.network, rows) for one in self._answerers()]
        known, *others = (
            Predictor(network, one.calibration)
            for one, (network, _) in zip(self._answerers(), made, strict=True)
        )
        users, items = (IdMap(self.ids[axis].decode(present[axis]).rename("id")) for axis in AXES)
        about = self.item_table
        if about is not None:
            about = about[present["items"]].with_columns(item=items.ids)
        return replace(
            self._base,
            known=known,
            strangers=others[0] if others else None,
            users=users,
            items=items,
            rows=made[0][1],
            behaviours=_between(self.state.matrix(), present),
            item_table=about,
        )

    def _answerers(self) -> list[Answerer]:
        return [self.known] + [self.for_strangers] * (self.for_strangers is not self.known)

    def _welcome(self, axis: SideName, names: Iterable[Any]) -> int:
        """Give those who are unknown an index; how many they are."""
        count = self.ids[axis].add(names)
        if count:
            for one in self._answerers():
                one.state.add(axis, count)
        return count

    def _learn(self, about: pl.DataFrame) -> None:
        """Take over what nothing was known of."""
        n_items = self.state.size("items")
        more = by_index(about, self.ids["items"].encode(about["item"]), n_items)
        names = self.ids["items"].decode(np.arange(n_items))
        self._item_table = completed(self.item_table, more.with_columns(item=names))

    def _change(self, changes: Iterable[tuple[int, int, int | None]]) -> Observed:
        """Make changes one at a time."""
        added = changed = removed = 0
        for user, item, label in changes:
            for one in self._answerers():
                if label is None:
                    old = one.state.unrate(user, item)
                else:
                    old = one.state.rate(user, item, label)
            added += old is None and label is not None
            changed += old is not None and label is not None and old != label
            removed += old is not None and label is None
        return Observed(added, changed, removed)

    def _rebuild(self, changes: Changes) -> Observed:
        """The same by states made anew."""
        matrix, made = merged(self.state.matrix(), changes)
        for one in self._answerers():
            rows = {axis: one.state.rows(axis) for axis in AXES}
            one.state = one.state.anew(matrix, rows)
        return made


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
