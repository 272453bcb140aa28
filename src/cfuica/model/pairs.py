"""Which pairs are predicted, and from what: the integers that the two sides work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cfuica.kernels import draw

SideName = Literal["users", "items"]
AXES: tuple[SideName, ...] = ("users", "items")


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

    members (G) int32, the table rows of the members, each once; query_of_pair (P), member_of_pair
    (P) int32: the row of the query among the encoded ones, and the table row of the member.
    """

    members: np.ndarray
    query_of_pair: np.ndarray
    member_of_pair: np.ndarray
    by_member: Grouping
    by_query: Grouping

    @classmethod
    def of(
        cls,
        rows: np.ndarray,
        position_of_pair: np.ndarray,
        by_position: Grouping,
        query_of_pair: np.ndarray,
        by_query: Grouping,
    ) -> SidePairs:
        """From the pairs' positions in a list of members, given by their table rows."""
        _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        if len(first) < len(rows):
            # Each row once, in the order of the list: what is added up over members then is in
            # the same order as where no row repeats.
            order = np.argsort(first)
            group_of_first = np.empty(len(first), np.int32)
            group_of_first[order] = np.arange(len(first), dtype=np.int32)
            members = rows[first[order]]
            group_of_pair = group_of_first[inverse][position_of_pair]
            by_position = Grouping(*draw.group(group_of_pair, len(members)))
        else:
            members = rows
        return cls(members, query_of_pair, rows[position_of_pair], by_position, by_query)


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
        int32). Several of a list may be strangers, who share one row."""
        by_user = Grouping(*draw.group(user_of_pair, len(user_rows)))
        by_item = Grouping(*draw.group(item_of_pair, len(item_rows)))
        return cls(
            users=SidePairs.of(user_rows, user_of_pair, by_user, item_of_pair, by_item),
            items=SidePairs.of(item_rows, item_of_pair, by_item, user_of_pair, by_user),
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
