"""Interactions by index, as the model reads them: compressed sparse rows.

`InteractionMatrix` holds the ratings, by user and by item, because the model is symmetric: a user's
row feeds the item-item sum (IIC) and an item's row the user-user sum (UUC). `Timeline` holds each
user's interactions in temporal order, for ranking. `RatedPairs` are pairs with ratings, for
validation and test. `Csr` is the class of compressed rows behind all of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfuica.errors import DataError
from cfuica.sizing import DataSize

_CELL_BITS = 56


@dataclass(frozen=True, eq=False)
class Csr:
    """Compressed sparse rows: row r holds indices[offsets[r]:offsets[r + 1]].

    The indices may be the items of a user, the rows of W that a query sums, or the pairs of a
    group; whoever makes a `Csr` says which, and whether they ascend within a row.
    """

    offsets: NDArray[np.int64]  # (rows + 1,)
    indices: NDArray[np.int32]  # (n,)

    @staticmethod
    def of_pairs(rows: ArrayLike, indices: ArrayLike, n_rows: int) -> Csr:
        """From (n,) row numbers and indices in any order; rows ascend, without repeats."""
        keys = np.asarray(rows, np.int64) << 32 | np.asarray(indices, np.int64)
        return Csr._of_keys(_distinct(keys), n_rows)

    @property
    def n_rows(self) -> int:
        """Number of rows, the empty ones included."""
        return int(self.offsets.size) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(rows,) number of indices in each row."""
        return np.diff(self.offsets)

    def row_of_entry(self) -> NDArray[np.int64]:
        """(n,) the row of each index."""
        return np.repeat(np.arange(self.n_rows), self.sizes)

    def take(self, rows: NDArray[np.integer[Any]]) -> Csr:
        """These rows, in this order."""
        sizes = self.sizes[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        shift = np.repeat(self.offsets[:-1][rows] - offsets[:-1], sizes)
        return Csr(offsets, self.indices[np.arange(offsets[-1]) + shift])

    def union(self, other: Csr) -> Csr:
        """Row by row, the indices of either."""
        keys = np.concatenate([self._own_keys(), other._own_keys()])
        return Csr._of_keys(_distinct(keys), self.n_rows)

    def without(self, other: Csr) -> Csr:
        """Row by row, the indices that the other does not have."""
        keys, others = self._own_keys(), other._own_keys()
        if others.size == 0:
            return self
        place = np.minimum(np.searchsorted(others, keys), others.size - 1)
        return Csr._of_keys(keys[others[place] != keys], self.n_rows)

    def _own_keys(self) -> NDArray[np.int64]:
        """One number per (row, index), ordered by row and then by index."""
        return self.row_of_entry() << 32 | self.indices.astype(np.int64)

    @staticmethod
    def _of_keys(keys: NDArray[np.int64], n_rows: int) -> Csr:
        offsets = np.searchsorted(keys, np.arange(n_rows + 1, dtype=np.int64) << 32)
        return Csr(offsets.astype(np.int64), (keys & 0xFFFFFFFF).astype(np.int32))


@dataclass(frozen=True, eq=False)
class LabelledCsr(Csr):
    """Rows whose indices ascend, each with a label."""

    labels: NDArray[np.uint8]  # (n,) label indices 0..K-1


@dataclass(frozen=True, eq=False)
class InteractionMatrix:
    """Sparse N users x M items; each observed entry is one of K labels."""

    by_user: LabelledCsr
    by_item: LabelledCsr
    n_labels: int

    @classmethod
    def from_triplets(
        cls,
        users: ArrayLike,
        items: ArrayLike,
        labels: ArrayLike,
        *,
        n_users: int,
        n_items: int,
        n_labels: int,
    ) -> InteractionMatrix:
        """Build from n interactions in any order; users, items, labels are (n,) indices from 0."""
        user = _indices("user", users, n_users)
        item = _indices("item", items, n_items)
        if not 1 <= n_labels <= 255:
            raise DataError(f"n_labels is {n_labels}, but a label takes one byte: 1 to 255.")
        label = _indices("label", labels, n_labels)
        if not user.size == item.size == label.size:
            raise DataError(
                f"{user.size} users, {item.size} items and {label.size} labels were given, "
                f"but each interaction needs one of each."
            )
        return cls(*_both_orders(user, item, label, n_users, n_items), n_labels)

    def __repr__(self) -> str:
        return (
            f"InteractionMatrix({self.n_users:,} users, {self.n_items:,} items, "
            f"{self.n_interactions:,} interactions, {self.n_labels} labels)"
        )

    @property
    def n_users(self) -> int:
        """N, the users without interactions included."""
        return self.by_user.n_rows

    @property
    def n_items(self) -> int:
        """M, the items without interactions included."""
        return self.by_item.n_rows

    @property
    def n_interactions(self) -> int:
        """Number of observed entries."""
        return int(self.by_user.indices.size)

    @property
    def size(self) -> DataSize:
        """The counts that settings follow."""
        return DataSize(self.n_users, self.n_items, self.n_interactions, self.n_labels)

    def by(self, axis: Literal["users", "items"]) -> LabelledCsr:
        """The rows by user (the items of each) or by item (the users of each)."""
        return self.by_user if axis == "users" else self.by_item

    def triplets(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
        """(users, items, labels), each (n,), ordered by user and then by item."""
        users = np.repeat(np.arange(self.n_users, dtype=np.int32), self.by_user.sizes)
        return users, self.by_user.indices, self.by_user.labels

    def merged(self, other: InteractionMatrix) -> InteractionMatrix:
        """The interactions of both; at test time the model reads train and validation sets."""
        mine = (self.n_users, self.n_items, self.n_labels)
        theirs = (other.n_users, other.n_items, other.n_labels)
        if mine != theirs:
            raise DataError(
                f"A matrix of (users, items, labels) {mine} cannot be merged with one of {theirs}; "
                f"build both with the same vocabularies and the same label scale."
            )
        triplets: Any = zip(self.triplets(), other.triplets(), strict=True)
        return InteractionMatrix.from_triplets(
            *(np.concatenate(both) for both in triplets),
            n_users=self.n_users,
            n_items=self.n_items,
            n_labels=self.n_labels,
        )

    def check_apart(self, pairs: RatedPairs) -> None:
        """Refuse pairs that are observed here, such as validation pairs that were trained on."""
        from cfuica.ops import running_sums

        rows, users, items = self.by_user, pairs.users_p, pairs.items_p
        found = running_sums.find(rows.offsets[:-1], rows.sizes, rows.indices, users, items)
        repeated = np.flatnonzero(found >= 0)
        if repeated.size:
            raise DataError(
                f"{repeated.size:,} validation interactions repeat a (user, item) pair of the "
                f"train set, the first one user index {users[repeated[0]]} and item index "
                f"{items[repeated[0]]}; leave them out of one of the two."
            )

    def sha256(self) -> str:
        """Hash of shape and content, independent of the order the interactions came in."""
        digest = hashlib.sha256(f"{self.n_users} {self.n_items} {self.n_labels}\n".encode())
        digest.update(np.ascontiguousarray(self.by_user.offsets, "<i8").data)
        digest.update(np.ascontiguousarray(self.by_user.indices, "<i4").data)
        digest.update(self.by_user.labels.data)
        return digest.hexdigest()


def _indices(what: str, given: ArrayLike, size: int) -> NDArray[np.integer[Any]]:
    """(n,) integers, every one within 0..size-1."""
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(
            f"{what} indices must be a one-dimensional array of integers, but an array of shape "
            f"{array.shape} and type {array.dtype} was given."
        )
    if array.size and (array.min() < 0 or array.max() >= size):
        wrong = np.flatnonzero((array < 0) | (array >= size))[0]
        raise DataError(
            f"{what} index {array[wrong]} at position {wrong} is out of range: expected "
            f"0 to {size - 1}; encode the ids with the vocabulary that the size was taken from."
        )
    return array


def _both_orders(
    users: NDArray[np.integer[Any]],
    items: NDArray[np.integer[Any]],
    labels: NDArray[np.integer[Any]],
    n_users: int,
    n_items: int,
) -> tuple[LabelledCsr, LabelledCsr]:
    """Entries in any order to compressed rows by user and by item."""
    # Imported here: the compiler takes a while, and small questions need no matrix.
    from cfuica.ops import compression

    if max(n_users - 1, 0).bit_length() + max(n_items - 1, 0).bit_length() > _CELL_BITS:
        raise DataError(
            f"{n_users:,} x {n_items:,} users and items are more than a matrix can have, which is "
            f"2**{_CELL_BITS} cells; leave out users and items with few interactions."
        )
    user, item = _read_only(users, np.int32), _read_only(items, np.int32)
    label = _read_only(labels, np.uint8)
    # Whoever reads rows in order and appends to columns leaves every column in order: the entries
    # by item in any order, then by user with items ascending, then by item with users ascending.
    # Counting takes a fifth of the time of sorting.
    by_user, by_item = compression.offsets(user, n_users), compression.offsets(item, n_items)
    mixed = compression.scattered(by_item, item, user, label)
    second = LabelledCsr(by_item, mixed[0], mixed[1])
    first = LabelledCsr(by_user, np.empty_like(second.indices), np.empty_like(second.labels))
    _transpose(second, first)
    repeats, row, index = compression.repeats(by_user, first.indices)
    if repeats:
        raise DataError(
            f"{repeats} interactions repeat a (user, item) pair, the first one user index "
            f"{row} and item index {index}, but a pair has one label; keep one of them, for "
            f"instance with Interactions.deduplicated()."
        )
    _transpose(first, second)
    return first, second


def _read_only(array: NDArray[np.integer[Any]], kind: type) -> NDArray[Any]:
    """A view, whoever made the array: a kernel is compiled once more for arrays to write to."""
    view: NDArray[Any] = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


def _transpose(rows: LabelledCsr, columns: LabelledCsr) -> None:
    """Fill the columns, whose offsets are known, from the rows; their indices will ascend."""
    from cfuica.ops import compression

    compression.transpose(
        rows.offsets, rows.indices, rows.labels, columns.offsets, columns.indices, columns.labels
    )


# Note for data without timestamps.
NO_TIMES = "There are no timestamps, so the order of the rows is taken for that of time."


@dataclass(frozen=True, eq=False)
class Timeline:
    """N users with n interactions; those of user u are offsets[u]:offsets[u + 1], oldest first.

    Among equal timestamps, and without timestamps, the later row of the data is later.
    """

    offsets: NDArray[np.int64]  # (N + 1,)
    items: NDArray[np.int32]  # (n,)
    # (n,) ascending within a user; the row number where the data has no timestamps
    times: NDArray[np.int64]
    n_items: int
    # (n,) uint8 the type of each interaction, weakest first; None where there is one type
    types: NDArray[np.uint8] | None = None
    # (n,) float32 what each interaction counts as a target; 0: context only. None: each 1
    weights: NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls,
        users: NDArray[np.int32],
        items: NDArray[np.int32],
        times: NDArray[np.int64] | None,
        *,
        n_users: int,
        n_items: int,
        types: NDArray[np.uint8] | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> Timeline:
        """From n interactions in the order of the data."""
        if times is None:
            times = np.arange(users.size, dtype=np.int64)
        order = np.lexsort((times, users))  # stable
        offsets = np.r_[0, np.cumsum(np.bincount(users, minlength=n_users))].astype(np.int64)
        types = None if types is None else types[order]
        weights = None if weights is None else weights[order]
        return cls(offsets, items[order], times[order], n_items, types, weights)

    def __repr__(self) -> str:
        return (
            f"Timeline({self.n_users:,} users, {self.n_items:,} items, "
            f"{self.n_interactions:,} interactions)"
        )

    @property
    def n_users(self) -> int:
        """N, the users without interactions included."""
        return int(self.offsets.size) - 1

    @property
    def n_interactions(self) -> int:
        """n."""
        return int(self.items.size)

    @property
    def size(self) -> DataSize:
        """The counts that settings follow."""
        return DataSize(self.n_users, self.n_items, self.n_interactions)

    @property
    def users(self) -> NDArray[np.int32]:
        """(n,) the user of each interaction."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), np.diff(self.offsets))

    def sha256(self) -> str:
        """Hash of shape and content, the order of the interactions included."""
        digest = hashlib.sha256(f"{self.n_users} {self.n_items}\n".encode())
        for array, kind in ((self.offsets, "<i8"), (self.items, "<i4"), (self.times, "<i8")):
            digest.update(np.ascontiguousarray(array, kind).data)
        return digest.hexdigest()

    def by_item(self) -> LabelledCsr:
        """The users of each item, ascending; every label is 0."""
        order = np.argsort(self.items, kind="stable")
        counts = np.bincount(self.items, minlength=self.n_items)
        offsets = np.append(0, np.cumsum(counts)).astype(np.int64)
        labels = np.zeros(self.n_interactions, np.uint8)
        return LabelledCsr(offsets, self.users[order], labels)


@dataclass(frozen=True, eq=False)
class RatedPairs:
    """P pairs as indices, ordered by user and then by item, with their true ratings."""

    users_p: NDArray[np.int32]
    items_p: NDArray[np.int32]
    labels_p: NDArray[np.uint8]  # (P,) the label of each rating
    ratings_p: NDArray[np.float64]  # (P,) the ratings, which binned labels only approximate

    @property
    def n(self) -> int:
        """P."""
        return int(self.labels_p.size)


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ascending, each once; on partly sorted keys several times as fast as `np.unique`."""
    ordered = np.sort(keys, kind="stable")
    is_first = np.ones(ordered.size, np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    distinct: NDArray[np.int64] = ordered[is_first]
    return distinct
