"""A model in use, by external ids: it predicts, observes events and forgets users.

`LiveRatingModel` and `LiveRankingModel` put the vocabularies of an artifact on live states. What
they observe changes the next prediction without training; `artifact()` gives the model as it is
now, for saving.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cfuica.artifact.artifact import CalibratedNetwork, RankingArtifact, RatingArtifact
from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.data.vocabulary import LabelScale
from cfuica.live.events import Changes, Observed, TimedChanges, compacted, merged, merged_timed
from cfuica.live.live_vocabulary import LiveVocabularies, places
from cfuica.live.ranking_state import RankingState
from cfuica.live.rating_state import RatingState
from cfuica.model.calibration import Calibration, expected_rating
from cfuica.model.pairs import SIDES, SideName

# From so many events on, rebuilding the states is faster than one change at a time. Both give the
# same bits.
MANY_EVENTS = 2000


@dataclass
class ServingNetwork:
    """A network with its live state and the calibration of its distributions."""

    state: RatingState
    calibration: Calibration


class LiveRatingModel(LiveVocabularies[RatingArtifact]):
    """A rating model and what it has observed since it was fitted.

    Pairs of a warm user and a warm item are predicted by the warm network, all others by the
    cold-start network where the model has one.
    """

    def __init__(self, artifact: RatingArtifact) -> None:
        super().__init__(artifact)

        def network_for(calibrated: CalibratedNetwork) -> ServingNetwork:
            # Without a cold-start network, cold-start users have the mean rows of the warm one and
            # no bias of their own.
            values_k = self.scale.values_array() if calibrated is artifact.cold_start else None
            state = RatingState.of(
                calibrated.network, artifact.interactions, artifact.rows, values_k=values_k
            )
            for axis in SIDES:
                state.add(axis)  # the unknown user and the unknown item
            return ServingNetwork(state, calibrated.calibration)

        self.warm = network_for(artifact.warm)
        self.cold_start = network_for(artifact.cold_start) if artifact.cold_start else self.warm

    @property
    def state(self) -> RatingState:
        """The interactions, and the warm network on them."""
        return self.warm.state

    @property
    def scale(self) -> LabelScale:
        """The rating scale."""
        return self._base.scale

    def network_for(self, user: int, item: int) -> ServingNetwork:
        """The network that predicts a pair; an anonymous user has the unknown index."""
        is_cold = self.is_cold("users")[user] or self.is_cold("items")[item]
        return self.cold_start if is_cold else self.warm

    def add(self, axis: SideName, count: int) -> None:
        """Add new users or items, whose ids are in the vocabulary already."""
        for one in self._networks():
            one.state.add(axis, count)

    def pair_logits(
        self, users_p: np.ndarray, items_p: np.ndarray
    ) -> Iterator[tuple[ServingNetwork, np.ndarray, np.ndarray]]:
        """For each network: the network, which of the pairs it predicts (A,), and their logits
        (A, K)."""
        is_cold_p = self.is_cold("users")[users_p] | self.is_cold("items")[items_p]
        for one, is_own_p in ((self.warm, ~is_cold_p), (self.cold_start, is_cold_p)):
            own = np.flatnonzero(is_own_p)
            if len(own):
                yield one, own, one.state.pair_logits(users_p[own], items_p[own])

    def distributions(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 calibrated distributions of pairs."""
        values_k = self.scale.values_array()
        p_pk = np.empty((len(users_p), len(values_k)), np.float32)
        for one, own, logits_pk in self.pair_logits(users_p, items_p):
            p_pk[own] = one.calibration.distributions(logits_pk, values_k)
        return p_pk

    def expected(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) float32 expected ratings of pairs, which calibration does not change."""
        expected_p = np.empty(len(users_p), np.float32)
        for _, own, logits_pk in self.pair_logits(users_p, items_p):
            expected_p[own] = expected_rating(logits_pk[None], self.scale.values_array())[0]
        return expected_p

    def observe(self, events: pl.DataFrame, item_metadata: pl.DataFrame | None = None) -> Observed:
        """Add or change the interactions of these rows: user, item, rating, at most one of a pair.

        A row without a rating removes the interaction. `item_metadata` has the columns `item`,
        `title`, and perhaps more. Nothing is changed where a row is refused.
        """
        is_given = events["rating"].is_not_null().to_numpy()
        rated = events.filter(is_given)
        labels = np.zeros(len(events), np.uint8)
        labels[is_given] = self.scale.encode(
            rated["rating"],
            lambda row: f"of user {rated['user'][row]!r} and item {rated['item'][row]!r}",
        )
        new_users, new_items = self.add_ids(rated)
        users, items = (self.ids[axis].encode(events[self.ids[axis].role]) for axis in SIDES)
        is_there = (users >= 0) & (items >= 0)  # what is removed may never have been there
        changes = Changes(users[is_there], items[is_there], labels[is_there], is_given[is_there])
        self._artifact = None
        few = len(events) < MANY_EVENTS
        made = self._change(changes.rows()) if few else self._rebuild(changes)
        if item_metadata is not None:
            self.add_item_metadata(item_metadata)
        return replace(made, new_users=new_users, new_items=new_items)

    def observe_one(self, user: str | int, item: str | int, rating: float | None) -> Observed:
        """The same of one event, without frames, which take longer than all the rest."""
        label = None
        if rating is not None:
            place = f"of user {user!r} and item {item!r}"
            label = int(self.scale.encode(np.array([rating]), lambda _: place)[0])
        found = self.add_pair(user, item, update=label is not None)
        if found is None:
            return Observed()  # what is removed has never been there
        user_index, item_index, new_users, new_items = found
        self._artifact = None
        made = self._change([(user_index, item_index, label)])
        return replace(made, new_users=new_users, new_items=new_items)

    def forget(self, axis: SideName, index: int) -> int:
        """Forget a user or item; returns the number of interactions removed."""
        removed = [one.state.forget(axis, index) for one in self._networks()]
        self.ids[axis].forget(index)
        self._artifact = None
        return removed[0]

    def _compacted(self) -> RatingArtifact:
        present = self.present()
        rows = {axis: self.state.rows(axis)[present[axis]] for axis in SIDES}
        made = [compacted(one.state.network, rows) for one in self._networks()]
        warm, *others = (
            CalibratedNetwork(network, one.calibration)
            for one, (network, _) in zip(self._networks(), made, strict=True)
        )
        return replace(
            self._base,
            warm=warm,
            cold_start=others[0] if others else None,
            rows=made[0][1],
            interactions=_between(self.state.matrix(), present),
            **self.vocabularies_of(present),
        )

    def _networks(self) -> list[ServingNetwork]:
        return [self.warm] + [self.cold_start] * (self.cold_start is not self.warm)

    def _change(self, changes: Iterable[tuple[int, int, int | None]]) -> Observed:
        """Apply changes one at a time."""
        added = changed = removed = 0
        for user, item, label in changes:
            for one in self._networks():
                if label is None:
                    old = one.state.unrate(user, item)
                else:
                    old = one.state.rate(user, item, label)
            added += old is None and label is not None
            changed += old is not None and label is not None and old != label
            removed += old is not None and label is None
        return Observed(added, changed, removed)

    def _rebuild(self, changes: Changes) -> Observed:
        """Apply changes by rebuilding the states."""
        matrix, made = merged(self.state.matrix(), changes)
        for one in self._networks():
            rows = {axis: one.state.rows(axis) for axis in SIDES}
            one.state = one.state.anew(matrix, rows)
        return made


def _between(matrix: InteractionMatrix, present: dict[SideName, np.ndarray]) -> InteractionMatrix:
    """The matrix of only these users and items, in this order; the others have no interaction."""
    users, items, labels = matrix.triplets()
    place = {axis: places(present[axis], matrix.by(axis).n_rows) for axis in SIDES}
    return InteractionMatrix.from_triplets(
        place["users"][users],
        place["items"][items],
        labels,
        n_users=len(present["users"]),
        n_items=len(present["items"]),
        n_labels=matrix.n_labels,
    )


class LiveRankingModel(LiveVocabularies[RankingArtifact]):
    """A ranking model and what it has observed since it was fitted."""

    def __init__(self, artifact: RankingArtifact) -> None:
        super().__init__(artifact)
        self._state = RankingState.of(artifact.network, artifact.timeline, artifact.rows)
        for axis in SIDES:
            self._state.add(axis)  # the unknown user and the unknown item

    @property
    def state(self) -> RankingState:
        """The interactions, and the network on them."""
        return self._state

    def add(self, axis: SideName, count: int) -> None:
        """Add new users or items, whose ids are in the vocabulary already."""
        self._state.add(axis, count)

    def observe(self, events: pl.DataFrame, item_metadata: pl.DataFrame | None = None) -> Observed:
        """Add the interactions of these rows: user, item and perhaps rating and timestamp, at most
        one of a pair.

        The value of a rating is not read; but where there is a column of ratings, a row without one
        removes the interaction. `item_metadata` has the columns `item`, `title`, and perhaps more.
        Nothing is changed where a row is refused.
        """
        if "timestamp" in events.columns and not self._base.has_times:
            # The model has no times to compare these with, so they only order the events.
            events = events.sort("timestamp", maintain_order=True).drop("timestamp")
        is_given = np.ones(events.height, np.bool_)
        if "rating" in events.columns:
            is_given = events["rating"].is_not_null().to_numpy()
        new_users, new_items = self.add_ids(events.filter(is_given))
        users, items = (self.ids[axis].encode(events[self.ids[axis].role]) for axis in SIDES)
        is_there = (users >= 0) & (items >= 0)  # what is removed may never have been there
        times = None
        if "timestamp" in events.columns:
            times = events["timestamp"].to_numpy()[is_there]
        timed = TimedChanges(users[is_there], items[is_there], times, is_given[is_there])
        self._artifact = None
        if events.height < MANY_EVENTS:
            made = self._change(timed.rows())
        else:
            timeline, made = merged_timed(
                self._state.timeline(), timed, self._state.histories.newest
            )
            rows = {axis: self._state.rows(axis) for axis in SIDES}
            self._state = RankingState.of(self._state.network, timeline, rows)
        if item_metadata is not None:
            self.add_item_metadata(item_metadata)
        return replace(made, new_users=new_users, new_items=new_items)

    def observe_one(
        self, user: str | int, item: str | int, time: int | None, *, is_given: bool
    ) -> Observed:
        """The same of one event, without frames, which take longer than all the rest."""
        found = self.add_pair(user, item, update=is_given)
        if found is None:
            return Observed()  # what is removed has never been there
        user_index, item_index, new_users, new_items = found
        self._artifact = None
        time = time if self._base.has_times else None
        made = self._change([(user_index, item_index, time, is_given)])
        return replace(made, new_users=new_users, new_items=new_items)

    def forget(self, user: int) -> int:
        """Forget a user; returns the number of interactions removed."""
        removed = self._state.forget(user)
        self.ids["users"].forget(user)
        self._artifact = None
        return removed

    def _compacted(self) -> RankingArtifact:
        present = self.present()
        rows = {axis: self._state.rows(axis)[present[axis]] for axis in SIDES}
        network, rows = compacted(self._state.network, rows)
        timeline = self._state.timeline()
        place = {axis: places(present[axis], self._state.size(axis)) for axis in SIDES}
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
            **self.vocabularies_of(present),
        )

    def _change(self, timed: Iterable[tuple[int, int, int | None, bool]]) -> Observed:
        """Apply changes one at a time."""
        added = changed = removed = 0
        now = self._state.histories.newest
        for user, item, time, is_given in timed:
            past = self._state.histories.of_user(user)
            place = past.find(item)
            if not is_given:
                if place is not None:
                    self._state.remove_interaction(user, item)
                    removed += 1
            elif place is None:
                self._state.add_interaction(user, item, now if time is None else time)
                added += 1
            elif time is None or time > past.times[place]:
                self._state.remove_interaction(user, item)
                self._state.add_interaction(user, item, now if time is None else time)
                changed += 1
        return Observed(added, changed, removed)
