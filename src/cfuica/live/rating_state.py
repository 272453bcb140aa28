"""The live state: behaviours that come and go, and predictions from all that is there now.

A behaviour enters two sums, its item's (UUC) and its user's (IIC), so a change costs two rows of
W and shows in the next prediction. Predictions are a function of the parameters, the behaviours
and the table rows: whatever happened before, their bits are those of a state freshly made from
`matrix()` and `rows()`. They do not depend on the number of threads either, nor on what else is
asked in the same call.

Nothing here is locked: whoever shares a state between threads lets in one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from cfuica.data.matrix import BehaviourMatrix
from cfuica.live.cold_start_bias import OwnBias
from cfuica.live.context_sums import BYTES_KEPT, RunningSums, hidden_vectors
from cfuica.live.events import Person
from cfuica.live.live_rows import GrowingArray, LiveRows
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import AXES, OTHER, Pairs, SideName
from cfuica.ops import running_sums

# Pairs per pass: bounds the memory of hidden vectors when many predicted pairs are observed.
PAIRS_PER_PASS = 65_536
# Items per pass: bounds the memory of what is written down about people x items, and lets the
# items' hidden vectors stay in the cache from one person to the next.
ITEMS_PER_PASS = 4096


@dataclass
class LiveState:
    """A model on the CPU and the behaviours it predicts from.

    The state owns the model: `forget` writes to its tables. Indices are those of users and items;
    one that is out of range is an `IndexError`.
    """

    network: CoAutoregressive
    n_labels: int
    _rows: dict[SideName, GrowingArray]
    _behaviours: dict[SideName, LiveRows]
    _sums: dict[SideName, RunningSums]
    _own_bias: OwnBias | None = None
    """Of users who are strangers, where they have one."""

    @classmethod
    def of(
        cls,
        network: CoAutoregressive,
        matrix: BehaviourMatrix,
        rows: dict[SideName, np.ndarray],
        *,
        values_k: np.ndarray | None = None,
        bytes_kept: int = BYTES_KEPT,
    ) -> LiveState:
        """From all behaviours and the table row of each user and item (N,), (M,).

        With `values_k`, the ratings of the labels, users who are strangers have a bias of their
        own. `bytes_kept` bounds the memory of each side's sums; predictions do not depend on it.
        """
        if network.device.type != "cpu":
            network = network.to("cpu")
        own_rows = {axis: GrowingArray.of(rows[axis].astype(np.int32)) for axis in AXES}
        behaviours = {axis: LiveRows.of(matrix.by(axis)) for axis in AXES}
        sums = {
            name: RunningSums.of(
                side, behaviours[OTHER[name]], own_rows[name], bytes_kept=bytes_kept
            )
            for name, side in network.sides.items()
        }
        own_bias = None
        if values_k is not None and len(sums) == 2 and len(values_k) > 1:
            own_bias = OwnBias.of(network, sums["users"], values_k)
        return cls(network, matrix.n_labels, own_rows, behaviours, sums, own_bias)

    def anew(self, matrix: BehaviourMatrix, rows: dict[SideName, np.ndarray]) -> LiveState:
        """A state of the same network on other behaviours."""
        state = LiveState.of(self.network, matrix, rows)
        if self._own_bias is not None:
            state._own_bias = replace(self._own_bias, users_side=state._sums["users"], _decoders={})
        return state

    def size(self, axis: SideName) -> int:
        """How many users or items there are."""
        return self._behaviours[axis].n_rows

    def rows(self, axis: SideName) -> np.ndarray:
        """(n,) int32 table row of each, copied."""
        return self._rows[axis].values.copy()

    def support(self, axis: SideName) -> np.ndarray:
        """(n,) int64 behaviours of each, copied."""
        return self._behaviours[axis].lengths.copy()

    def history(self, axis: SideName, index: int) -> tuple[np.ndarray, np.ndarray]:
        """(members int32 ascending, labels uint8) of one user or item, copied."""
        self._check(axis, index)
        return self._behaviours[axis].row(index)

    def matrix(self) -> BehaviourMatrix:
        """All behaviours as they are now."""
        by_user, by_item = (self._behaviours[axis].compressed() for axis in AXES)
        return BehaviourMatrix(by_user, by_item, self.n_labels)

    def add(self, axis: SideName, count: int = 1) -> int:
        """Newcomers without behaviours, who have the shared row; the index of the first."""
        first = self.size(axis)
        self._behaviours[axis].extend(count)
        self._rows[axis].append(count, self._shared_row(axis))
        if OTHER[axis] in self._sums:
            self._sums[OTHER[axis]].extend(count)
        return first

    def rate(self, user: int, item: int, label: int) -> int | None:
        """Add a behaviour or change its label; the old label, or None."""
        if not 0 <= label < self.n_labels:
            raise IndexError(f"label {label} is out of range: there are {self.n_labels}")
        return self._change(user, item, label)

    def unrate(self, user: int, item: int) -> int | None:
        """Take a behaviour out; its label, or None where there was none."""
        return self._change(user, item, None)

    def forget(self, axis: SideName, index: int) -> int:
        """Make a user or an item a stranger without behaviours; the number of those taken out.

        Their row of W, V and b is overwritten with the shared one.
        """
        members, _ = self.history(axis, index)
        for member in members.tolist():
            self.unrate(*((index, member) if axis == "users" else (member, index)))
        shared_row = self._shared_row(axis)
        if axis in self.network.sides:
            side = self.network.sides[axis]
            for table in (side.encoder_nkh, side.decoder_nkh, side.decoder_bias_nk):
                table[self._rows[axis].values[index]] = table[shared_row]
        self._rows[axis].values[index] = shared_row
        if axis == "items" and self._own_bias is not None:
            self._own_bias.changed(index)  # also where nobody had done anything on it
        return len(members)

    def person(self, user: int) -> Person:
        """A user of the state."""
        return self.people(np.array([user]))[0]

    def people(self, users: np.ndarray) -> list[Person]:
        """Several users of the state, whose sums are made at once."""
        self._check("users", users)
        items_side = self._sums.get("items")
        sums_bh = items_side.sums(users) if items_side else np.empty((len(users), 0))
        rows = self._rows["users"].values[users].tolist()
        return [
            Person(user, row, *self._behaviours["users"].row(user), sums_h)
            for user, row, sums_h in zip(users.tolist(), rows, sums_bh, strict=True)
        ]

    def visitor(self, items: np.ndarray, labels: np.ndarray) -> Person:
        """Someone who is not stored and did this: distinct items in any order, their labels."""
        self._check("items", items)
        order = np.argsort(items)
        items = items[order].astype(np.int32)
        labels = labels[order].astype(np.uint8)
        if (items[1:] == items[:-1]).any():
            raise ValueError("a visitor has one label for an item, but an item is given twice")
        if len(labels) and labels.max() >= self.n_labels:
            raise IndexError(f"label {labels.max()} is out of range: there are {self.n_labels}")
        items_side = self._sums.get("items")
        sums_h = items_side.sums_of(items, labels) if items_side else np.empty(0)
        return Person(None, self._shared_row("users"), items, labels, sums_h)

    def without(self, person: Person, item: int) -> Person:
        """Someone whose history does not have an item; the same where it had not."""
        place = np.flatnonzero(person.items == item)
        if not len(place):
            return person
        sums_h = person.sums_h.copy()
        if "items" in self._sums:
            entry = int(self._rows["items"].values[item]) * self.n_labels
            rows_rh = self.network.sides["items"].encoder_nkh.flatten(0, 1).numpy()
            running_sums.shift(rows_rh, sums_h, entry + int(person.labels[place[0]]), -1)
        return replace(
            person,
            items=np.delete(person.items, place),
            labels=np.delete(person.labels, place),
            sums_h=sums_h,
        )

    def pair_activations(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 activations of pairs; an observed one is left out of both its sums."""
        self._check("users", users_p)
        self._check("items", items_p)
        activation_pk = np.empty((len(users_p), self.n_labels), np.float32)
        for start in range(0, len(users_p), PAIRS_PER_PASS):
            part = slice(start, start + PAIRS_PER_PASS)
            indices: dict[SideName, np.ndarray] = {
                "users": users_p[part].astype(np.int64),
                "items": items_p[part].astype(np.int64),
            }
            activation_pk[part] = self._pass_over_pairs(indices)
        self._add_own_biases(activation_pk, users_p, items_p)
        return activation_pk

    def item_activations(
        self, people: Sequence[Person], items: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, M, K) float32 activations of all items, or of these (M,), for these people.

        Items of a person's history are *not* left out of its sums: leave them out of the result,
        or ask `pair_activations`.
        """
        people_rows = np.array([person.row for person in people], np.int32)
        hidden: dict[SideName, np.ndarray] = {}
        if "items" in self._sums and people:
            sums_bh = np.stack([person.sums_h for person in people])
            sizes = np.array([len(person.items) for person in people])
            hidden["items"] = self._sums["items"].hidden_of(sums_bh, sizes)
        if items is not None:
            self._check("items", items)
        n_items = self.size("items") if items is None else len(items)
        activation_bmk = np.empty((len(people), n_items, self.n_labels), np.float32)
        for start in range(0, n_items if people else 0, ITEMS_PER_PASS):
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
                people_rows,
                self._rows["items"].values[part],
                np.repeat(np.arange(len(people), dtype=np.int32), stop - start),
                np.tile(np.arange(stop - start, dtype=np.int32), len(people)),
            )
            activation_bmk[:, start:stop] = self._activations(pairs, hidden).reshape(
                len(people), stop - start, self.n_labels
            )
        if self._own_bias is not None:
            for activation_mk, person in zip(activation_bmk, people, strict=True):
                activation_mk += self.own_bias(person)
        return activation_bmk

    def history_activations(self, person: Person) -> np.ndarray:
        """(n, K) float32 activations of a person's history, each item left out of its sums."""
        places = np.arange(len(person.items), dtype=np.int32)
        if person.user is not None:
            return self.pair_activations(np.full(len(places), person.user), person.items)
        hidden: dict[SideName, np.ndarray] = {}
        item_rows = self._rows["items"].values[person.items]
        if "items" in self._sums:
            hidden["items"] = hidden_vectors(
                self.network.sides["items"],
                person.sums_h[None],
                np.zeros_like(places),
                item_rows * np.int64(self.n_labels) + person.labels,
                np.full(len(places), len(places) - 1),
            )
        if "users" in self._sums:  # nobody stored a visitor's behaviours there
            hidden["users"] = self._sums["users"].hidden(person.items)
        person_rows = np.full(len(places), person.row, np.int32)
        pairs = Pairs.between(person_rows, item_rows, places, places)
        activation_pk = self._activations(pairs, hidden)
        activation_pk += self.own_bias(person, places)
        return activation_pk

    def own_bias(self, person: Person, removed: np.ndarray | None = None) -> np.ndarray:
        """(R, K) float32: what is added to the activations of someone, who is without behaviour
        removed[r] (-1: none) of the history; by default (1, K) with all of it.

        Zero for whoever is known, and where strangers have no bias of their own.
        """
        versions = 1 if removed is None else len(removed)
        if self._own_bias is None or person.row != self._shared_row("users"):
            return np.zeros((versions, self.n_labels), np.float32)
        item_rows = self._rows["items"].values[person.items]
        return self._own_bias.added(self._own_bias.tilts(person, item_rows, removed))

    def hidden(self, side: SideName) -> np.ndarray:
        """(Q, H) float32 f(sums) of all queries of a side: "users" items, "items" users.

        Read only, and good until the next change.
        """
        queries = self.size(OTHER[side])
        hidden_qh = self._sums[side].hidden_between(0, queries).view()
        hidden_qh.flags.writeable = False
        return hidden_qh

    def vectors(self, axis: SideName) -> tuple[np.ndarray, np.ndarray]:
        """Vectors (m, H) to compare all users or items by, and (m,) of whom they say anything.

        What is read of them; on the axis that a model of one side does not read, how their rows of
        W change with the rating. Read only, and good until the next change.
        """
        if OTHER[axis] in self._sums:
            return self.hidden(OTHER[axis]), self.support(axis) > 0
        side, rows = self.network.sides[axis], self.rows(axis)
        slope_k = np.arange(self.n_labels, dtype=np.float32)
        slope_k -= slope_k.mean()
        # Not a product of matrices, whose last bits depend on how many rows it has.
        slope_rh = sum(slope * side.encoder_nkh[:, k].numpy() for k, slope in enumerate(slope_k))
        return np.asarray(slope_rh)[rows], rows != side.shared_row

    def _shared_row(self, axis: SideName) -> int:
        """The table row of strangers; without the side there is no table, and all rows are 0."""
        return self.network.sides[axis].shared_row if axis in self.network.sides else 0

    def _check(self, axis: SideName, indices: int | np.ndarray) -> None:
        """Compiled code would read beyond its arrays."""
        size = self.size(axis)
        wrong = np.less(indices, 0) | np.greater_equal(indices, size)
        if np.any(wrong):
            raise IndexError(f"an index of {axis} is out of range: there are {size} {axis}")

    def _change(self, user: int, item: int, label: int | None) -> int | None:
        """Give a behaviour a label or take it out (None); the old label."""
        self._check("users", user)
        self._check("items", item)
        index: dict[SideName, int] = {"users": user, "items": item}
        old: int | None = None
        for axis, behaviours in self._behaviours.items():
            row, member = index[axis], index[OTHER[axis]]
            old = (
                behaviours.take(row, member)
                if label is None
                else behaviours.put(row, member, label)
            )
        if old != label:
            for name, sums in self._sums.items():
                sums.change(index[OTHER[name]], index[name], old, label)
            if self._own_bias is not None:
                self._own_bias.changed(item)
        return old

    def _add_own_biases(
        self, activation_pk: np.ndarray, users_p: np.ndarray, items_p: np.ndarray
    ) -> None:
        """Each from a history without the pair itself, in place."""
        if self._own_bias is None:
            return
        is_strange_p = self._rows["users"].values[users_p] == self._shared_row("users")
        order = np.flatnonzero(is_strange_p)
        if not len(order):
            return
        order = order[np.argsort(users_p[order], kind="stable")]
        users, first = np.unique(users_p[order], return_index=True)
        for person, own in zip(self.people(users), np.split(order, first[1:]), strict=True):
            place_p = np.searchsorted(person.items, items_p[own])
            found = np.append(person.items, -1)[place_p] == items_p[own]
            removed, version_p = np.unique(np.where(found, place_p, -1), return_inverse=True)
            activation_pk[own] += self.own_bias(person, removed)[version_p]

    def _pass_over_pairs(self, indices: dict[SideName, np.ndarray]) -> np.ndarray:
        """`pair_activations` of pairs by their users and items (P,)."""
        label_p = self._behaviours["users"].find(indices["users"], indices["items"])
        observed = np.flatnonzero(label_p >= 0)
        listed: dict[SideName, np.ndarray] = {}
        position_of_pair: dict[SideName, np.ndarray] = {}
        for axis, index_p in indices.items():
            # An observed pair has places of its own in the lists, for hidden vectors without it;
            # all others share one place per user and one per item.
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
            *(self._rows[axis].values[listed[axis]] for axis in AXES),
            *(position_of_pair[axis] for axis in AXES),
        )
        return self._activations(pairs, hidden)

    def _activations(self, pairs: Pairs, hidden: dict[SideName, np.ndarray]) -> np.ndarray:
        tensors = {name: torch.from_numpy(values_qh) for name, values_qh in hidden.items()}
        activation_pk: np.ndarray = self.network.activations(pairs, tensors).numpy()
        return activation_pk
