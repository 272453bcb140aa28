"""A ranking model in use: ids of the outside world on a live state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import polars as pl

from cfuica.data.timeline import Timeline
from cfuica.knowledge import RankingKnowledge
from cfuica.live.axes import LiveAxes, places
from cfuica.live.compacting import compacted
from cfuica.live.deeds import Deeds, merged
from cfuica.live.events import Observed
from cfuica.live.ranking_state import RankingState
from cfuica.model.pairs import AXES, SideName

# From so many events on, a state made anew from all behaviours is faster than a change at a time.
# Both give the same bits.
MANY_EVENTS = 2000


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
            timeline, made = merged(self._state.timeline(), deeds, self._state.histories.newest)
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
