"""The live state of a rating model: logits of pairs from the interactions there are now.

An interaction enters two sums, its item's (UUC) and its user's (IIC), so a change takes two rows of
W and shows in the next prediction. Predictions are a function of the parameters, the interactions
and the table rows: after any sequence of changes their bits are those of a state freshly made from
`matrix()` and `rows()`. They do not depend on the number of threads, nor on the other pairs of a
call.

A state is not locked: threads that share one must take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix
from cfuica.live.cold_start_bias import OwnBias
from cfuica.live.context_sums import CACHE_BYTES, RunningSums, hidden_vectors
from cfuica.live.events import UserProfile
from cfuica.live.live_rows import GrowingArray, LiveRows
from cfuica.model.network import Network
from cfuica.model.pairs import OTHER, SIDES, Pairs, SideName
from cfuica.ops import running_sums

# Pairs per pass: bounds the memory of hidden vectors when many predicted pairs are observed.
PAIRS_PER_PASS = 65_536
# Items per pass: bounds the memory of users x items, and lets the items' hidden vectors stay in the
# processor's cache from one user to the next.
ITEMS_PER_PASS = 4096


@dataclass
class RatingState:
    """A network on the CPU and the interactions it predicts from.

    The state owns the network: `forget` writes to its tables. Users and items are indices; one that
    is out of range is an `IndexError`.
    """

    network: Network
    n_labels: int
    _rows: dict[SideName, GrowingArray]
    _interactions: dict[SideName, LiveRows]
    _sums: dict[SideName, RunningSums]
    _own_bias: OwnBias | None = None  # Of cold-start users, where the network has one.

    @classmethod
    def of(
        cls,
        network: Network,
        matrix: InteractionMatrix,
        rows: dict[SideName, np.ndarray],
        *,
        values_k: np.ndarray | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> RatingState:
        """From all interactions and the table row of each user and item (N,), (M,).

        With `values_k`, the ratings of the labels, cold-start users get a bias of their own.
        `cache_bytes` bounds the memory of each side's sums; predictions do not depend on it."""
        if network.device.type != "cpu":
            network = network.to("cpu")
        own_rows = {axis: GrowingArray.of(rows[axis].astype(np.int32)) for axis in SIDES}
        interactions = {axis: LiveRows.of(matrix.by(axis)) for axis in SIDES}
        sums = {
            name: RunningSums.of(
                side, interactions[OTHER[name]], own_rows[name], cache_bytes=cache_bytes
            )
            for name, side in network.sides.items()
        }
        own_bias = None
        if values_k is not None and len(sums) == 2 and len(values_k) > 1:
            own_bias = OwnBias.of(network, sums["users"], values_k)
        return cls(network, matrix.n_labels, own_rows, interactions, sums, own_bias)

    def anew(self, matrix: InteractionMatrix, rows: dict[SideName, np.ndarray]) -> RatingState:
        """A state of the same network on other interactions."""
        state = RatingState.of(self.network, matrix, rows)
        if self._own_bias is not None:
            state._own_bias = replace(self._own_bias, users_side=state._sums["users"], _decoders={})
        return state

    def size(self, axis: SideName) -> int:
        """How many users or items there are."""
        return self._interactions[axis].n_rows

    def rows(self, axis: SideName) -> np.ndarray:
        """(n,) int32 table row of each, copied."""
        return self._rows[axis].values.copy()

    def support(self, axis: SideName) -> np.ndarray:
        """(n,) int64 interactions of each, copied."""
        return self._interactions[axis].lengths.copy()

    def history(self, axis: SideName, index: int) -> tuple[np.ndarray, np.ndarray]:
        """(members int32 ascending, labels uint8) of one user or item, copied."""
        self._check(axis, index)
        return self._interactions[axis].row(index)

    def matrix(self) -> InteractionMatrix:
        """All interactions as they are now."""
        by_user, by_item = (self._interactions[axis].compressed() for axis in SIDES)
        return InteractionMatrix(by_user, by_item, self.n_labels)

    def add(self, axis: SideName, count: int = 1) -> int:
        """Add users or items without interactions, with the shared row; the index of the first."""
        first = self.size(axis)
        self._interactions[axis].extend(count)
        self._rows[axis].append(count, self._shared_row(axis))
        if OTHER[axis] in self._sums:
            self._sums[OTHER[axis]].extend(count)
        return first

    def rate(self, user: int, item: int, label: int) -> int | None:
        """Add an interaction or change its label; the old label, or None."""
        if not 0 <= label < self.n_labels:
            raise IndexError(f"label {label} is out of range: there are {self.n_labels}")
        return self._change(user, item, label)

    def unrate(self, user: int, item: int) -> int | None:
        """Take an interaction out; its label, or None where there was none."""
        return self._change(user, item, None)

    def forget(self, axis: SideName, index: int) -> int:
        """Make a user or item a cold-start one without interactions; returns how many were removed.

        Its row of W, V and b is overwritten with the shared one.
        """
        neighbours, _ = self.history(axis, index)
        for member in neighbours.tolist():
            self.unrate(*((index, member) if axis == "users" else (member, index)))
        shared_row = self._shared_row(axis)
        if axis in self.network.sides:
            side = self.network.sides[axis]
            for table in (side.encoder_nkh, side.decoder_nkh, side.decoder_bias_nk):
                table[self._rows[axis].values[index]] = table[shared_row]
        self._rows[axis].values[index] = shared_row
        if axis == "items" and self._own_bias is not None:
            self._own_bias.changed(index)  # also where the item had no interactions
        return len(neighbours)

    def profile(self, user: int) -> UserProfile:
        """The profile of a user of the state."""
        return self.profiles(np.array([user]))[0]

    def profiles(self, users: np.ndarray) -> list[UserProfile]:
        """The profiles of several users of the state, whose sums are computed at once."""
        self._check("users", users)
        items_side = self._sums.get("items")
        sums_bh = items_side.sums(users) if items_side else np.empty((len(users), 0))
        rows = self._rows["users"].values[users].tolist()
        return [
            UserProfile(user, row, *self._interactions["users"].row(user), sums_h)
            for user, row, sums_h in zip(users.tolist(), rows, sums_bh, strict=True)
        ]

    def anonymous(self, items: np.ndarray, labels: np.ndarray) -> UserProfile:
        """The profile of an anonymous user: distinct items in any order, and their labels."""
        self._check("items", items)
        order = np.argsort(items)
        items = items[order].astype(np.int32)
        labels = labels[order].astype(np.uint8)
        if (items[1:] == items[:-1]).any():
            raise ValueError(
                "an anonymous user has one label for an item, but an item is given twice"
            )
        if len(labels) and labels.max() >= self.n_labels:
            raise IndexError(f"label {labels.max()} is out of range: there are {self.n_labels}")
        items_side = self._sums.get("items")
        sums_h = items_side.sums_of(items, labels) if items_side else np.empty(0)
        return UserProfile(None, self._shared_row("users"), items, labels, sums_h)

    def without(self, profile: UserProfile, item: int) -> UserProfile:
        """The profile without the interaction with an item, if it has one."""
        place = np.flatnonzero(profile.items == item)
        if not len(place):
            return profile
        sums_h = profile.sums_h.copy()
        if "items" in self._sums:
            entry = int(self._rows["items"].values[item]) * self.n_labels
            rows_rh = self.network.sides["items"].encoder_nkh.flatten(0, 1).numpy()
            running_sums.shift(rows_rh, sums_h, entry + int(profile.labels[place[0]]), -1)
        return replace(
            profile,
            items=np.delete(profile.items, place),
            labels=np.delete(profile.labels, place),
            sums_h=sums_h,
        )

    def pair_logits(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 logits of pairs; an observed one is left out of both its sums."""
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

        Items of a profile's history are *not* left out of its sums: leave them out of the result,
        or use `pair_logits`.
        """
        profile_rows = np.array([profile.row for profile in profiles], np.int32)
        hidden: dict[SideName, np.ndarray] = {}
        if "items" in self._sums and profiles:
            sums_bh = np.stack([profile.sums_h for profile in profiles])
            sizes = np.array([len(profile.items) for profile in profiles])
            hidden["items"] = self._sums["items"].hidden_of(sums_bh, sizes)
        if items is not None:
            self._check("items", items)
        n_items = self.size("items") if items is None else len(items)
        logits_bmk = np.empty((len(profiles), n_items, self.n_labels), np.float32)
        for start in range(0, n_items if profiles else 0, ITEMS_PER_PASS):
            stop = min(start + ITEMS_PER_PASS, n_items)
            part = slice(start, stop) if items is None else items[start:stop]
            if "users" in self._sums:
                users_side = self._sums["users"]
                hidden["users"] = (
                    users_side.hidden_between(start, stop)
                    if isinstance(part, slice)
                    else users_side.hidden(part)
                )
            pairs = Pairs.between(
                profile_rows,
                self._rows["items"].values[part],
                np.repeat(np.arange(len(profiles), dtype=np.int32), stop - start),
                np.tile(np.arange(stop - start, dtype=np.int32), len(profiles)),
            )
            logits_bmk[:, start:stop] = self._logits(pairs, hidden).reshape(
                len(profiles), stop - start, self.n_labels
            )
        if self._own_bias is not None:
            for logits_mk, profile in zip(logits_bmk, profiles, strict=True):
                logits_mk += self.own_bias(profile)
        return logits_bmk

    def history_logits(self, profile: UserProfile) -> np.ndarray:
        """(n, K) float32 logits of a profile's history, each item left out of its sums."""
        places = np.arange(len(profile.items), dtype=np.int32)
        if profile.user is not None:
            return self.pair_logits(np.full(len(places), profile.user), profile.items)
        hidden: dict[SideName, np.ndarray] = {}
        item_rows = self._rows["items"].values[profile.items]
        if "items" in self._sums:
            hidden["items"] = hidden_vectors(
                self.network.sides["items"],
                profile.sums_h[None],
                np.zeros_like(places),
                item_rows * np.int64(self.n_labels) + profile.labels,
                np.full(len(places), len(places) - 1),
            )
        if "users" in self._sums:  # which do not have an anonymous user's interactions
            hidden["users"] = self._sums["users"].hidden(profile.items)
        profile_rows = np.full(len(places), profile.row, np.int32)
        pairs = Pairs.between(profile_rows, item_rows, places, places)
        logits_pk = self._logits(pairs, hidden)
        logits_pk += self.own_bias(profile, places)
        return logits_pk

    def own_bias(self, profile: UserProfile, removed: np.ndarray | None = None) -> np.ndarray:
        """(R, K) float32 added to a profile's logits, without interaction removed[r] of the history
        (-1: the whole history); by default (1, K) with the whole history.

        Zero for a warm user, and where cold-start users have no bias of their own.
        """
        versions = 1 if removed is None else len(removed)
        if self._own_bias is None or profile.row != self._shared_row("users"):
            return np.zeros((versions, self.n_labels), np.float32)
        item_rows = self._rows["items"].values[profile.items]
        return self._own_bias.added(self._own_bias.tilts(profile, item_rows, removed))

    def hidden(self, side: SideName) -> np.ndarray:
        """(Q, H) float32 f(sums) of all queries of a side: "users" items, "items" users.

        Read only, and good until the next change.
        """
        queries = self.size(OTHER[side])
        hidden_qh = self._sums[side].hidden_between(0, queries).view()
        hidden_qh.flags.writeable = False
        return hidden_qh

    def vectors(self, axis: SideName) -> tuple[np.ndarray, np.ndarray]:
        """Vectors (m, H) to compare all users or items by, and (m,) whether each is informative.

        They are hidden vectors. Where a model of one side does not encode these users or items,
        they are the change of their rows of W with the rating. Read only, and good until the next
        change.
        """
        if OTHER[axis] in self._sums:
            return self.hidden(OTHER[axis]), self.support(axis) > 0
        side, rows = self.network.sides[axis], self.rows(axis)
        grad_k = np.arange(self.n_labels, dtype=np.float32)
        grad_k -= grad_k.mean()
        # Not a product of matrices, whose last bits depend on how many rows it has.
        grad_rh = sum(grad * side.encoder_nkh[:, k].numpy() for k, grad in enumerate(grad_k))
        return np.asarray(grad_rh)[rows], rows != side.shared_row

    def _shared_row(self, axis: SideName) -> int:
        """The table row of cold-start users or items; 0 without the side, which has the table."""
        return self.network.sides[axis].shared_row if axis in self.network.sides else 0

    def _check(self, axis: SideName, indices: int | np.ndarray) -> None:
        """Refuse an index with which compiled code would read beyond its arrays."""
        size = self.size(axis)
        wrong = np.less(indices, 0) | np.greater_equal(indices, size)
        if np.any(wrong):
            raise IndexError(f"an index of {axis} is out of range: there are {size} {axis}")

    def _change(self, user: int, item: int, label: int | None) -> int | None:
        """Give an interaction a label or remove it (None); the old label."""
        self._check("users", user)
        self._check("items", item)
        index: dict[SideName, int] = {"users": user, "items": item}
        old: int | None = None
        for axis, interactions in self._interactions.items():
            row, member = index[axis], index[OTHER[axis]]
            old = (
                interactions.take(row, member)
                if label is None
                else interactions.put(row, member, label)
            )
        if old != label:
            for name, sums in self._sums.items():
                sums.change(index[OTHER[name]], index[name], old, label)
            if self._own_bias is not None:
                self._own_bias.changed(item)
        return old

    def _add_own_biases(
        self, logits_pk: np.ndarray, users_p: np.ndarray, items_p: np.ndarray
    ) -> None:
        """Add the biases of cold-start users in place, each from a history without the pair."""
        if self._own_bias is None:
            return
        is_cold_p = self._rows["users"].values[users_p] == self._shared_row("users")
        order = np.flatnonzero(is_cold_p)
        if not len(order):
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
        label_p = self._interactions["users"].find(indices["users"], indices["items"])
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
        hidden: dict[SideName, np.ndarray] = {}
        for name, sums in self._sums.items():
            queries = listed[OTHER[name]]
            left_out = np.full(len(queries), -1)
            left_out[len(queries) - len(observed) :] = (
                self._rows[name].values[indices[name][observed]] * self.n_labels + label_p[observed]
            )
            hidden[name] = sums.hidden(queries, left_out)
        pairs = Pairs.between(
            *(self._rows[axis].values[listed[axis]] for axis in SIDES),
            *(position_of_pair[axis] for axis in SIDES),
        )
        return self._logits(pairs, hidden)

    def _logits(self, pairs: Pairs, hidden: dict[SideName, np.ndarray]) -> np.ndarray:
        tensors = {name: torch.from_numpy(values_qh) for name, values_qh in hidden.items()}
        logits_pk: np.ndarray = self.network.logits(pairs, tensors).numpy()
        return logits_pk
