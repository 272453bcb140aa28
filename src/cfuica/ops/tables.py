"""What the differentiable ops read: row tables with their gradients, bags, histories and pairs.

A *row table* holds W, V or b of a side: a row for each user or item, up to gigabytes in all. A
minibatch touches some of its rows, so autograd, whose gradients are as large as the parameters,
does not see it. The backward pass of an op writes the gradient of the rows it touched into the
table's own `gradient` instead, with the two numbers that the norm of the whole gradient needs.
Everything else in a network is an ordinary `torch.nn.Parameter`.

With label sharing a table holds the columns *in use*, sums of the stored ones, and its gradient is
that of the stored columns (`reference.stored_gradient`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cfuica.ops import reference, runtime, sampling
from cfuica.ops.runtime import run_rows

SideName = Literal["users", "items"]
SIDES: tuple[SideName, ...] = ("users", "items")
OTHER: dict[SideName, SideName] = {"users": "items", "items": "users"}
# The singular of a side's name, in columns and messages.
ROLES: dict[SideName, str] = {"users": "user", "items": "item"}


@dataclass
class RowGradient:
    """The gradient of G rows of a table, (G, K, H), by the stored columns.

    `rows` (G,) are distinct; None: all rows of the table. `squares` is its squared norm, `inner`
    its inner product with the table.
    """

    rows: np.ndarray | None
    values: Tensor
    squares: float
    inner: float


class RowTable(nn.Module):
    """A table of parameter rows (n, K, H): n users or items, K labels, H hidden units."""

    values: Tensor

    def __init__(self, values_nkh: Tensor, *, share: bool = False) -> None:
        super().__init__()
        self.register_buffer("values", values_nkh)
        self.share = share
        self.gradient: RowGradient | None = None
        # An input of every op on this table that requires a gradient. Without it an op whose other
        # inputs are frozen would never be asked for its backward pass.
        self.anchor = torch.zeros((), requires_grad=True)
        self._memory: Tensor | None = None

    @property
    def array(self) -> np.ndarray:
        """The table as an array (n, K, H) of the same memory; on the CPU only."""
        array: np.ndarray = self.values.numpy()
        return array

    @property
    def rows(self) -> np.ndarray:
        """The same as (n * K, H): row n * K + k is the column of label k."""
        return self.array.reshape(-1, self.values.shape[2])

    @property
    def shared_row(self) -> int:
        """The row of cold-start users or items: the last one."""
        return len(self.values) - 1

    def freeze(self) -> None:
        """Train this table no more: its gradient stays zero."""
        self.anchor.requires_grad_(False)

    def memory(self) -> Tensor:
        """Memory for the gradient of all rows, reused between steps: fresh pages take longer than
        the sums that fill them."""
        if self._memory is None:
            self._memory = runtime.zeros_like(self.values)
        if self.gradient is not None and self.gradient.values is self._memory:
            return runtime.zeros_like(self.values)
        return self._memory

    def add_gradient(
        self, rows: np.ndarray | None, values: Tensor, squares: float, inner: float
    ) -> None:
        """Add a gradient to the one that is there.

        Inner products add up. Squared norms do so over different rows only, so where two gradients
        meet, they are added first.
        """
        new = RowGradient(rows, values, squares, inner)
        old = self.gradient
        if old is None:
            self.gradient = new
            return
        every = np.arange(len(self.values))
        listed = [every if each.rows is None else each.rows for each in (old, new)]
        union = np.union1d(*listed)
        total = values.new_zeros((len(union), *values.shape[1:]))
        for each, own in zip((old, new), listed, strict=True):
            place = torch.from_numpy(np.searchsorted(union, own)).to(values.device)
            total.index_add_(0, place, each.values)
        squares = float(total.double().square().sum())
        self.gradient = RowGradient(union, total, squares, old.inner + inner)

    def dense_gradient(self) -> Tensor:
        """The gradient of all rows, (n, K, H), zero where there is none."""
        dense = torch.zeros_like(self.values)
        if self.gradient is not None:
            rows = self.gradient.rows
            every = slice(None) if rows is None else torch.from_numpy(rows).to(dense.device)
            dense[every] = self.gradient.values
        return dense

    def leaf(self) -> Tensor:
        """The table as autograd's own leaf, for the reference: its gradient becomes the table's."""
        if not (self.anchor.requires_grad and torch.is_grad_enabled()):
            return self.values
        leaf = self.values.detach().requires_grad_()
        leaf.register_post_accumulate_grad_hook(self._take_gradient)
        return leaf

    def _take_gradient(self, leaf: Tensor) -> None:
        grad = leaf.grad
        assert grad is not None
        inner = float((grad.double() * leaf.detach().double()).sum())
        if self.share:
            grad = reference.stored_gradient(grad)
        self.add_gradient(None, grad, float(grad.double().square().sum()), inner)

    def uses_reference(self) -> bool:
        """Whether ops on this table run by their torch definitions."""
        return uses_reference(self.values)


def uses_reference(tensor: Tensor) -> bool:
    """Whether ops on a tensor run by their torch definitions: on every device but the CPU, in
    double precision, and everywhere with `CFUICA_OPS=reference`."""
    return (
        tensor.device.type != "cpu"
        or tensor.dtype != torch.float32
        or os.environ.get("CFUICA_OPS") == "reference"
    )


def plain(tensor: Tensor) -> np.ndarray:
    """A CPU tensor as a contiguous array, without its history."""
    array: np.ndarray = tensor.detach().contiguous().numpy()
    return array


def inner_product(first_qh: np.ndarray, second_qh: np.ndarray) -> float:
    """The inner product of two matrices, in one order whatever the number of threads."""
    products_q = np.empty(len(first_qh), np.float32)
    run_rows(runtime.paired, len(products_q), first_qh, second_qh, products_q)
    return float(products_q.sum(dtype=np.float64))


class Grouping(NamedTuple):
    """Members of groups: those of group g are order[offsets[g]:offsets[g + 1]]."""

    offsets: np.ndarray
    order: np.ndarray


@dataclass(frozen=True, eq=False)
class Bags:
    """Q unordered contexts: entries (row * K + label) of a table, as compressed rows."""

    offsets: np.ndarray  # (Q + 1,) int64
    entries: np.ndarray  # (n,) int32
    # For the backward pass: the queries that read each of the n * K rows of the table.
    readers: Grouping | None = None

    @property
    def n_rows(self) -> int:
        """Q."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        """(Q,) interactions of each context."""
        sizes: np.ndarray = np.diff(self.offsets)
        return sizes

    def split(self, entries: int) -> list[Bags]:
        """The contexts in parts, in order, of about so many entries each; at least one part."""
        count = max(1, int(self.offsets[-1] // entries))
        wanted = np.linspace(0, self.offsets[-1], count + 1)[1:-1]
        cuts = [0, *np.unique(np.searchsorted(self.offsets, wanted)).tolist(), self.n_rows]
        return [
            Bags(
                self.offsets[start : stop + 1] - self.offsets[start],
                self.entries[self.offsets[start] : self.offsets[stop]],
            )
            for start, stop in pairwise(cuts)
        ]


@dataclass(frozen=True, eq=False)
class Histories:
    """U histories with B interactions in all, in time order.

    A position is a place in a history at which it is encoded, from the interactions before it. A
    history has one position for each group of simultaneous interactions, and one after all.

    offsets (U + 1) int64. entries (B) int32: each a row of W, or -1 for an interaction that is left
    out. positions (B) int32: the position of each interaction, counted from 0 in its history;
    simultaneous interactions share one. position_offsets (U + 1) int64: the first position of each
    history among all Q. Where only some positions are listed (`only`), an interaction has the last
    one that is not after it, or -1.
    """

    offsets: np.ndarray
    entries: np.ndarray
    positions: np.ndarray
    position_offsets: np.ndarray
    # For the backward pass: the interactions that read each row of the table.
    readers: Grouping | None = None

    @property
    def n_rows(self) -> int:
        """Q: the number of positions to encode."""
        return int(self.position_offsets[-1])

    @property
    def n_histories(self) -> int:
        """U."""
        return len(self.offsets) - 1

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
        selected = replace(
            self, positions=positions.astype(np.int32), position_offsets=position_offsets
        )
        return selected, earlier_q[position_p].astype(np.int32)


@dataclass(frozen=True, eq=False)
class SidePairs:
    """P pairs as one side sees them: G rows of its tables, Q queries.

    rows (G) int32 are the table rows, distinct where gradients are wanted. query_of_pair (P) and
    row_of_pair (P) int32 are each pair's query, among the Q encoded ones, and its table row. by_row
    and by_query list the pairs of each table row and of each query.
    """

    rows: np.ndarray
    query_of_pair: np.ndarray
    row_of_pair: np.ndarray
    by_row: Grouping
    by_query: Grouping

    def in_rows(self, row_of: np.ndarray, *, distinct: bool) -> SidePairs:
        """The same pairs in the rows of another table: row r becomes row_of[r].

        If they are to be `distinct`, rows that become one are one group, so that their gradients
        meet."""
        if not distinct:
            return replace(self, rows=row_of[self.rows], row_of_pair=row_of[self.row_of_pair])
        rows, group_of_row = np.unique(row_of[self.rows], return_inverse=True)
        group_of_pair = np.empty(len(self.row_of_pair), np.int32)
        group_of_pair[self.by_row.order] = np.repeat(
            group_of_row.astype(np.int32), np.diff(self.by_row.offsets)
        )
        return replace(
            self,
            rows=rows,
            row_of_pair=rows[group_of_pair],
            by_row=Grouping(*sampling.group(group_of_pair, len(rows))),
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
