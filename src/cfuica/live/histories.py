"""The interactions of each user in time order, which can be added and removed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from cfuica.data.matrix import Timeline
from cfuica.live.live_rows import GrowingArray


@dataclass(frozen=True, eq=False)
class Past:
    """n interactions of one user, oldest first; not to be written to."""

    items: np.ndarray  # (n,) int32
    times: np.ndarray  # (n,) int64, ascending

    def find(self, item: int) -> int | None:
        """The position of the interaction with an item."""
        found = np.flatnonzero(self.items == item)
        return int(found[0]) if found.size else None

    def without(self, place: int) -> Past:
        """The same without one interaction."""
        return Past(np.delete(self.items, place), np.delete(self.times, place))

    def with_one(self, place: int, item: int, time: int) -> Past:
        """The same with one interaction more, at a position."""
        return Past(np.insert(self.items, place, item), np.insert(self.times, place, time))


_NOTHING = Past(np.empty(0, np.int32), np.empty(0, np.int64))
_NEVER = np.iinfo(np.int64).min


@dataclass
class LiveHistories:
    """The timeline that a state began with, and the histories that have changed since.

    Few histories change, and a history is short: each one that changes becomes arrays of its own.
    """

    _began: Timeline
    _lengths: GrowingArray
    _last: GrowingArray  # The time of each user's newest interaction; _NEVER where there is none.
    _changed: dict[int, Past] = field(default_factory=dict)

    @classmethod
    def of(cls, timeline: Timeline) -> LiveHistories:
        """Of all users of a timeline, which is never written to."""
        lengths = np.diff(timeline.offsets)
        last = np.full(timeline.n_users, _NEVER)
        last[lengths > 0] = timeline.times[timeline.offsets[1:][lengths > 0] - 1]
        return cls(timeline, GrowingArray.of(lengths), GrowingArray.of(last))

    @property
    def n_users(self) -> int:
        """How many users there are, those without interactions included."""
        return self._lengths.size

    @property
    def lengths(self) -> np.ndarray:
        """(N,) int64 interactions of each user: a view, not to be written to."""
        return self._lengths.values

    @property
    def newest(self) -> int:
        """The time of the newest interaction of all, 0 where there is none."""
        newest = int(self._last.values.max(initial=_NEVER))
        return 0 if newest == _NEVER else newest

    def of_user(self, user: int) -> Past:
        """The history of a user."""
        if user in self._changed:
            return self._changed[user]
        began = self._began
        place = slice(int(began.offsets[user]), int(began.offsets[user + 1]))
        return Past(began.items[place], began.times[place])

    def extend(self, count: int) -> None:
        """`count` more users, without interactions."""
        for user in range(self.n_users, self.n_users + count):
            self._changed[user] = _NOTHING
        self._lengths.append(count, 0)
        self._last.append(count, _NEVER)

    def put(self, user: int, past: Past) -> None:
        """Replace the history of a user."""
        self._changed[user] = past
        self._lengths.values[user] = past.items.size
        self._last.values[user] = past.times[-1] if past.times.size else _NEVER

    def together(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(offsets (U + 1), items) of several users, as compressed rows."""
        offsets = np.append(0, np.cumsum(self.lengths[users])).astype(np.int64)
        began = self._began
        if not self._changed and np.array_equal(users, np.arange(began.n_users)):
            return offsets, began.items
        pasts = [self.of_user(user) for user in users.tolist()]
        return offsets, np.concatenate([_NOTHING.items, *(past.items for past in pasts)])

    def timeline(self, n_items: int) -> Timeline:
        """All interactions as they are now, over `n_items` items."""
        if not self._changed:
            return replace(self._began, n_items=n_items)
        all_rows = np.arange(self.n_users)
        offsets, items = self.together(all_rows)
        times = [self.of_user(user).times for user in all_rows.tolist()]
        return Timeline(offsets, items, np.concatenate([_NOTHING.times, *times]), n_items)
