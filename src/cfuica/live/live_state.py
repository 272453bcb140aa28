"""The live state of a network: logits of pairs from the interactions there are now.

An interaction enters what each side reads of its item (UUC) and of its user (IIC), so a change
takes two rows of W and shows in the next prediction. Ratings are read as exact sums on both sides;
of rankings the users side reads exact sums, the items side the states of histories in time order.
From there on a prediction is the `hidden` and `forward` of the network, as in training.

Predictions are a function of the parameters, the interactions and the table rows: after any
sequence of changes their bits are those of a state freshly made from `collected()` and `rows()`.
They do not depend on the number of threads, nor on the other pairs of a call.

A state is not locked: threads that share one must take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.live.cold_start_bias import ColdStartBias
from cfuica.live.contexts import CACHE_BYTES, Context, ExactSums, ScanStates, UserProfile
from cfuica.live.interactions import GrowingArray, LiveHistories, LiveRows
from cfuica.model.network import Network, Ranker
from cfuica.model.shared_rows import Centroids
from cfuica.ops.tables import OTHER, SIDES, Pairs, SideName

# Pairs per pass: bounds the memory of hidden vectors when many predicted pairs are observed.
PAIRS_PER_PASS = 65_536
# Items per pass: bounds the memory of users x items, and lets the items' hidden vectors stay in the
# processor's cache from one user to the next.
ITEMS_PER_PASS = 4096

Change = Literal["added", "changed", "removed"]


@dataclass
class LiveState:
    """A network on the CPU and the interactions it predicts from.

    The state owns the network: `forget` writes to its tables. Users and items are indices; one that
    is out of range is an `IndexError`.
    """

    network: Network
    contexts: dict[SideName, Context]  # Of the sides that the network has.
    _rows: dict[SideName, GrowingArray]
    # The rows of W and V, where they differ from those of b, which are `_rows`.
    _table_rows: dict[SideName, GrowingArray]
    _by_user: LiveRows | LiveHistories
    _by_item: LiveRows
    _bias: ColdStartBias | None  # Where cold-start users have one of their own.
    # Of the sides whose cold-start users or items join the nearest cluster.
    _centroids: Mapping[SideName, Centroids]

    @classmethod
    def of(
        cls,
        network: Network,
        interactions: InteractionMatrix | Timeline,
        rows: Mapping[SideName, np.ndarray],
        *,
        values_k: np.ndarray | None = None,
        item_sums: np.ndarray | None = None,
        cache_bytes: int = CACHE_BYTES,
        centroids: Mapping[SideName, Centroids] | None = None,
    ) -> LiveState:
        """From all interactions and the row of each user and item (N,), (M,).

        With `values_k`, the ratings of the labels, cold-start users get a bias of their own.
        `item_sums` (M, H) are the exact sums of the users side, where they are known already.
        `cache_bytes` bounds the memory of each side's sums; predictions do not depend on it. With
        `centroids`, of a network with both sides, cold-start users or items with interactions join
        the nearest cluster."""
        network = network.cpu()
        own_rows = {axis: GrowingArray(rows[axis].astype(np.int32)) for axis in SIDES}
        table_rows = {
            axis: GrowingArray(side.table_rows(rows[axis]).astype(np.int32))
            for axis, side in network.sides.items()
            if side.shared is not None
        }
        by_user: LiveRows | LiveHistories
        if isinstance(interactions, Timeline):
            by_user, by_item = LiveHistories(interactions), LiveRows(interactions.by_item())
        else:
            by_user, by_item = LiveRows(interactions.by_user), LiveRows(interactions.by_item)
        contexts: dict[SideName, Context] = {}
        for name, side in network.sides.items():
            own = by_user if name == "items" else by_item
            kind = ScanStates if isinstance(own, LiveHistories) else ExactSums
            contexts[name] = kind(
                side,
                own,
                table_rows.get(name, own_rows[name]),
                cache_bytes=cache_bytes,
                sums_qh=item_sums if name == "users" else None,
            )
        bias = None
        if values_k is not None and len(contexts) == 2 and len(values_k) > 1:
            sums = cast("Mapping[SideName, ExactSums]", contexts)
            bias = ColdStartBias(sums, own_rows["items"], network.bilinear, values_k)
        centroids = centroids or {}
        state = cls(network, contexts, own_rows, table_rows, by_user, by_item, bias, centroids)
        for axis in centroids:
            for index in np.flatnonzero(state._is_of_many(axis, state._rows[axis].values)).tolist():
                state._join(axis, index)
        return state

    def anew(
        self, interactions: InteractionMatrix | Timeline, rows: Mapping[SideName, np.ndarray]
    ) -> LiveState:
        """A state of the same network on other interactions."""
        values_k = None if self._bias is None else self._bias.values_k
        return LiveState.of(
            self.network, interactions, rows, values_k=values_k, centroids=self._centroids
        )

    @property
    def n_labels(self) -> int:
        """K."""
        return self.network.n_labels

    def size(self, axis: SideName) -> int:
        """How many users or items there are."""
        return self._by(axis).n_rows

    def rows(self, axis: SideName) -> np.ndarray:
        """(n,) int32 row of each, copied."""
        return self._rows[axis].values.copy()

    def is_cold(self, axis: SideName, indices: np.ndarray | int | None = None) -> np.ndarray:
        """(n,) whether each user or item, or each of these, is a cold-start one, with the shared
        row.

        Without a side they have no parameters, and all count as warm.
        """
        rows = self._rows[axis].values
        side = self.network.sides.get(axis)
        is_cold: np.ndarray = (rows if indices is None else rows[indices]) == (
            side.shared_row if side else -1
        )
        return is_cold

    def support(self, axis: SideName) -> np.ndarray:
        """(n,) int64 interactions of each, copied."""
        return self._by(axis).lengths.copy()

    def history(self, axis: SideName, index: int) -> tuple[np.ndarray, np.ndarray]:
        """(members int32, labels uint8) of one user or item: ascending, or of a ranking model's
        user oldest first."""
        self._check(axis, index)
        return self._by(axis).row(index)

    def types(self, user: int) -> np.ndarray:
        """(n,) uint8 the type of each interaction of a ranking model's user, oldest first."""
        assert isinstance(self._by_user, LiveHistories)
        types = self._by_user.past(user)[2]
        assert types is not None
        return types

    @property
    def newest(self) -> int:
        """The time of the newest interaction of all; 0 where there are no times."""
        return self._by_user.newest if isinstance(self._by_user, LiveHistories) else 0

    def collected(self) -> InteractionMatrix | Timeline:
        """All interactions as they are now."""
        if isinstance(self._by_user, LiveHistories):
            return self._by_user.timeline(self.size("items"))
        return InteractionMatrix(
            self._by_user.compressed(), self._by_item.compressed(), self.n_labels
        )

    def add(self, axis: SideName, count: int = 1) -> int:
        """Add users or items without interactions, with the shared row; the index of the first."""
        first = self.size(axis)
        self._by(axis).extend(count)
        self._rows[axis].append(count, self._shared_row(axis))
        if axis in self._table_rows:
            self._table_rows[axis].append(count, self.network.sides[axis].W.shared_row)
        if OTHER[axis] in self.contexts:
            self.contexts[OTHER[axis]].extend(count)
        return first

    def change(
        self,
        user: int,
        item: int,
        label: int | None,
        time: int | None = None,
        type_: int = 0,
        *,
        now: int = 0,
    ) -> Change | None:
        """Give an interaction a label, or remove it (None); says what that changed.

        Of rankings an event of a weaker type than the stored one changes nothing, nor one of the
        same type that is not later; an interaction without a time comes after the user's others, at
        `now`.
        """
        self._check("users", user)
        self._check("items", item)
        if label is not None and not 0 <= label < self.n_labels:
            raise IndexError(f"label {label} is out of range: there are {self.n_labels}")
        is_newest = False
        if isinstance(self._by_user, LiveHistories):
            before = self._by_user.find(user, item)
            if before is not None and (
                label is None
                or type_ > before[0]
                or (type_ == before[0] and (time is None or time > before[1]))
            ):
                self._by_user.take(user, item)
                self._by_item.take(item, user)
                self._follow(user, item, 0, None, is_newest)
                if label is None:
                    return "removed"
            elif before is not None or label is None:
                return None
            is_newest = self._by_user.put(user, item, now if time is None else time, type_)
            self._by_item.put(item, user, label)
            self._follow(user, item, None, label, is_newest)
            return "added" if before is None else "changed"
        old: int | None = None
        for rows, row, member in ((self._by_user, user, item), (self._by_item, item, user)):
            old = rows.take(row, member) if label is None else rows.put(row, member, label)
        if old == label:
            return None
        self._follow(user, item, old, label, is_newest)
        return "added" if old is None else "removed" if label is None else "changed"

    def forget(self, axis: SideName, index: int) -> int:
        """Make a user or item a cold-start one without interactions; returns how many were removed.

        Its row of b is overwritten with the shared one, and so are those of W and V, unless others
        share them.
        """
        neighbours, _ = self.history(axis, index)
        for member in neighbours.tolist():
            user, item = (index, member) if axis == "users" else (member, index)
            self.change(user, item, None)
        side, shared_row = self.network.sides.get(axis), self._shared_row(axis)
        row = int(self._rows[axis].values[index])
        if side is not None and not self._is_of_many(axis, row):
            side.b.array[row] = side.b.array[shared_row]
            in_table = side.table_row(row)
            if side.shared is None or np.count_nonzero(side.shared.row_of == in_table) == 1:
                for table in (side.W, side.V):
                    table.array[in_table] = table.array[table.shared_row]
        self.move(axis, index, shared_row)
        if axis == "items" and self._bias is not None:
            self._bias.changed(index)  # also where the item had no interactions
        return len(neighbours)

    def move(self, axis: SideName, index: int, row: int) -> None:
        """Give a user or item another row; what the other side reads of it follows."""
        before = int(self._rows[axis].values[index])
        self._rows[axis].values[index] = row
        if axis not in self._table_rows or before == row:
            return
        members, labels = (each.tolist() for each in self.history(axis, index))
        context = self.contexts[axis]
        for member, label in zip(members, labels, strict=True):
            context.change(member, index, label, None)
        self._table_rows[axis].values[index] = self.network.sides[axis].table_row(row)
        for member, label in zip(members, labels, strict=True):
            context.change(member, index, None, label)
            if self._bias is not None:
                self._bias.changed(member if axis == "users" else index)

    def _nearest_row(self, axis: SideName, members: np.ndarray, labels: np.ndarray) -> int:
        """The row of the cluster that is nearest to these interactions of a user or item.

        Only those with users or items of training count, so that the row does not depend on which
        clusters others have joined. The shared row, where there are none.
        """
        side, other = self.network.sides[axis], OTHER[axis]
        rows = self._rows[other].values[members]
        trained = ~self._is_of_many(other, rows)
        if not trained.any():
            return side.shared_row
        context = self.contexts[other]
        sums_h = context.sums_of(members[trained], labels[trained])
        hidden_h = context.hidden_of(sums_h[None], np.array([trained.sum()])).numpy()[0]
        return side.n_own_rows + self._centroids[axis].nearest(hidden_h)

    def _is_of_many(self, axis: SideName, rows: int | np.ndarray) -> Any:
        """Whether rows are a cluster's, or that of all cold-start users or items, and not one's
        own."""
        side = self.network.sides.get(axis)
        if side is None:
            return np.zeros(np.shape(rows), np.bool_)
        return np.greater_equal(rows, side.n_own_rows)

    def profile(self, user: int) -> UserProfile:
        """The profile of a user of the state."""
        return self.profiles(np.array([user]))[0]

    def profiles(self, users: np.ndarray) -> list[UserProfile]:
        """The profiles of several users of the state, whose sums are computed at once."""
        self._check("users", users)
        own = self.contexts.get("items")
        sums_bh = own.sums(users) if own else np.empty((len(users), 0))
        rows = self._rows["users"].values[users].tolist()
        return [
            UserProfile(user, row, *self._by_user.row(user), sums_h)
            for user, row, sums_h in zip(users.tolist(), rows, sums_bh, strict=True)
        ]

    def anonymous(self, items: np.ndarray, labels: np.ndarray) -> UserProfile:
        """The profile of an anonymous user: distinct items and their labels; of rankings oldest
        first, of ratings in any order."""
        self._check("items", items)
        order = np.argsort(items)
        if (items[order[1:]] == items[order[:-1]]).any():
            raise ValueError(
                "an anonymous user has one label for an item, but an item is given twice"
            )
        if isinstance(self._by_user, LiveRows):
            items, labels = items[order], labels[order]
        items, labels = items.astype(np.int32), labels.astype(np.uint8)
        if len(labels) and labels.max() >= self.n_labels:
            raise IndexError(f"label {labels.max()} is out of range: there are {self.n_labels}")
        own = self.contexts.get("items")
        sums_h = own.sums_of(items, labels) if own else np.empty(0)
        row = self._shared_row("users")
        if "users" in self._centroids:
            row = self._nearest_row("users", items, labels)
        return UserProfile(None, row, items, labels, sums_h)

    def without(self, profile: UserProfile, item: int) -> UserProfile:
        """The profile without the interaction with an item, if it has one."""
        place = np.flatnonzero(profile.items == item)
        if not len(place):
            return profile
        own = self.contexts.get("items")
        return replace(
            profile,
            items=np.delete(profile.items, place),
            labels=np.delete(profile.labels, place),
            sums_h=own.without(profile, int(place[0])) if own else profile.sums_h,
        )

    def pair_logits(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 logits of pairs; an observed one is left out of both its contexts."""
        self._check("users", users_p)
        self._check("items", items_p)
        logits_pk = np.empty((len(users_p), self.n_labels), np.float32)
        for start in range(0, len(users_p), PAIRS_PER_PASS):
            part = slice(start, start + PAIRS_PER_PASS)
            indices: dict[SideName, np.ndarray] = {
                "users": users_p[part].astype(np.int64),
                "items": items_p[part].astype(np.int64),
            }
            logits_pk[part] = self._pass_over_pairs(indices)
        self._add_own_biases(logits_pk, users_p, items_p)
        return logits_pk

    def item_logits(
        self, profiles: Sequence[UserProfile], items: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, M, K) float32 logits of all items, or of these (M,), for user profiles.

        Items of a profile's history are *not* left out of its context: leave them out of the
        result, or use `pair_logits`.
        """
        profile_rows = np.array([profile.row for profile in profiles], np.int32)
        hidden: dict[SideName, Tensor] = {}
        if "items" in self.contexts and profiles:
            sums_bh = np.stack([profile.sums_h for profile in profiles])
            sizes = np.array([len(profile.items) for profile in profiles])
            hidden["items"] = self.contexts["items"].hidden_of(sums_bh, sizes)
        if items is not None:
            self._check("items", items)
        n_items, n_labels = self.size("items") if items is None else len(items), self.n_labels
        logits_bmk = np.empty((len(profiles), n_items, n_labels), np.float32)
        for start in range(0, n_items if profiles else 0, ITEMS_PER_PASS):
            stop = min(start + ITEMS_PER_PASS, n_items)
            part = slice(start, stop) if items is None else items[start:stop]
            if "users" in self.contexts:
                users = self.contexts["users"]
                hidden["users"] = (
                    users.hidden_between(start, stop)
                    if isinstance(part, slice)
                    else users.hidden(part)
                )
            pairs = Pairs.grid(profile_rows, self._rows["items"].values[part])
            logits_bmk[:, start:stop] = self.logits(pairs, hidden).reshape(
                len(profiles), stop - start, n_labels
            )
        if self._bias is not None:
            for logits_mk, profile in zip(logits_bmk, profiles, strict=True):
                logits_mk += self.own_bias(profile)
        return logits_bmk

    def history_logits(self, profile: UserProfile) -> np.ndarray:
        """(n, K) float32 logits of an anonymous profile's history, each item left out of it."""
        places = np.arange(len(profile.items), dtype=np.int32)
        hidden: dict[SideName, Tensor] = {}
        if "items" in self.contexts:
            hidden["items"] = self.contexts["items"].hidden_without_each(profile)
        if "users" in self.contexts:  # which does not have an anonymous user's interactions
            hidden["users"] = self.contexts["users"].hidden(profile.items)
        profile_rows = np.full(len(places), profile.row, np.int32)
        item_rows = self._rows["items"].values[profile.items]
        logits_pk = self.logits(Pairs.between(profile_rows, item_rows, places, places), hidden)
        logits_pk += self.own_bias(profile, places)
        return logits_pk

    def own_bias(self, profile: UserProfile, removed: np.ndarray | None = None) -> np.ndarray:
        """(R, K) float32 added to a profile's logits, without interaction removed[r] of the history
        (-1: the whole history); by default (1, K) with the whole history.

        Zero for a warm user, and where cold-start users have no bias of their own.
        """
        removed = np.full(1, -1) if removed is None else removed
        if self._bias is None or profile.row != self._shared_row("users"):
            return np.zeros((len(removed), self.n_labels), np.float32)
        return self._bias.added(profile, removed)

    def scores(self, logits: np.ndarray, user_rows: np.ndarray) -> np.ndarray:
        """(...) float32 scores of a ranking from logits (..., 1): less the bias of the user, by
        table row (...), which is the same for all items."""
        users = self.network.users
        if users is None:
            return logits[..., 0]
        score: np.ndarray = logits[..., 0] - users.b.array[user_rows, 0, 0]
        return score

    def logits(self, pairs: Pairs, hidden: Mapping[SideName, Tensor]) -> np.ndarray:
        """(P, K) float32 logits of pairs by their hidden vectors."""
        with torch.no_grad():
            logits_pk: np.ndarray = self.network(pairs, hidden).numpy()
        return logits_pk

    def hidden(self, side: SideName) -> np.ndarray:
        """(Q, H) float32 hidden vectors of all queries of a side: "users" items, "items" users.

        Read only, and good until the next change.
        """
        queries = self.size(OTHER[side])
        hidden_qh: np.ndarray = self.contexts[side].hidden_between(0, queries).numpy().view()
        hidden_qh.flags.writeable = False
        return hidden_qh

    def item_sums(self, items: np.ndarray) -> np.ndarray | None:
        """(M, H) float64 exact sums of the users side, where all of these are known already."""
        return self.contexts["users"].all_sums(items) if "users" in self.contexts else None

    def ranker(self) -> Ranker:
        """All users and items as vectors, as they are now, of a network with one label."""
        return Ranker(
            self._ranked_by("users"),
            self._ranked_by("items"),
            self.network.item_bias(self._rows["items"].values),
        )

    def vectors(self, axis: SideName) -> tuple[np.ndarray, np.ndarray]:
        """Vectors (m, H) to compare all users or items by, and (m,) whether each is informative.

        Those of rankings are the vectors that items are ranked with, those of ratings are hidden
        vectors. Where a model of one side does not encode these users or items, they are the change
        of their rows of W with the rating. Read only, and good until the next change.
        """
        encodes = OTHER[axis] in self.contexts
        informative = self.support(axis) > 0 if encodes else ~self.is_cold(axis)
        if isinstance(self._by_user, LiveHistories):
            return self._ranked_by(axis), informative
        if encodes:
            return self.hidden(OTHER[axis]), informative
        table_nkh = self.network.sides[axis].W.array
        grad_k = np.arange(self.n_labels, dtype=np.float32)
        grad_k -= grad_k.mean()
        # Not a product of matrices, whose last bits depend on how many rows it has.
        grad_rh = sum(grad * table_nkh[:, k] for k, grad in enumerate(grad_k))
        rows = self.network.sides[axis].table_rows(self._rows[axis].values)
        return np.asarray(grad_rh)[rows], informative

    def _ranked_by(self, axis: SideName) -> np.ndarray:
        """(m, H) vectors of all users or items, as in `Ranker`."""
        own = self.contexts.get(OTHER[axis])
        hidden_mh = None if own is None else own.hidden_between(0, self.size(axis))
        rows = self._rows[axis].values
        if axis == "users":
            return self.network.user_vectors(rows, hidden_mh)
        return self.network.item_vectors(rows, hidden_mh)

    def _by(self, axis: SideName) -> LiveRows | LiveHistories:
        return self._by_user if axis == "users" else self._by_item

    def _shared_row(self, axis: SideName) -> int:
        """The table row of cold-start users or items; 0 without the side, which has the table."""
        return self.network.sides[axis].shared_row if axis in self.network.sides else 0

    def _check(self, axis: SideName, indices: int | np.ndarray) -> None:
        """Refuse an index with which compiled code would read beyond its arrays."""
        size = self.size(axis)
        if isinstance(indices, int) and 0 <= indices < size:
            return
        wrong = np.less(indices, 0) | np.greater_equal(indices, size)
        if np.any(wrong):
            raise IndexError(f"an index of {axis} is out of range: there are {size} {axis}")

    def _follow(
        self, user: int, item: int, old: int | None, new: int | None, is_newest: bool
    ) -> None:
        """Let both sides follow an interaction that has changed."""
        if "users" in self.contexts:
            self.contexts["users"].change(item, user, old, new)
        if "items" in self.contexts:
            self.contexts["items"].change(user, item, old, new, is_newest=is_newest)
        if self._bias is not None:
            self._bias.changed(item)
        for axis, index in (("users", user), ("items", item)):
            self._join(cast("SideName", axis), index)

    def _join(self, axis: SideName, index: int) -> None:
        """Let a user or item that training did not see join the nearest cluster."""
        if axis in self._centroids and self._is_of_many(axis, int(self._rows[axis].values[index])):
            self.move(axis, index, self._nearest_row(axis, *self.history(axis, index)))

    def _add_own_biases(
        self, logits_pk: np.ndarray, users_p: np.ndarray, items_p: np.ndarray
    ) -> None:
        """Add the biases of cold-start users in place, each from a history without the pair."""
        order = np.flatnonzero(self.is_cold("users", users_p))
        if self._bias is None or not len(order):
            return
        order = order[np.argsort(users_p[order], kind="stable")]
        users, first = np.unique(users_p[order], return_index=True)
        for profile, own in zip(self.profiles(users), np.split(order, first[1:]), strict=True):
            place_p = np.searchsorted(profile.items, items_p[own])
            found = np.append(profile.items, -1)[place_p] == items_p[own]
            removed, version_p = np.unique(np.where(found, place_p, -1), return_inverse=True)
            logits_pk[own] += self.own_bias(profile, removed)[version_p]

    def _pass_over_pairs(self, indices: dict[SideName, np.ndarray]) -> np.ndarray:
        """`pair_logits` of pairs by their users and items (P,)."""
        label_p = self._by_item.find(indices["items"], indices["users"])
        observed = np.flatnonzero(label_p >= 0)
        listed: dict[SideName, np.ndarray] = {}
        position_of_pair: dict[SideName, np.ndarray] = {}
        for axis, index_p in indices.items():
            # An observed pair has hidden vectors of its own, without it; all others share one per
            # user and one per item.
            shared, inverse = np.unique(index_p, return_inverse=True)
            inverse[observed] = len(shared) + np.arange(len(observed))
            listed[axis] = np.concatenate((shared, index_p[observed]))
            position_of_pair[axis] = inverse.astype(np.int32)
        hidden: dict[SideName, Tensor] = {}
        for name, context in self.contexts.items():
            queries = listed[OTHER[name]]
            left_out, labels = np.full((2, len(queries)), -1)
            left_out[len(queries) - len(observed) :] = indices[name][observed]
            labels[len(queries) - len(observed) :] = label_p[observed]
            hidden[name] = context.hidden(queries, left_out, labels)
        pairs = Pairs.between(
            *(self._rows[axis].values[listed[axis]] for axis in SIDES),
            *(position_of_pair[axis] for axis in SIDES),
        )
        return self.logits(pairs, hidden)
