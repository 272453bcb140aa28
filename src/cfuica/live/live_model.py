"""A model in use: ids of the outside world on live states.

A ranking model in use: ids of the outside world on a live state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cfuica.artifact.artifact import CalibratedNetwork, RankingArtifact, RatingArtifact
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.live.events import Changes, Observed, TimedChanges, compacted, merged, merged_timed
from cfuica.live.live_vocabulary import LiveVocabularies, places
from cfuica.live.ranking_state import RankingState
from cfuica.live.rating_state import LiveState
from cfuica.model.calibration import Calibration, expected_rating
from cfuica.model.pairs import SIDES, SideName

# From so many events on, states made anew from all interactions are faster than a change at a time.
# Both give the same bits.
MANY_EVENTS = 2000


@dataclass
class ServingNetwork:
    """A network with its live state, and what corrects its distributions."""

    state: LiveState
    calibration: Calibration


class LiveModel(LiveVocabularies[RatingArtifact]):
    """What a model knows and has observed since.

    Where both the user and the item were known to training, the warm network answers, else
    that of cold-start users and items, where there is one.
    """

    def __init__(self, artifact: RatingArtifact) -> None:
        super().__init__(artifact)

        def network_for(calibrated: CalibratedNetwork) -> ServingNetwork:
            # Without a network of their own cold-start users and items have mean rows, and no bias
            # beside them.
            values_k = self.scale.values_array() if calibrated is artifact.cold_start else None
            state = LiveState.of(
                calibrated.network, artifact.interactions, artifact.rows, values_k=values_k
            )
            for axis in SIDES:
                state.add(axis)  # nobody
            return ServingNetwork(state, calibrated.calibration)

        self.warm = network_for(artifact.warm)
        self.cold_start = network_for(artifact.cold_start) if artifact.cold_start else self.warm

    @property
    def state(self) -> LiveState:
        """The interactions, and the warm network on them."""
        return self.warm.state

    @property
    def scale(self) -> LabelScale:
        """Of the ratings."""
        return self._base.scale

    def network_for(self, user: int, item: int) -> ServingNetwork:
        """Who answers about a pair; an anonymous user is nobody."""
        is_cold = self.is_cold("users")[user] or self.is_cold("items")[item]
        return self.cold_start if is_cold else self.warm

    def add(self, axis: SideName, count: int) -> None:
        """New users and items, who have their ids already."""
        for one in self._networks():
            one.state.add(axis, count)

    def answers(
        self, users_p: np.ndarray, items_p: np.ndarray
    ) -> Iterator[tuple[ServingNetwork, np.ndarray, np.ndarray]]:
        """Who answers about some of the pairs, which ones (A,), and their logits (A, K)."""
        is_cold_p = self.is_cold("users")[users_p] | self.is_cold("items")[items_p]
        for one, is_asked_p in ((self.warm, ~is_cold_p), (self.cold_start, is_cold_p)):
            asked = np.flatnonzero(is_asked_p)
            if len(asked):
                yield one, asked, one.state.pair_logits(users_p[asked], items_p[asked])

    def distributions(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 predicted distributions of pairs, corrected."""
        values_k = self.scale.values_array()
        p_pk = np.empty((len(users_p), len(values_k)), np.float32)
        for one, asked, logits_pk in self.answers(users_p, items_p):
            p_pk[asked] = one.calibration.distributions(logits_pk, values_k)
        return p_pk

    def expected(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) float32 expected ratings of pairs, which correcting does not change."""
        expected_p = np.empty(len(users_p), np.float32)
        for _, asked, logits_pk in self.answers(users_p, items_p):
            expected_p[asked] = expected_rating(logits_pk[None], self.scale.values_array())[0]
        return expected_p

    def observe(self, events: pl.DataFrame, item_metadata: pl.DataFrame | None = None) -> Observed:
        """Take in rows of user, item, rating, at most one of a pair; no rating takes one back.

        `item_metadata` is a table of items: `item`, `title`, and perhaps more.

        Nothing is changed where a row is refused.
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
        is_there = (users >= 0) & (items >= 0)  # what is taken back may never have been
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
            return Observed()  # what is taken back has never been
        user_index, item_index, new_users, new_items = found
        self._artifact = None
        made = self._change([(user_index, item_index, label)])
        return replace(made, new_users=new_users, new_items=new_items)

    def forget(self, axis: SideName, index: int) -> int:
        """Remove all that is known of a user or item; how many interactions that were."""
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
        """Make changes one at a time."""
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
        """The same by states made anew."""
        matrix, made = merged(self.state.matrix(), changes)
        for one in self._networks():
            rows = {axis: one.state.rows(axis) for axis in SIDES}
            one.state = one.state.anew(matrix, rows)
        return made


def _between(matrix: InteractionMatrix, present: dict[SideName, np.ndarray]) -> InteractionMatrix:
    """The matrix with only these users and items, in this order; the others have no interaction."""
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
    """What a ranking model knows and has observed since."""

    def __init__(self, artifact: RankingArtifact) -> None:
        super().__init__(artifact)
        self._state = RankingState.of(artifact.network, artifact.timeline, artifact.rows)
        for axis in SIDES:
            self._state.add(axis)  # nobody

    @property
    def state(self) -> RankingState:
        """The interactions, and the network on them."""
        return self._state

    def add(self, axis: SideName, count: int) -> None:
        """New users and items, who have their ids already."""
        self._state.add(axis, count)

    def observe(self, events: pl.DataFrame, item_metadata: pl.DataFrame | None = None) -> Observed:
        """Take in rows of user, item and perhaps rating and timestamp, at most one of a pair.

        `item_metadata` is a table of items: `item`, `title`, and perhaps more.

        Whatever the rating, it was done; but where there is a column of ratings, a row without one
        takes the interaction back. Nothing is changed where a row is refused.
        """
        if "timestamp" in events.columns and not self._base.has_times:
            # Times that cannot be compared with those of the model say at least which came first.
            events = events.sort("timestamp", maintain_order=True).drop("timestamp")
        is_given = np.ones(events.height, np.bool_)
        if "rating" in events.columns:
            is_given = events["rating"].is_not_null().to_numpy()
        new_users, new_items = self.add_ids(events.filter(is_given))
        users, items = (self.ids[axis].encode(events[self.ids[axis].role]) for axis in SIDES)
        is_there = (users >= 0) & (items >= 0)  # what is taken back may never have been
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
            return Observed()  # what is taken back has never been
        user_index, item_index, new_users, new_items = found
        self._artifact = None
        time = time if self._base.has_times else None
        made = self._change([(user_index, item_index, time, is_given)])
        return replace(made, new_users=new_users, new_items=new_items)

    def forget(self, user: int) -> int:
        """Remove all that is known of a user; how many interactions that were."""
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
        """Make changes one at a time."""
        added = changed = removed = 0
        now = self._state.histories.newest
        for user, item, time, is_given in timed:
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
