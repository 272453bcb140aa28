"""A model in use: ids of the outside world on live states.

A ranking model in use: ids of the outside world on a live state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cfuica.artifact.artifact import Knowledge, Predictor, RankingKnowledge
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix, Timeline
from cfuica.live.events import Changes, Deeds, Observed, compacted, merged, merged_deeds
from cfuica.live.ranking_state import RankingState
from cfuica.live.rating_state import LiveState
from cfuica.live.vocabulary import LiveAxes, places
from cfuica.model.calibration import Calibration
from cfuica.model.pairs import AXES, SideName
from cfuica.model.prediction import expected_rating

# From so many events on, states made anew from all behaviours are faster than a change at a time.
# Both give the same bits.
MANY_EVENTS = 2000


@dataclass
class Answerer:
    """A network with its live state, and what corrects its distributions."""

    state: LiveState
    calibration: Calibration


class LiveModel(LiveAxes[Knowledge]):
    """What a model knows and has observed since.

    Where both the user and the item were known to training, the network of the known answers, else
    that of strangers, where there is one.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        super().__init__(knowledge)

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
    def scale(self) -> LabelScale:
        """Of the ratings."""
        return self._base.scale

    def answerer(self, user: int, item: int) -> Answerer:
        """Who answers about a pair; a visitor is nobody."""
        is_strange = self.is_stranger("users")[user] or self.is_stranger("items")[item]
        return self.for_strangers if is_strange else self.known

    def add(self, axis: SideName, count: int) -> None:
        """Newcomers, who have their ids already."""
        for one in self._answerers():
            one.state.add(axis, count)

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
        new_users, new_items = self.welcome(rated)
        users, items = (self.ids[axis].encode(events[self.ids[axis].role]) for axis in AXES)
        is_there = (users >= 0) & (items >= 0)  # what is taken back may never have been
        changes = Changes(users[is_there], items[is_there], labels[is_there], is_given[is_there])
        self._knowledge = None
        few = len(events) < MANY_EVENTS
        made = self._change(changes.rows()) if few else self._rebuild(changes)
        if about is not None:
            self.learn(about)
        return replace(made, new_users=new_users, new_items=new_items)

    def observe_one(self, user: str | int, item: str | int, rating: float | None) -> Observed:
        """The same of one event, without frames, which take longer than all the rest."""
        label = None
        if rating is not None:
            place = f"of user {user!r} and item {item!r}"
            label = int(self.scale.encode(np.array([rating]), lambda _: place)[0])
        found = self.welcome_one(user, item, take_in=label is not None)
        if found is None:
            return Observed()  # what is taken back has never been
        user_index, item_index, new_users, new_items = found
        self._knowledge = None
        made = self._change([(user_index, item_index, label)])
        return replace(made, new_users=new_users, new_items=new_items)

    def forget(self, axis: SideName, index: int) -> int:
        """Remove all that is known of a user or item; how many behaviours that were."""
        removed = [one.state.forget(axis, index) for one in self._answerers()]
        self.ids[axis].forget(index)
        self._knowledge = None
        return removed[0]

    def _compacted(self) -> Knowledge:
        present = self.present()
        rows = {axis: self.state.rows(axis)[present[axis]] for axis in AXES}
        made = [compacted(one.state.network, rows) for one in self._answerers()]
        known, *others = (
            Predictor(network, one.calibration)
            for one, (network, _) in zip(self._answerers(), made, strict=True)
        )
        return replace(
            self._base,
            known=known,
            strangers=others[0] if others else None,
            rows=made[0][1],
            behaviours=_between(self.state.matrix(), present),
            **self.axes_of(present),
        )

    def _answerers(self) -> list[Answerer]:
        return [self.known] + [self.for_strangers] * (self.for_strangers is not self.known)

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
    place = {axis: places(present[axis], matrix.by(axis).n_rows) for axis in AXES}
    return BehaviourMatrix.from_triplets(
        place["users"][users],
        place["items"][items],
        labels,
        n_users=len(present["users"]),
        n_items=len(present["items"]),
        n_labels=matrix.n_labels,
    )


class LiveRankingModel(LiveAxes[RankingKnowledge]):
    """What a ranking model knows and has observed since."""

    def __init__(self, knowledge: RankingKnowledge) -> None:
        super().__init__(knowledge)
        self._state = RankingState.of(knowledge.network, knowledge.timeline, knowledge.rows)
        for axis in AXES:
            self._state.add(axis)  # nobody

    @property
    def state(self) -> RankingState:
        """The behaviours, and the network on them."""
        return self._state

    def add(self, axis: SideName, count: int) -> None:
        """Newcomers, who have their ids already."""
        self._state.add(axis, count)

    def observe(self, events: pl.DataFrame, about: pl.DataFrame | None = None) -> Observed:
        """Take in rows of user, item and perhaps rating and timestamp, at most one of a pair.

        `about` is a table of items: `item`, `title`, and perhaps more.

        Whatever the rating, it was done; but where there is a column of ratings, a row without one
        takes the behaviour back. Nothing is changed where a row is refused.
        """
        if "timestamp" in events.columns and not self._base.has_times:
            # Times that cannot be compared with those of the model say at least which came first.
            events = events.sort("timestamp", maintain_order=True).drop("timestamp")
        is_given = np.ones(events.height, np.bool_)
        if "rating" in events.columns:
            is_given = events["rating"].is_not_null().to_numpy()
        new_users, new_items = self.welcome(events.filter(is_given))
        users, items = (self.ids[axis].encode(events[self.ids[axis].role]) for axis in AXES)
        is_there = (users >= 0) & (items >= 0)  # what is taken back may never have been
        times = None
        if "timestamp" in events.columns:
            times = events["timestamp"].to_numpy()[is_there]
        deeds = Deeds(users[is_there], items[is_there], times, is_given[is_there])
        self._knowledge = None
        if events.height < MANY_EVENTS:
            made = self._change(deeds.rows())
        else:
            timeline, made = merged_deeds(
                self._state.timeline(), deeds, self._state.histories.newest
            )
            rows = {axis: self._state.rows(axis) for axis in AXES}
            self._state = RankingState.of(self._state.network, timeline, rows)
        if about is not None:
            self.learn(about)
        return replace(made, new_users=new_users, new_items=new_items)

    def observe_one(
        self, user: str | int, item: str | int, time: int | None, *, is_given: bool
    ) -> Observed:
        """The same of one event, without frames, which take longer than all the rest."""
        found = self.welcome_one(user, item, take_in=is_given)
        if found is None:
            return Observed()  # what is taken back has never been
        user_index, item_index, new_users, new_items = found
        self._knowledge = None
        time = time if self._base.has_times else None
        made = self._change([(user_index, item_index, time, is_given)])
        return replace(made, new_users=new_users, new_items=new_items)

    def forget(self, user: int) -> int:
        """Remove all that is known of a user; how many behaviours that were."""
        removed = self._state.forget(user)
        self.ids["users"].forget(user)
        self._knowledge = None
        return removed

    def _compacted(self) -> RankingKnowledge:
        present = self.present()
        rows = {axis: self._state.rows(axis)[present[axis]] for axis in AXES}
        network, rows = compacted(self._state.network, rows)
        timeline = self._state.timeline()
        place = {axis: places(present[axis], self._state.size(axis)) for axis in AXES}
        return replace(
            self._base,
            network=network,
            rows=rows,
            timeline=Timeline.of(
                place["users"][timeline.users],
                place["items"][timeline.items],
                timeline.times,
                n_users=len(present["users"]),
                n_items=len(present["items"]),
            ),
            **self.axes_of(present),
        )

    def _change(self, deeds: Iterable[tuple[int, int, int | None, bool]]) -> Observed:
        """Make changes one at a time."""
        added = changed = removed = 0
        now = self._state.histories.newest
        for user, item, time, is_given in deeds:
            past = self._state.histories.of_user(user)
            place = past.find(item)
            if not is_given:
                if place is not None:
                    self._state.undo(user, item)
                    removed += 1
            elif place is None:
                self._state.do(user, item, now if time is None else time)
                added += 1
            elif time is None or time > past.times[place]:
                self._state.undo(user, item)
                self._state.do(user, item, now if time is None else time)
                changed += 1
        return Observed(added, changed, removed)
