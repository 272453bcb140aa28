"""Which pairs are predicted, and from what: the integers that the two sides work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cfuica.kernels import draw

SideName = Literal["users", "items"]


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

    members (G) int32 ids; query_of_pair (P), member_of_pair (P) int32: the row of the query
    among the encoded ones, and the id of the member.
    """

    members: np.ndarray
    query_of_pair: np.ndarray
    member_of_pair: np.ndarray
    by_member: Grouping
    by_query: Grouping


@dataclass(frozen=True)
class Pairs:
    """P pairs between listed users and listed items, seen from both sides."""

    users: SidePairs
    items: SidePairs

    @classmethod
    def between(
        cls,
        users: np.ndarray,
        items: np.ndarray,
        user_of_pair: np.ndarray,
        item_of_pair: np.ndarray,
    ) -> Pairs:
        """Pairs by their positions in the lists of ids `users` and `items` (all int32)."""
        by_user = Grouping(*draw.group(user_of_pair, len(users)))
        by_item = Grouping(*draw.group(item_of_pair, len(items)))
        return cls(
            users=SidePairs(users, item_of_pair, users[user_of_pair], by_user, by_item),
            items=SidePairs(items, user_of_pair, items[item_of_pair], by_item, by_user),
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
