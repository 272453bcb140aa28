"""What one side of a network reads of its queries, following their interactions.

`ExactSums` are the sums of Eqns. (3) and (4): the rows of W of each query's interactions. A new
interaction changes a sum by one row, and any order of adds and removes gives the bits of a fresh
load. Addends are rounded to multiples of 2^-32: a weight of 2^-9 or more is one already, the others
move by at most 2^-33. While no sum can reach 2^20, every sum and partial sum is exact in float64.
Larger weights can exceed that (a sum of n interactions is at most n max|W|). A changed sum is then
recomputed, its interactions ascending, which gives the bits of a fresh load too.

`ScanStates` are the recurrent states of histories in time order. An interaction that is the latest
takes one step of the recurrence. Any other change, a late event or a removal, replays the history.
Both use one kernel, so a state has the bits of a fresh load however it came about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cfuica.live.interactions import GrowingArray, LiveHistories, LiveRows
from cfuica.model.network import Side
from cfuica.ops import encode, running_sums, runtime
from cfuica.ops.runtime import run_rows

# Memory for the sums and hidden vectors of one side; queries beyond it are computed at every need.
CACHE_BYTES = 2 * 1024**3
# Half of what multiples of 2^-32 allow in float64: room for the rounding of the addends.
LARGEST_EXACT_SUM = 2.0**20
# Rows of room for new queries; memory that is never written is free.
_ROOM = 1024


@dataclass(frozen=True, eq=False)
class UserProfile:
    """What a prediction reads of one user, as it was when the profile was made."""

    user: int | None  # index in the state, None for an anonymous user
    row: int  # table row of the users side
    items: np.ndarray  # (n,) int32 history: ascending for ratings, oldest first for rankings
    labels: np.ndarray  # (n,) uint8
    sums_h: np.ndarray  # (H_I,) of the context; empty where there is no items side


class Context(ABC):
    """Sums and hidden vectors (Q, H) of one side's Q queries.

    Both are computed on first use and cached for the first `most_cached` queries; results do not
    depend on the cache. `interactions` are those of each query, `member_rows` the table row of each
    user or item that occurs in them. Both belong to the live state, which reports every change.
    """

    interactions: Any
    dtype: ClassVar[type]  # of a sum

    def __init__(
        self,
        side: Side,
        interactions: LiveRows | LiveHistories,
        member_rows: GrowingArray,
        *,
        cache_bytes: int = CACHE_BYTES,
        sums_qh: np.ndarray | None = None,
    ) -> None:
        """Of a side on the CPU. Nothing is summed yet, unless the sums are given."""
        self.side, self.interactions, self.member_rows = side, interactions, member_rows
        units = side.n_hidden
        self.most_cached = cache_bytes // max(1, units * (np.dtype(self.dtype).itemsize + 4))
        cached = min(interactions.n_rows, self.most_cached)
        self._sums_qh = GrowingArray(np.empty((cached + _ROOM, units), self.dtype), cached)
        self._hidden_qh = GrowingArray(np.empty((cached + _ROOM, units), np.float32), cached)
        self._has_sums = GrowingArray(np.full(cached, sums_qh is not None))
        self._has_hidden = GrowingArray(np.zeros(cached, np.bool_))
        if sums_qh is not None:
            self._sums_qh.values[:] = sums_qh[:cached]

    def extend(self, count: int) -> None:
        """`count` more queries, which `interactions` has already."""
        count = min(count, self.most_cached - self._has_sums.size)
        if count > 0:
            for array in (self._sums_qh, self._hidden_qh):
                array.extend(count)
            for array in (self._has_sums, self._has_hidden):
                array.append(count, 0)

    def change(
        self, query: int, member: int, old: int | None, new: int | None, *, is_newest: bool = False
    ) -> None:
        """Follow an interaction that `interactions` has changed from label `old` to `new` (None: no
        interaction); `is_newest` where it has come and is the query's latest."""
        if query < self._has_sums.size and self._has_sums.values[query]:
            self._has_hidden.values[query] = False
            self._has_sums.values[query] = self._follow(query, member, old, new, is_newest)

    def sums(self, queries: np.ndarray) -> np.ndarray:
        """(Q, H) sums of these queries, copied."""
        sums_qh, places = self._stored_sums(queries)
        own_qh: np.ndarray = sums_qh[places]
        return own_qh

    def all_sums(self, queries: np.ndarray) -> np.ndarray | None:
        """The sums of these queries where all are cached, else None."""
        is_cached = (queries < self._has_sums.size).all() and self._has_sums.values[queries].all()
        return self.sums(queries) if is_cached else None

    @abstractmethod
    def hidden(
        self, queries: np.ndarray, left_out: np.ndarray | None = None, labels: Any = 0
    ) -> Tensor:
        """(Q, H) hidden vectors, each without the interaction with member `left_out` (Q,) of a
        label (Q,); -1 leaves out none."""

    def hidden_between(self, start: int, stop: int) -> Tensor:
        """(stop - start, H) hidden vectors of adjacent queries.

        A view where they are cached: not to be written to, and good until the next change.
        """
        if stop > self._has_sums.size:
            return self.hidden(np.arange(start, stop))
        lacking = start + np.flatnonzero(~self._has_hidden.values[start:stop])
        if len(lacking):
            self._hidden_qh.values[lacking] = self.hidden(lacking).numpy()
            self._has_hidden.values[lacking] = True
        return torch.from_numpy(self._hidden_qh.values[start:stop])

    @abstractmethod
    def hidden_of(self, sums_qh: np.ndarray, sizes: np.ndarray) -> Tensor:
        """(Q, H) hidden vectors of given sums of `sizes` (Q,) interactions each."""

    @abstractmethod
    def sums_of(self, members: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """(H,) sum of a history that is not stored, as a `UserProfile` has it."""

    @abstractmethod
    def without(self, profile: UserProfile, place: int) -> np.ndarray:
        """(H,) sum of a profile's history without the interaction in one place."""

    @abstractmethod
    def hidden_without_each(self, profile: UserProfile) -> Tensor:
        """(n, H) hidden vectors of a profile's history without each interaction in turn."""

    @abstractmethod
    def _follow(
        self, query: int, member: int, old: int | None, new: int | None, is_newest: bool
    ) -> bool:
        """Change a cached sum; whether it is valid."""

    @abstractmethod
    def _compute(self, queries: np.ndarray, places: np.ndarray, sums_qh: np.ndarray) -> None:
        """Write the sums of the queries to these rows of `sums_qh`."""

    def _stored_sums(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums, not to be written to, and the place of each of these queries among them: the cache
        where it has room for all."""
        other = np.flatnonzero(queries >= self._has_sums.size)
        cached = np.delete(queries, other) if len(other) else queries
        lacking = cached[~self._has_sums.values[cached]]
        if len(lacking):
            lacking = np.unique(lacking)
            self._compute(lacking, lacking, self._sums_qh.values)
            self._has_sums.values[lacking] = True
        if not len(other):
            return self._sums_qh.values, queries
        sums_qh: np.ndarray = np.empty((len(queries), self.side.n_hidden), self.dtype)
        sums_qh[queries < self._has_sums.size] = self._sums_qh.values[cached]
        self._compute(queries[other], other, sums_qh)
        return sums_qh, np.arange(len(queries))


class ExactSums(Context):
    """Sums in float64 of labelled interactions; see the top of this file."""

    interactions: LiveRows
    dtype = np.float64

    def entries(self, members: np.ndarray, labels: Any) -> np.ndarray:
        """(n,) int64 the row of W of each interaction."""
        entries: np.ndarray = self.member_rows.values[members] * np.int64(self._n_labels) + labels
        return entries

    def sums_of(self, members: np.ndarray, labels: np.ndarray) -> np.ndarray:
        sums_h: np.ndarray = self.sums_of_rows(np.array([0, len(members)]), members, labels)[0]
        return sums_h

    def hidden(
        self, queries: np.ndarray, left_out: np.ndarray | None = None, labels: Any = 0
    ) -> Tensor:
        sums_qh, places = self._stored_sums(queries)
        sizes = self.interactions.lengths[queries]
        if left_out is None:
            return self._read(sums_qh, places, sizes)
        entries = np.where(left_out >= 0, self.entries(left_out, labels), -1)
        return self._read(sums_qh, places, sizes - (left_out >= 0), entries)

    def hidden_of(self, sums_qh: np.ndarray, sizes: np.ndarray) -> Tensor:
        return self._read(sums_qh, np.arange(len(sums_qh)), sizes)

    def sums_of_rows(
        self, offsets: np.ndarray, members: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        """(R, H) sums of R compressed rows of interactions that are not stored."""
        every = np.arange(len(offsets) - 1)
        sums_rh = np.empty((len(every), self.side.n_hidden))
        self._fill((offsets[:-1], np.diff(offsets), members, labels), every, every, sums_rh)
        return sums_rh

    def without(self, profile: UserProfile, place: int) -> np.ndarray:
        sums_h = profile.sums_h.copy()
        entry = self.entries(profile.items[place], profile.labels[place])
        running_sums.shift(self.side.W.rows, sums_h, int(entry), -1)
        return sums_h

    def hidden_without_each(self, profile: UserProfile) -> Tensor:
        n = len(profile.items)
        entries = self.entries(profile.items, profile.labels)
        zeros = np.zeros(n, np.int64)
        return self._read(profile.sums_h[None], zeros, np.full(n, n - 1), entries)

    @cached_property
    def _largest_weight(self) -> float:
        table = self.side.W.array
        return max(-float(table.min(initial=0.0)), float(table.max(initial=0.0)))

    @property
    def _n_labels(self) -> int:
        return self.side.W.values.shape[1]

    def _follow(
        self, query: int, member: int, old: int | None, new: int | None, is_newest: bool
    ) -> bool:
        # The larger of the numbers of interactions before and after.
        interactions = int(self.interactions.lengths[query]) + (new is None)
        if interactions * self._largest_weight >= LARGEST_EXACT_SUM:
            return False
        entry = int(self.member_rows.values[member]) * self._n_labels
        running_sums.shift(
            self.side.W.rows,
            self._sums_qh.values[query],
            -1 if old is None else entry + old,
            -1 if new is None else entry + new,
        )
        return True

    def _compute(self, queries: np.ndarray, places: np.ndarray, sums_qh: np.ndarray) -> None:
        self._fill(self.interactions.pool, queries, places, sums_qh)

    def _fill(
        self,
        pool: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
        queries: np.ndarray,
        places: np.ndarray,
        sums_qh: np.ndarray,
    ) -> None:
        work = np.zeros(len(queries) + 1, np.int64)
        np.cumsum(pool[1][queries], out=work[1:])
        run_rows(
            running_sums.fill,
            len(queries),
            self.side.W.rows,
            *pool,
            self.member_rows.values,
            self._n_labels,
            queries.astype(np.int64, copy=False),
            places.astype(np.int64, copy=False),
            sums_qh,
            work=work,
        )

    def _read(
        self,
        sums_qh: np.ndarray,
        places: np.ndarray,
        sizes: np.ndarray,
        entries: np.ndarray | None = None,
    ) -> Tensor:
        """(Q, H) hidden vectors of the sums in `places` (Q,), each less a row of W (-1: none)."""
        read_qh = runtime.empty(len(places), sums_qh.shape[1])
        run_rows(
            running_sums.read,
            len(places),
            self.side.W.rows,
            sums_qh,
            places.astype(np.int64, copy=False),
            np.full(len(places), -1) if entries is None else entries,
            self.side.length_norm.of(sizes),
            read_qh.numpy(),
        )
        with torch.no_grad():
            return self.side.hidden(read_qh)


class ScanStates(Context):
    """States in float32 of histories in time order; see the top of this file."""

    interactions: LiveHistories
    dtype = np.float32

    def sums_of(self, members: np.ndarray, labels: np.ndarray) -> np.ndarray:
        state_uh = np.zeros((1, self.side.n_hidden), np.float32)
        self._advance(np.array([0, len(members)]), members, state_uh)
        state_h: np.ndarray = state_uh[0]
        return state_h

    def without(self, profile: UserProfile, place: int) -> np.ndarray:
        states_nh = self._without_each(np.array([0, len(profile.items)]), profile.items)
        state_h: np.ndarray = states_nh[place]
        return state_h

    def hidden_without_each(self, profile: UserProfile) -> Tensor:
        n = len(profile.items)
        states_nh = self._without_each(np.array([0, n]), profile.items)
        return self.hidden_of(states_nh, np.full(n, n - 1))

    def hidden(
        self, queries: np.ndarray, left_out: np.ndarray | None = None, labels: Any = 0
    ) -> Tensor:
        states_qh, sizes = self.sums(queries), self.interactions.lengths[queries]
        changed = np.flatnonzero([] if left_out is None else left_out >= 0)
        if left_out is not None and len(changed):
            users, user_of = np.unique(queries[changed], return_inverse=True)
            offsets, items = self.interactions.together(users)
            n_items = len(self.member_rows.values)
            cells_b = np.repeat(np.arange(len(users)), np.diff(offsets)) * n_items + items
            order = np.argsort(cells_b)
            wanted = user_of * n_items + left_out[changed]
            place = order[np.searchsorted(cells_b, wanted, sorter=order)]
            states_qh[changed] = self._without_each(offsets, items)[place]
        return self.hidden_of(states_qh, sizes)

    def hidden_of(self, sums_qh: np.ndarray, sizes: np.ndarray) -> Tensor:
        with torch.no_grad():
            return self.side.hidden(torch.from_numpy(sums_qh * self._decay_and_scale[1]))

    @cached_property
    def _decay_and_scale(self) -> tuple[np.ndarray, np.ndarray]:
        if self.side.decay is None:
            ones_h = np.ones(self.side.n_hidden, np.float32)
            return ones_h, ones_h
        with torch.no_grad():
            decay_h, scale_h = self.side.decay()
        return decay_h.numpy(), scale_h.numpy()

    def _follow(
        self, query: int, member: int, old: int | None, new: int | None, is_newest: bool
    ) -> bool:
        if is_newest:
            own_uh = self._sums_qh.values[query : query + 1]
            self._advance(np.array([0, 1]), np.array([member]), own_uh)
        return is_newest  # else it is replayed on next use

    def _compute(self, queries: np.ndarray, places: np.ndarray, sums_qh: np.ndarray) -> None:
        states_uh = np.zeros((len(queries), self.side.n_hidden), np.float32)
        self._advance(*self.interactions.together(queries), states_uh)
        sums_qh[places] = states_uh

    def _entries(self, items: np.ndarray) -> np.ndarray:
        """The row of W of each item: there is one label."""
        rows: np.ndarray = self.member_rows.values[items].astype(np.int64)
        return rows

    def _advance(self, offsets: np.ndarray, items: np.ndarray, states_uh: np.ndarray) -> None:
        """Advance each state over further interactions, in place."""
        run_rows(
            encode.advance,
            len(states_uh),
            self.side.W.rows,
            offsets,
            self._entries(items),
            self._decay_and_scale[0],
            states_uh,
            work=offsets,
        )

    def _without_each(self, offsets: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(B, H) states of histories (compressed rows), with each interaction left out in turn."""
        states_bh = np.empty((len(items), self.side.n_hidden), np.float32)
        run_rows(
            encode.without_each,
            len(offsets) - 1,
            self.side.W.rows,
            offsets,
            self._entries(items),
            self._decay_and_scale[0],
            states_bh,
            work=offsets,
        )
        return states_bh
