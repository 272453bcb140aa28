"""The integers that a network computes with: pairs to predict, and histories in time order.

`Pairs` lists (user, item) pairs as both sides see them: for each side, the table row that decodes a
pair and the query (a hidden vector) that it decodes. `Histories` is what the items side encodes
where the order of interactions matters; where it does not, contexts are bags, a plain `Csr`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import Csr
from cfuica.ops import sampling

SideName = Literal["users", "items"]
SIDES: tuple[SideName, ...] = ("users", "items")
OTHER: dict[SideName, SideName] = {"users": "items", "items": "users"}
# The singular of a side's name, in columns and messages.
ROLES: dict[SideName, str] = {"users": "user", "items": "item"}


@dataclass(frozen=True)
class SidePairs:
    """P pairs as one side sees them: G rows of its tables, Q queries.

    indices (G) int32 are the table rows. query_of_pair (P) and row_of_pair (P) int32 are each
    pair's query, among the Q encoded ones, and its table row. by_row and by_query list the pairs
    of each table row and of each query.
    """

    indices: np.ndarray
    query_of_pair: np.ndarray
    row_of_pair: np.ndarray
    by_row: Csr
    by_query: Csr

    def with_cold(self, is_cold_p: np.ndarray, shared_row: int) -> SidePairs:
        """The same pairs, where those of a mask (P) read the shared row of cold-start users or
        items instead of their own."""
        group_of_pair = np.empty(len(self.row_of_pair), np.int32)
        groups = np.arange(len(self.indices), dtype=np.int32)
        group_of_pair[self.by_row.indices] = np.repeat(groups, np.diff(self.by_row.offsets))
        group_of_pair[is_cold_p] = len(groups)
        indices = np.append(self.indices, np.int32(shared_row))
        return replace(
            self,
            indices=indices,
            row_of_pair=indices[group_of_pair],
            by_row=Csr(*sampling.group(group_of_pair, len(indices))),
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
        """Pairs by their positions in lists of users and of items, which are given as table rows
        (all int32). A row may be listed more than once for prediction, but not for training."""
        by_user = Csr(*sampling.group(user_of_pair, len(user_rows)))
        by_item = Csr(*sampling.group(item_of_pair, len(item_rows)))
        return cls(
            users=SidePairs(user_rows, item_of_pair, user_rows[user_of_pair], by_user, by_item),
            items=SidePairs(item_rows, user_of_pair, item_rows[item_of_pair], by_item, by_user),
        )

    @property
    def size(self) -> int:
        return len(self.users.query_of_pair)

    def seen_by(self, side: SideName) -> SidePairs:
        return self.users if side == "users" else self.items


@dataclass(frozen=True)
class Histories:
    """U histories with B interactions in all, in time order.

    A position is a place in a history at which it is encoded, from the interactions before it. A
    history has one position for each group of simultaneous interactions, and one after all.

    offsets (U + 1) int64. indices (B) int32: each a row of W, or -1 for an interaction that is left
    out. positions (B) int32: the position of each interaction, counted from 0 in its history;
    simultaneous interactions share one. position_offsets (U + 1) int64: the first position of each
    history among all Q. Where only some positions are listed (`only`), an interaction has the last
    one that is not after it, or -1.
    """

    offsets: np.ndarray
    indices: np.ndarray
    positions: np.ndarray
    position_offsets: np.ndarray

    @property
    def n_rows(self) -> int:
        """Q: the number of positions to encode."""
        return int(self.position_offsets[-1])

    @property
    def last_positions(self) -> np.ndarray:
        """(U,) the position after all of each history; all positions must be listed."""
        return self.position_offsets[1:] - 1

    def only(self, position_p: np.ndarray) -> tuple[Histories, np.ndarray]:
        """The same histories with these positions only, and the new numbers of these. (P,)"""
        is_listed_q = np.zeros(self.n_rows, bool)
        is_listed_q[position_p] = True
        earlier_q = np.append(0, np.cumsum(is_listed_q))
        position_offsets = earlier_q[self.position_offsets]
        lengths = np.diff(self.offsets)
        own_b = np.repeat(self.position_offsets[:-1], lengths) + self.positions
        positions = earlier_q[own_b + 1] - 1 - np.repeat(position_offsets[:-1], lengths)
        selected = Histories(
            self.offsets, self.indices, positions.astype(np.int32), position_offsets
        )
        return selected, earlier_q[position_p].astype(np.int32)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four arrays, in the order of the fields, as int64 tensors on a device."""
        offsets, entries, positions, position_offsets = (
            torch.from_numpy(array).to(device, torch.int64)
            for array in (self.offsets, self.indices, self.positions, self.position_offsets)
        )
        return offsets, entries, positions, position_offsets
