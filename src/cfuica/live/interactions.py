"""Interactions that can change and grow: compressed rows, histories in time order, and events.

`LiveRows` are the labelled interactions of each user or item, `LiveHistories` those of each user in
time order. `Changes` are events by index; `merged` applies many of them at once. In a ranking
model an event of a stronger type than the stored one replaces it, and so does a later one of the
same type; any other changes nothing. An event without a time comes after all others. Equal times
keep the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.matrix import InteractionMatrix, LabelledCsr, Timeline
from cfuica.forks import need_polars
from cfuica.ops import running_sums


class GrowingArray:
    """The first `size` rows of `room`, by default all; the rest is room to grow and was never
    written. The room is not copied: what is written here is written to it."""

    def __init__(self, room: np.ndarray, size: int | None = None) -> None:
        self._room, self.size = room, len(room) if size is None else size

    @property
    def values(self) -> np.ndarray:
        """A view of what is there now, until the array grows."""
        return self._room[: self.size]

    def extend(self, count: int) -> None:
        """`count` more rows, uninitialised."""
        wanted = self.size + count
        if wanted > len(self._room):
            # Pages that are never written take no memory, so the room is free until it is used.
            room = np.empty((max(wanted, 2 * self.size), *self._room.shape[1:]), self._room.dtype)
            room[: self.size] = self.values
            self._room = room
        self.size = wanted

    def append(self, count: int, value: int) -> None:
        """`count` more rows of one value."""
        self.extend(count)
        self.values[self.size - count :] = value


# Room of the pool for rows that outgrow theirs, beside an eighth of what it holds.
_SPARE_ENTRIES = 1024


class LiveRows:
    """Rows in a pool of entries: starts, lengths and capacities of each, members ascending.

    Plain arrays rather than an array per row, so that kernels run over any rows at once. A row
    that outgrows its capacity moves to the end of the pool; a pool without room is packed anew.
    The arrays given are never written to: the first change copies them.
    """

    def __init__(self, rows: LabelledCsr) -> None:
        self._starts = GrowingArray(rows.offsets[:-1].copy())
        self._lengths = GrowingArray(rows.sizes)
        self._capacities = GrowingArray(rows.sizes)
        self._indices, self._labels, self._end = rows.indices, rows.labels, len(rows.indices)
        self._borrowed = True

    @property
    def n_rows(self) -> int:
        """How many rows there are, the empty ones included."""
        return self._lengths.size

    @property
    def lengths(self) -> np.ndarray:
        """(rows,) int64 entries of each row: a view, not to be written to."""
        return self._lengths.values

    @property
    def pool(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(starts, lengths, members, labels) as `ops.running_sums` reads them."""
        return self._starts.values, self._lengths.values, self._indices, self._labels

    def row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(members int32 ascending, labels uint8) of one row, copied."""
        entries = self._entries(row)
        return self._indices[entries].copy(), self._labels[entries].copy()

    def find(self, rows_p: np.ndarray, indices_p: np.ndarray) -> np.ndarray:
        """(P,) int64 label of each (row, member), -1 where there is none."""
        starts, lengths, indices, labels = self.pool
        label_p: np.ndarray = running_sums.find(starts, lengths, indices, rows_p, indices_p)
        found = label_p >= 0
        label_p[found] = labels[label_p[found]]
        return label_p

    def extend(self, count: int) -> None:
        """`count` more rows, empty."""
        self._starts.append(count, self._end)
        self._lengths.append(count, 0)
        self._capacities.append(count, 0)

    def put(self, row: int, member: int, label: int) -> int | None:
        """Add an entry or change its label; the old label, or None."""
        at, old = self._find(row, member)
        if old is None:
            self._make_room(row)
            start, length = int(self._starts.values[row]), int(self._lengths.values[row])
            for pool, value in ((self._indices, member), (self._labels, label)):
                entries = pool[start : start + length + 1]
                entries[at + 1 :] = entries[at:-1]
                entries[at] = value
            self._lengths.values[row] += 1
        else:
            self._labels[int(self._starts.values[row]) + at] = label
        return old

    def take(self, row: int, member: int) -> int | None:
        """Remove an entry; its label, or None where there was none."""
        at, old = self._find(row, member)
        if old is not None:
            for pool in (self._indices, self._labels):
                entries = pool[self._entries(row)]
                entries[at:-1] = entries[at + 1 :]
            self._lengths.values[row] -= 1
        return old

    def compressed(self) -> LabelledCsr:
        """All rows as they are now, copied."""
        offsets = np.zeros(self.n_rows + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        indices, labels = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.uint8)
        running_sums.repack(*self.pool, offsets[:-1], indices, labels)
        return LabelledCsr(offsets, indices, labels)

    def _entries(self, row: int) -> slice:
        start = int(self._starts.values[row])
        return slice(start, start + int(self._lengths.values[row]))

    def _find(self, row: int, member: int) -> tuple[int, int | None]:
        """Where in its row the member is or would be, and its label; the pool is now our own."""
        if self._borrowed:
            self._pack(0)
        entries = self._entries(row)
        indices = self._indices[entries]
        at = int(indices.searchsorted(np.int32(member)))
        found = at < len(indices) and indices[at] == member
        return at, int(self._labels[entries.start + at]) if found else None

    def _make_room(self, row: int) -> None:
        """See that one more entry fits into the row."""
        entries = self._entries(row)
        length = entries.stop - entries.start
        if length < self._capacities.values[row]:
            return
        capacity = _capacity(length)
        if self._end + capacity > len(self._indices):
            self._pack(capacity)  # which leaves room in every row
            return
        moved = slice(self._end, self._end + length)
        self._indices[moved] = self._indices[entries]
        self._labels[moved] = self._labels[entries]
        self._starts.values[row], self._capacities.values[row] = self._end, capacity
        self._end += capacity

    def _pack(self, wanted: int) -> None:
        """Copy all rows into a pool of their own, with room in each and at the end."""
        capacities = _capacity(self.lengths)
        starts = np.cumsum(capacities) - capacities
        end = int(capacities.sum())
        size = end + max(wanted, end // 8) + _SPARE_ENTRIES
        indices, labels = np.empty(size, np.int32), np.empty(size, np.uint8)
        running_sums.repack(*self.pool, starts, indices, labels)
        self._starts, self._capacities = GrowingArray(starts), GrowingArray(capacities)
        self._indices, self._labels, self._end, self._borrowed = indices, labels, end, False


def _capacity(length: Any) -> Any:
    """Entries to reserve for a row, or for each of several, of this length."""
    return length + length // 4 + 4


# (items int32 oldest first, times int64 ascending, types uint8 or None where there are none) of one
# user; not to be written to.
Past = tuple[np.ndarray, np.ndarray, np.ndarray | None]
_NO_ITEMS, _NO_TIMES, _NO_TYPES = (np.empty(0, kind) for kind in (np.int32, np.int64, np.uint8))
_NEVER = np.iinfo(np.int64).min


class LiveHistories:
    """The interactions of each user in time order: the timeline that a state began with, and the
    histories that have changed since.

    Few histories change, and a history is short: each one that changes becomes arrays of its own.
    """

    def __init__(self, timeline: Timeline) -> None:
        """Of all users of a timeline, which is never written to."""
        lengths = np.diff(timeline.offsets)
        last = np.full(timeline.n_users, _NEVER)
        last[lengths > 0] = timeline.times[timeline.offsets[1:][lengths > 0] - 1]
        self._began, self._lengths = timeline, GrowingArray(lengths)
        self._nothing = _NO_ITEMS, _NO_TIMES, None if timeline.types is None else _NO_TYPES
        # The time of each user's newest interaction; _NEVER where there is none.
        self._last = GrowingArray(last)
        self._changed: dict[int, Past] = {}

    @property
    def n_rows(self) -> int:
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

    def row(self, user: int) -> tuple[np.ndarray, np.ndarray]:
        """(items int32 oldest first, labels uint8, all 0) of one user."""
        items = self.past(user)[0]
        return items, np.zeros(len(items), np.uint8)

    def past(self, user: int) -> Past:
        """The items, times and types of a user."""
        if user in self._changed:
            return self._changed[user]
        place = slice(int(self._began.offsets[user]), int(self._began.offsets[user + 1]))
        types = self._began.types
        own = None if types is None else types[place]
        return self._began.items[place], self._began.times[place], own

    def find(self, user: int, item: int) -> tuple[int, int] | None:
        """(type, time) of an interaction, None where there is none."""
        items, times, types = self.past(user)
        found = np.flatnonzero(items == item)
        if not found.size:
            return None
        return 0 if types is None else int(types[found[0]]), int(times[found[0]])

    def extend(self, count: int) -> None:
        """`count` more users, without interactions."""
        for user in range(self.n_rows, self.n_rows + count):
            self._changed[user] = self._nothing
        self._lengths.append(count, 0)
        self._last.append(count, _NEVER)

    def put(self, user: int, item: int, time: int, type_: int = 0) -> bool:
        """Add an interaction of a new pair, after those of the same time; whether it is the user's
        newest."""
        items, times, types = self.past(user)
        place = int(np.searchsorted(times, time, side="right"))
        self._replace(
            user,
            _inserted(items, place, item),
            _inserted(times, place, time),
            None if types is None else _inserted(types, place, type_),
        )
        return place == len(times)

    def take(self, user: int, item: int) -> None:
        """Remove the interaction of a pair that has one."""
        items, times, types = self.past(user)
        others = items != item
        own = None if types is None else types[others]
        self._replace(user, items[others], times[others], own)

    def together(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(offsets (U + 1), items) of several users, as compressed rows."""
        offsets = np.append(0, np.cumsum(self.lengths[users])).astype(np.int64)
        if not self._changed and np.array_equal(users, np.arange(self._began.n_users)):
            return offsets, self._began.items
        own = [self.past(user)[0] for user in users.tolist()]
        return offsets, np.concatenate([_NO_ITEMS, *own])

    def timeline(self, n_items: int) -> Timeline:
        """All interactions as they are now, over `n_items` items."""
        if not self._changed:
            return replace(self._began, n_items=n_items)
        offsets, items = self.together(np.arange(self.n_rows))
        pasts = [self.past(user) for user in range(self.n_rows)]
        times = np.concatenate([_NO_TIMES, *(past[1] for past in pasts)])
        types = None
        if self._began.types is not None:
            types = np.concatenate([_NO_TYPES, *(past[2] for past in pasts if past[2] is not None)])
        return Timeline(offsets, items, times, n_items, types)

    def _replace(
        self, user: int, items: np.ndarray, times: np.ndarray, types: np.ndarray | None
    ) -> None:
        self._changed[user] = items, times, types
        self._lengths.values[user] = len(items)
        self._last.values[user] = times[-1] if len(times) else _NEVER


def _inserted(values: np.ndarray, place: int, value: int) -> np.ndarray:
    """`np.insert` of one number, in a tenth of its time."""
    longer = np.empty(len(values) + 1, values.dtype)
    longer[:place], longer[place], longer[place + 1 :] = values[:place], value, values[place:]
    return longer


@dataclass(frozen=True, eq=False)
class History:
    """The ad-hoc history of an anonymous user."""

    items: np.ndarray  # (n,) int32 indices, distinct; newest last, where the model reads the order
    labels: np.ndarray  # (n,) uint8; all 0 where the model does not read ratings


@dataclass(frozen=True)
class Observed:
    """How many interactions some events changed, and how many users and items are new."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    new_users: int = 0
    new_items: int = 0
    sequence: int = field(default=0, compare=False)  # How many changes the model knows with these.


@dataclass(frozen=True)
class Changes:
    """E changes by index, at most one of a pair, in order of arrival."""

    users: np.ndarray
    items: np.ndarray
    labels: np.ndarray  # (E,) uint8
    given: np.ndarray  # (E,) whether there is an interaction from now on; else it is removed.
    times: np.ndarray | None = None  # (E,) int64; None: now
    types: np.ndarray | None = None  # (E,) uint8; None: all of one

    def rows(self) -> Iterator[tuple[int, int, int | None, int | None, int]]:
        """user, item, label (None: removed), time (None: now), type."""
        times = [None] * len(self.users) if self.times is None else self.times.tolist()
        types = [0] * len(self.users) if self.types is None else self.types.tolist()
        columns = (each.tolist() for each in (self.users, self.items, self.labels, self.given))
        for user, item, label, given, time, type_ in zip(*columns, times, types, strict=True):
            yield user, item, label if given else None, time, type_


def merged(
    old: InteractionMatrix | Timeline, changes: Changes, now: int = 0
) -> tuple[InteractionMatrix | Timeline, Observed]:
    """The interactions after the changes; `now` is the time of those that have none."""
    need_polars(f"Observing {len(changes.users):,} events at once")
    users, items, values, types = columns_of(old)
    new_types = changes.types
    new_values = changes.labels
    if isinstance(old, Timeline):
        no_times = np.full(len(changes.users), now)
        new_values = no_times if changes.times is None else changes.times
    pairs = pl.DataFrame({"user": users, "item": items, "place": np.arange(len(users))})
    wanted = pl.DataFrame({"user": changes.users, "item": changes.items})
    wanted = wanted.cast(pairs.select("user", "item").schema)
    found = wanted.join(pairs, on=["user", "item"], how="left", maintain_order="left")["place"]
    was_there = found.is_not_null().to_numpy()
    before = values[found.drop_nulls().to_numpy()]  # of the pairs that were there
    moves = changes.given & was_there
    if isinstance(old, InteractionMatrix):
        moves[was_there] &= new_values[was_there] != before
    else:
        is_later = np.ones(len(before), np.bool_)
        if changes.times is not None:
            is_later = new_values[was_there] > before
        if types is not None and new_types is not None:
            type_before = types[found.drop_nulls().to_numpy()]
            is_later &= new_types[was_there] == type_before
            is_later |= new_types[was_there] > type_before
        moves[was_there] &= is_later
    goes = was_there & ~changes.given
    stays = np.ones(len(users), np.bool_)
    stays[found.filter(moves | goes).to_numpy()] = False
    comes = (changes.given & ~was_there) | moves
    columns = (
        np.concatenate((users[stays], changes.users[comes])),
        np.concatenate((items[stays], changes.items[comes])),
        np.concatenate((values[stays], new_values[comes])),
    )
    if types is not None and new_types is not None:
        types = np.concatenate((types[stays], new_types[comes]))
    observed = Observed(
        added=int((changes.given & ~was_there).sum()),
        changed=int(moves.sum()),
        removed=int(goes.sum()),
    )
    return like(old, *columns, types, n_users=old.n_users, n_items=old.n_items), observed


def added(old: Timeline, more: Timeline, *, has_times: bool) -> Timeline:
    """The interactions of both; without times, those of `more` come after all, in their order."""
    changes = Changes(
        more.users,
        more.items,
        np.zeros(more.n_interactions, np.uint8),
        np.ones(more.n_interactions, np.bool_),
        more.times if has_times else None,
        more.types,
    )
    timeline, _ = merged(old, changes, int(old.times.max(initial=0)))
    assert isinstance(timeline, Timeline)
    return timeline


def columns_of(
    interactions: InteractionMatrix | Timeline,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Users, items, labels or times, and types, where there are any (n,)."""
    if isinstance(interactions, Timeline):
        return interactions.users, interactions.items, interactions.times, interactions.types
    return *interactions.triplets(), None


def like(
    old: InteractionMatrix | Timeline,
    users: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    types: np.ndarray | None,
    *,
    n_users: int,
    n_items: int,
) -> InteractionMatrix | Timeline:
    """Other interactions in the same form; `values` are labels, or times of a timeline."""
    if isinstance(old, Timeline):
        return Timeline.of(users, items, values, n_users=n_users, n_items=n_items, types=types)
    return InteractionMatrix.from_triplets(
        users, items, values, n_users=n_users, n_items=n_items, n_labels=old.n_labels
    )


def places(present: np.ndarray, size: int) -> np.ndarray:
    """(size,) int32: the position of each index in `present`, -1 where it is not there."""
    place = np.full(size, -1, np.int32)
    place[present] = np.arange(len(present), dtype=np.int32)
    return place
