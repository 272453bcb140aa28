"""Behaviours as each user lived them: in time order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfuica.data.matrix import CompressedRows

NO_TIMES = "There are no timestamps, so the order of the rows is taken for that of time."
"""What to say of data whose order is all that is known of its time."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """N users with n behaviours; those of user u are offsets[u]:offsets[u + 1], oldest first.

    Among equal times, and where there are none, the later row of the data is later.
    """

    offsets: NDArray[np.int64]
    """(N + 1,)"""
    items: NDArray[np.int32]
    """(n,)"""
    times: NDArray[np.int64]
    """(n,) ascending within a user; without times in the data, the number of the row"""
    n_items: int

    @classmethod
    def of(
        cls,
        users: NDArray[np.int32],
        items: NDArray[np.int32],
        times: NDArray[np.int64] | None,
        *,
        n_users: int,
        n_items: int,
    ) -> Timeline:
        """From n behaviours in the order of the data."""
        if times is None:
            times = np.arange(users.size, dtype=np.int64)
        order = np.lexsort((times, users))  # stable
        offsets = np.r_[0, np.cumsum(np.bincount(users, minlength=n_users))].astype(np.int64)
        return cls(offsets, items[order], times[order], n_items)

    @property
    def n_users(self) -> int:
        """N, the users without behaviours included."""
        return int(self.offsets.size) - 1

    @property
    def n_behaviours(self) -> int:
        """n."""
        return int(self.items.size)

    @property
    def users(self) -> NDArray[np.int32]:
        """(n,) who did it."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), np.diff(self.offsets))

    def sha256(self) -> str:
        """Hash of shape and content, the order of the behaviours included."""
        shape = f"{self.n_users} {self.n_items}\n"
        digest = hashlib.sha256(shape.encode())
        for array, kind in ((self.offsets, "<i8"), (self.items, "<i4"), (self.times, "<i8")):
            digest.update(array.astype(kind).tobytes())
        return digest.hexdigest()

    def by_item(self) -> CompressedRows:
        """Who did each item, users ascending; that they did is the one label."""
        order = np.argsort(self.items, kind="stable")
        counts = np.bincount(self.items, minlength=self.n_items)
        offsets = np.append(0, np.cumsum(counts)).astype(np.int64)
        labels = np.zeros(self.n_behaviours, np.uint8)
        return CompressedRows(offsets, self.users[order], labels)
