"""Pairs of users and items as both sides see them, and the names of the sides.

For each side, a pair has the table row that decodes it and the query (a hidden vector) that it
decodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cfuica.ops import sampling
from cfuica.ops.tables import Grouping, SidePairs

SideName = Literal["users", "items"]
SIDES: tuple[SideName, ...] = ("users", "items")
OTHER: dict[SideName, SideName] = {"users": "items", "items": "users"}
# The singular of a side's name, in columns and messages.
ROLES: dict[SideName, str] = {"users": "user", "items": "item"}


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
        """Pairs by their positions in lists of users and of items, which are given as table rows
        (all int32). A row may be listed more than once for prediction, but not for training."""
        by_user = Grouping(*sampling.group(user_of_pair, len(user_rows)))
        by_item = Grouping(*sampling.group(item_of_pair, len(item_rows)))
        return cls(
            users=SidePairs(user_rows, item_of_pair, user_rows[user_of_pair], by_user, by_item),
            items=SidePairs(item_rows, user_of_pair, item_rows[item_of_pair], by_item, by_user),
        )

    @classmethod
    def grid(cls, user_rows: np.ndarray, item_rows: np.ndarray) -> Pairs:
        """The pairs of all these users and all these items, user by user."""
        n_users, n_items = len(user_rows), len(item_rows)
        every = np.arange(n_users * n_items, dtype=np.int32)
        user_of_pair = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
        item_of_pair = np.tile(np.arange(n_items, dtype=np.int32), n_users)
        by_user = Grouping(np.arange(n_users + 1) * n_items, every)
        by_item = Grouping(
            np.arange(n_items + 1) * n_users,
            np.ascontiguousarray(every.reshape(n_users, n_items).T).reshape(-1),
        )
        return cls(
            users=SidePairs(user_rows, item_of_pair, user_rows[user_of_pair], by_user, by_item),
            items=SidePairs(item_rows, user_of_pair, item_rows[item_of_pair], by_item, by_user),
        )

    @property
    def size(self) -> int:
        return len(self.users.query_of_pair)

    def seen_by(self, side: SideName) -> SidePairs:
        return self.users if side == "users" else self.items


def with_cold(pairs: SidePairs, is_cold_p: np.ndarray, shared_row: int) -> SidePairs:
    """The same pairs, where those of a mask (P) read the shared row of cold-start users or items
    instead of their own."""
    group_of_pair = np.empty(len(pairs.row_of_pair), np.int32)
    groups = np.arange(len(pairs.rows), dtype=np.int32)
    group_of_pair[pairs.by_row.order] = np.repeat(groups, np.diff(pairs.by_row.offsets))
    group_of_pair[is_cold_p] = len(groups)
    rows = np.append(pairs.rows, np.int32(shared_row))
    return replace(
        pairs,
        rows=rows,
        row_of_pair=rows[group_of_pair],
        by_row=Grouping(*sampling.group(group_of_pair, len(rows))),
    )
