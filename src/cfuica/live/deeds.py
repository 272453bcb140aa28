"""Behaviours with times that are added, changed or taken back, many at once.

Of a pair the latest behaviour counts, as in a table: one that is not later than what is known
changes nothing, a later one takes its place. One without a time comes after everything. What has
the same time is in the order it came in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfuica.data.timeline import Timeline
from cfuica.live.events import Observed, cells, found


@dataclass(frozen=True)
class Deeds:
    """E changes by index, at most one of a pair, in the order they came in."""

    users: np.ndarray
    items: np.ndarray
    times: np.ndarray | None
    """(E,) int64; None: now"""
    given: np.ndarray
    """(E,) whether it happened; else it is taken back."""

    def rows(self) -> Iterator[tuple[int, int, int | None, bool]]:
        """user, item, time or None where that is now, and whether it happened."""
        times = [None] * len(self.users) if self.times is None else self.times.tolist()
        users, items, given = (each.tolist() for each in (self.users, self.items, self.given))
        return zip(users, items, times, given, strict=True)


def merged(old: Timeline, deeds: Deeds, now: int) -> tuple[Timeline, Observed]:
    """The behaviours after the changes; `now` is the time of those that have none."""
    users = old.users
    own = cells(users, old.items, old.n_items)
    order = np.argsort(own)
    place, known = found(own[order], cells(deeds.users, deeds.items, old.n_items))
    at = np.full(len(place), -1)  # where each is, if it is known
    at[known] = order[place[known]]
    again = deeds.given & known
    if deeds.times is None:
        times, moves = np.full(len(place), now), again
    else:
        times, before = deeds.times, old.times[at] if old.n_behaviours else deeds.times
        moves = again & (times > before)
    stays = np.ones(old.n_behaviours, np.bool_)
    stays[at[moves | (known & ~deeds.given)]] = False
    comes = (deeds.given & ~known) | moves
    timeline = Timeline.of(
        np.concatenate((users[stays], deeds.users[comes])),
        np.concatenate((old.items[stays], deeds.items[comes])),
        np.concatenate((old.times[stays], times[comes])),
        n_users=old.n_users,
        n_items=old.n_items,
    )
    return timeline, Observed(
        added=int((deeds.given & ~known).sum()),
        changed=int(moves.sum()),
        removed=int((known & ~deeds.given).sum()),
    )
