"""The live state of a ranking model: scores of items from the interactions there are now.

An interaction enters its item's sum (UUC), which is exact, and takes its user's state (IIC) one
step further. Scores are a function of the parameters, the interactions and the table rows: after
any sequence of changes their bits are those of a state freshly made from `timeline()` and `rows()`.
They do not depend on the number of threads, nor on the other users and items of a call.

A state is not locked: threads that share one must take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from cfuica.data.matrix import Timeline
from cfuica.live.context_sums import CACHE_BYTES, RunningSums
from cfuica.live.histories import LiveHistories
from cfuica.live.live_rows import GrowingArray, LiveRows
from cfuica.live.scan_states import RunningStates
from cfuica.model.network import Network
from cfuica.model.pairs import SIDES, SideName
from cfuica.model.prediction import Ranker
from cfuica.model.side import TABLES
from cfuica.ops import running_sums
from cfuica.ops.runtime import run_rows

OBSERVED = 0  # The one label of the UUC sums: the user interacted with the item.


@dataclass
class RankingState:
    """A network on the CPU and the interactions it ranks by.

    The state owns the network: `forget` writes to its tables.
    """

    network: Network
    histories: LiveHistories
    _rows: dict[SideName, GrowingArray]
    _users_of_item: LiveRows  # The users of each item.
    _sums: RunningSums | None
    _states: RunningStates | None
    _vectors_mh: GrowingArray  # Vectors of the items, as in `Ranker`; computed on first use.
    # Items whose vectors are to be recomputed; None: all.
    _stale: set[int] | None = field(default=None)

    @classmethod
    def of(
        cls,
        network: Network,
        timeline: Timeline,
        rows: dict[SideName, np.ndarray],
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> RankingState:
        """From all interactions and the table row of each user and item (N,), (M,).

        `cache_bytes` bounds the memory of each side's sums or states; scores do not depend on it.
        """
        if network.device.type != "cpu":
            network = network.to("cpu")
        own_rows = {axis: GrowingArray.of(rows[axis].astype(np.int32)) for axis in SIDES}
        histories, users_of_item = LiveHistories.of(timeline), LiveRows.of(timeline.by_item())
        users, items = network.sides.get("users"), network.sides.get("items")
        units = sum(len(side.encoder_bias_h) for side in network.sides.values())
        return cls(
            network,
            histories,
            own_rows,
            users_of_item,
            RunningSums.of(users, users_of_item, own_rows["users"], cache_bytes=cache_bytes)
            if users
            else None,
            RunningStates.of(items, histories, own_rows["items"], cache_bytes=cache_bytes)
            if items
            else None,
            GrowingArray.of(np.empty((timeline.n_items, units), np.float32)),
        )

    def size(self, axis: SideName) -> int:
        """How many users or items there are."""
        return self.histories.n_users if axis == "users" else self._users_of_item.n_rows

    def rows(self, axis: SideName) -> np.ndarray:
        """(n,) int32 table row of each, copied."""
        return self._rows[axis].values.copy()

    def support(self, axis: SideName) -> np.ndarray:
        """(n,) int64 interactions of each, copied."""
        return (self.histories if axis == "users" else self._users_of_item).lengths.copy()

    def timeline(self) -> Timeline:
        """All interactions as they are now."""
        return self.histories.timeline(self.size("items"))

    def add(self, axis: SideName, count: int = 1) -> None:
        """Add users or items without interactions; they have the shared row."""
        self._rows[axis].append(count, self._shared_row(axis))
        if axis == "users":
            self.histories.extend(count)
            if self._states:
                self._states.extend(count)
        else:
            first = self.size("items")
            self._users_of_item.extend(count)
            if self._sums:
                self._sums.extend(count)
            self._vectors_mh.extend(count)
            if self._stale is not None:
                self._stale.update(range(first, first + count))

    def add_interaction(self, user: int, item: int, time: int) -> None:
        """Add an interaction of a new pair, after the user's interactions of the same time."""
        past = self.histories.of_user(user)
        place = int(np.searchsorted(past.times, time, side="right"))
        is_newest = place == past.times.size
        self.histories.put(user, past.with_one(place, item, time))
        self._users_of_item.put(item, user, OBSERVED)
        if self._states and is_newest:
            self._states.step(user, item)
        elif self._states:
            self._states.replay(user)
        self._changed(item, user, None, OBSERVED)

    def remove_interaction(self, user: int, item: int) -> None:
        """Remove the interaction of a pair that has one."""
        past = self.histories.of_user(user)
        place = past.find(item)
        assert place is not None
        self.histories.put(user, past.without(place))
        self._users_of_item.take(item, user)
        if self._states:
            self._states.replay(user)
        self._changed(item, user, OBSERVED, None)

    def forget(self, user: int) -> int:
        """Make a user a cold-start user without interactions; returns how many were removed.

        The user's row of W, V and b is overwritten with the shared one.
        """
        items = self.histories.of_user(user).items.tolist()
        for item in items:
            self.remove_interaction(user, item)
        shared_row = self._shared_row("users")
        if "users" in self.network.sides:
            tensors = self.network.sides["users"].tensors()
            for table in TABLES:
                tensors[table][self._rows["users"].values[user]] = tensors[table][shared_row]
        self._rows["users"].values[user] = shared_row
        return len(items)

    def user_vectors(self, users: np.ndarray) -> np.ndarray:
        """(U, H) vectors of users, as in `Ranker`."""
        hidden_uh = self._states.hidden(users) if self._states else None
        return self._as_users(hidden_uh, self._rows["users"].values[users])

    def vectors_after(self, items: np.ndarray, user: int | None = None) -> np.ndarray:
        """(1, H) vector of a user (None: an anonymous user) with this history, newest last."""
        hidden_uh = None
        if self._states:
            hidden_uh = self._states.hidden_of(items)[None]
        return self._as_users(hidden_uh, np.array([self._user_row(user)]))

    def vectors_without_each(
        self, offsets: np.ndarray, items: np.ndarray, users: np.ndarray | None
    ) -> np.ndarray:
        """(B, H) vectors of U users with these histories (compressed rows, oldest first), with each
        interaction left out in turn; `users` (U,) are their indices, None: anonymous users."""
        hidden_bh = None
        if self._states:
            hidden_bh = self._states.hidden_without_each(offsets, items)
        rows = np.full(len(items), self._user_row(None))
        if users is not None:
            rows = np.repeat(self._rows["users"].values[users], np.diff(offsets))
        return self._as_users(hidden_bh, rows)

    def item_vectors(self) -> np.ndarray:
        """(M, H) vectors of all items, as in `Ranker`: a view, good until the next change."""
        if self._stale is None:
            stale = np.arange(self.size("items"))
        else:
            stale = np.array(sorted(self._stale), np.int64)
        if stale.size:
            hidden_mh = self._sums.hidden(stale) if self._sums else None
            self._vectors_mh.values[stale] = self._as_items(hidden_mh, stale)
        self._stale = set()
        return self._vectors_mh.values

    def item_vectors_without(self, items: np.ndarray, users: np.ndarray | None) -> np.ndarray:
        """(P, H) vectors of items, each without the interaction of one of its users (P,); with None
        for `users`, without any interaction."""
        hidden_ph = None
        if self._sums and users is None:
            nothing_h = self._sums.sums_of(np.empty(0, np.int32), np.empty(0, np.uint8))
            hidden_ph = self._sums.hidden_of(
                np.tile(nothing_h, (len(items), 1)), np.zeros(len(items), np.int64)
            )
        elif self._sums:
            left_out = self._rows["users"].values[users].astype(np.int64)
            hidden_ph = self._sums.hidden(items, left_out)
        return self._as_items(hidden_ph, items)

    def bias(self) -> np.ndarray:
        """(M,) float32 biases of all items."""
        side = self.network.sides.get("items")
        if side is None:
            return np.zeros(self.size("items"), np.float32)
        bias_m: np.ndarray = side.decoder_bias_nk[:, 0].numpy()[self._rows["items"].values]
        return bias_m

    def scores(self, vectors_uh: np.ndarray) -> np.ndarray:
        """(U, M) float32 scores of all items for users with these vectors."""
        items_mh = self.item_vectors()
        out_mu = np.empty((len(items_mh), len(vectors_uh)), np.float32)
        run_rows(running_sums.products, len(items_mh), items_mh, vectors_uh, out_mu)
        out_mu += self.bias()[:, None]
        return out_mu.T

    def pair_scores(
        self, users_ph: np.ndarray, items_ph: np.ndarray, items: np.ndarray
    ) -> np.ndarray:
        """(P,) float32 scores of pairs by both vectors and the item's index, with the bits that
        `scores` gives."""
        out_p = np.empty(len(items), np.float32)
        run_rows(running_sums.paired, len(items), items_ph, users_ph, out_p)
        out_p += self.bias()[items]
        return out_p

    def ranker(self) -> Ranker:
        """All users and items as vectors, as they are now."""
        all_rows = np.arange(self.size("users"))
        return Ranker(self.user_vectors(all_rows), self.item_vectors().copy(), self.bias())

    def vectors(self, axis: SideName) -> tuple[np.ndarray, np.ndarray]:
        """Vectors (m, H) of all users or items, and (m,) whether each is informative: it is not
        without interactions that the model reads, or else without a row of its own."""
        if axis == "items":
            vectors_mh, reads = self.item_vectors(), self._sums is not None
        else:
            vectors_mh = self.user_vectors(np.arange(self.size("users")))
            reads = self._states is not None
        if reads:
            return vectors_mh, self.support(axis) > 0
        return vectors_mh, self._rows[axis].values != self._shared_row(axis)

    def _as_users(self, hidden_uh: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
        parts = []
        if hidden_uh is not None:
            parts.append(
                self.network.sides["items"].with_residual_layer(torch.from_numpy(hidden_uh)).numpy()
            )
        if "users" in self.network.sides:
            parts.append(self.network.sides["users"].decoder_nkh[:, 0].numpy()[rows])
        return np.concatenate(parts, 1)

    def _as_items(self, hidden_mh: np.ndarray | None, items: np.ndarray) -> np.ndarray:
        parts = [] if hidden_mh is None else [hidden_mh]
        if "items" in self.network.sides:
            rows = self._rows["items"].values[items]
            parts.insert(0, self.network.sides["items"].decoder_nkh[:, 0].numpy()[rows])
        return np.concatenate(parts, 1)

    def _user_row(self, user: int | None) -> int:
        return self._shared_row("users") if user is None else int(self._rows["users"].values[user])

    def _shared_row(self, axis: SideName) -> int:
        """The table row of cold-start users or items; 0 without the side, which has the table."""
        return self.network.sides[axis].shared_row if axis in self.network.sides else 0

    def _changed(self, item: int, user: int, old: int | None, new: int | None) -> None:
        if self._sums:
            self._sums.change(item, user, old, new)
            if self._stale is not None:
                self._stale.add(item)
