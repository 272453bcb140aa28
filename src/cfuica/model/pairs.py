"""Which pairs are predicted, and from what: the integers that the two sides work on.

Histories in time order: what the items side encodes where the order matters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cfuica.ops import sampling

SideName = Literal["users", "items"]
SIDES: tuple[SideName, ...] = ("users", "items")
OTHER: dict[SideName, SideName] = {"users": "items", "items": "users"}
ROLES: dict[SideName, str] = {"users": "user", "items": "item"}
"""What one of an axis is called in columns and messages."""


@dataclass(frozen=True)
class Bag:
    """What each of Q queries is encoded from, as compressed rows.

    offsets (Q + 1) int64; entries int32, each `member * K + label`.
    """

    offsets: np.ndarray
    entries: np.ndarray

    @property
    def size(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Grouping:
    """Pairs listed group by group: offsets (G + 1) int64, order (P) int32."""

    offsets: np.ndarray
    order: np.ndarray


@dataclass(frozen=True)
class SidePairs:
    """P pairs as one side sees them: G members, Q queries.

    members (G) int32, the table rows of the members; query_of_pair (P), member_of_pair
    (P) int32: the row of the query among the encoded ones, and the table row of the member.
    """

    indices: np.ndarray
    query_of_pair: np.ndarray
    row_of_pair: np.ndarray
    by_row: Grouping
    by_query: Grouping

    def with_cold(self, is_cold_p: np.ndarray, shared_row: int) -> SidePairs:
        """The same pairs, some of them (a mask) with a cold-start user or item in the place of
        their member."""
        group_of_pair = np.empty(len(self.row_of_pair), np.int32)
        groups = np.arange(len(self.indices), dtype=np.int32)
        group_of_pair[self.by_row.order] = np.repeat(groups, np.diff(self.by_row.offsets))
        group_of_pair[is_cold_p] = len(groups)
        indices = np.append(self.indices, np.int32(shared_row))
        return replace(
            self,
            indices=indices,
            row_of_pair=indices[group_of_pair],
            by_row=Grouping(*sampling.group(group_of_pair, len(indices))),
        )


@dataclass(frozen=True)
class Pairs:
    """P pairs between listed users and listed items, seen from both sides."""

    users: SidePairs
    items: SidePairs

    @classmethod
    def between(
        cls,
        user_rows: np.ndarray,
        item_rows: np.ndarray,
        user_of_pair: np.ndarray,
        item_of_pair: np.ndarray,
    ) -> Pairs:
        """Pairs by their positions in lists of users and items, given by their table rows (all
        int32). To predict, a row may be there more than once; to train, it may not."""
        by_user = Grouping(*sampling.group(user_of_pair, len(user_rows)))
        by_item = Grouping(*sampling.group(item_of_pair, len(item_rows)))
        return cls(
            users=SidePairs(user_rows, item_of_pair, user_rows[user_of_pair], by_user, by_item),
            items=SidePairs(item_rows, user_of_pair, item_rows[item_of_pair], by_item, by_user),
        )

    @classmethod
    def of(cls, users_p: np.ndarray, items_p: np.ndarray) -> Pairs:
        """Pairs by their ids; the lists are the ids that occur, ascending."""
        users, user_of_pair = np.unique(users_p, return_inverse=True)
        items, item_of_pair = np.unique(items_p, return_inverse=True)
        return cls.between(
            users.astype(np.int32),
            items.astype(np.int32),
            user_of_pair.astype(np.int32),
            item_of_pair.astype(np.int32),
        )

    @property
    def size(self) -> int:
        return len(self.users.query_of_pair)

    def seen_by(self, side: SideName) -> SidePairs:
        return self.users if side == "users" else self.items


@dataclass(frozen=True)
class Histories:
    """U histories with B interactions in all, as compressed rows in time order.

    offsets (U + 1) int64; entries (B) int32, each a row of W, or -1 for one that is left out as if
    it had not happened; moments (B) int32: counted from 0 in each history, equal for
    interactions that do not know of each other; moment_offsets (U + 1) int64: where the moments of
    each history begin among all Q. A history has one moment more than its interactions: after all.
    Where only some moments are there, an interaction has the last one not after it, or -1.
    """

    offsets: np.ndarray
    entries: np.ndarray
    positions: np.ndarray
    position_offsets: np.ndarray

    @property
    def size(self) -> int:
        """Q: how many moments there are to encode."""
        return int(self.position_offsets[-1])

    @property
    def last_positions(self) -> np.ndarray:
        """(U,) the moment after all of each history; all moments must be there."""
        return self.position_offsets[1:] - 1

    def only(self, position_p: np.ndarray) -> tuple[Histories, np.ndarray]:
        """The same with these of its moments only, and where they are then. (P,)"""
        stays_q = np.zeros(self.size, bool)
        stays_q[position_p] = True
        earlier_q = np.append(0, np.cumsum(stays_q))  # of those that stay
        position_offsets = earlier_q[self.position_offsets]
        lengths = np.diff(self.offsets)
        own_b = np.repeat(self.position_offsets[:-1], lengths) + self.positions
        positions = earlier_q[own_b + 1] - 1 - np.repeat(position_offsets[:-1], lengths)
        selected = Histories(
            self.offsets, self.entries, positions.astype(np.int32), position_offsets
        )
        return selected, earlier_q[position_p].astype(np.int32)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four arrays, in the order of the fields, as int64 tensors on a device."""
        offsets, entries, positions, position_offsets = (
            torch.from_numpy(array).to(device, torch.int64)
            for array in (self.offsets, self.entries, self.positions, self.position_offsets)
        )
        return offsets, entries, positions, position_offsets
