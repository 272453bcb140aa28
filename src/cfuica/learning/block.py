"""A block: the observed pairs between some users and some items, and their contexts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cfuica.data.matrix import BehaviourMatrix, CompressedRows
from cfuica.kernels import draw
from cfuica.model.histories import Histories
from cfuica.model.pairs import Bag, Grouping, Pairs, SideName


@dataclass(frozen=True)
class Context:
    """One side's contexts: the bag of every query or histories with moments, and the transpose
    for the backward pass.

    `queries_of_entry` lists, for each of the n * K entries, the queries that sum it; of histories
    the behaviours that are it.
    """

    bag: Bag | Histories
    queries_of_entry: Grouping


@dataclass(frozen=True)
class Done:
    """What can not be chosen any more: at moment q the columns[start_q[q]:stop_q[q]] of the
    block's items, which its user did before."""

    columns: np.ndarray
    start_q: np.ndarray
    stop_q: np.ndarray

    def at(self, moments_p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number p of a moment and a column that is done at it, for all that are."""
        counts_p = (self.stop_q - self.start_q)[moments_p]
        first_p = self.start_q[moments_p] - np.cumsum(counts_p) + counts_p
        places = np.arange(counts_p.sum()) + np.repeat(first_p, counts_p)
        return np.repeat(np.arange(len(moments_p)), counts_p), self.columns[places]


@dataclass(frozen=True)
class Block:
    """What one minibatch computes with.

    labels (P) uint8; scale: the sum of the pairs' costs times `scale` is an unbiased estimate
    of the objective (strict estimator). `keeps` has, for a side with dropout, what each hidden
    unit of each query is multiplied by, (Q, H) float32.
    """

    pairs: Pairs
    labels: np.ndarray
    contexts: dict[SideName, Context]
    scale: float
    keeps: dict[SideName, np.ndarray] = field(default_factory=dict)
    keep_layer_qu: np.ndarray | None = None
    """The same of the items side's extra layer."""
    correction_m: np.ndarray | None = None
    """Where a choice is among some items only: what is added to the logit of each that was not
    chosen; minus infinity for those that are there only because somebody chose them."""
    done: Done | None = None
    """Where items are chosen from."""


def cut_block(
    matrix: BehaviourMatrix,
    users: np.ndarray,
    items: np.ndarray,
    *,
    sides: tuple[SideName, ...],
    open_users: np.ndarray,
    open_items: np.ndarray,
    keep_users: float | np.ndarray,
    keep_items: float | np.ndarray,
    key: int,
    scale: float,
) -> Block:
    """The block of `users` x `items` (int32 ids).

    Contexts are the behaviours with open members (bool masks over all users and all items), each
    kept with its side's chance: one for all, or one for each query of the side, which is an item
    of the block for the users side. `key` decides those coins.
    """
    position_of_item = np.full(matrix.n_items, -1, np.int32)
    position_of_item[items] = np.arange(len(items), dtype=np.int32)
    seen = matrix.by_user
    user_of_pair, item_of_pair, labels = draw.observed_pairs(
        seen.offsets, seen.members, seen.labels, users, position_of_item
    )
    pairs = Pairs.between(users, items, user_of_pair, item_of_pair)

    # A side's members give the contexts of the other axis: the users side encodes items.
    contexts: dict[SideName, Context] = {}
    if "users" in sides:
        contexts["users"] = _context(
            matrix.by_item, items, open_users, keep_users, key, matrix.n_users, matrix.n_labels
        )
    if "items" in sides:
        contexts["items"] = _context(
            matrix.by_user, users, open_items, keep_items, ~key, matrix.n_items, matrix.n_labels
        )
    return Block(pairs, labels, contexts, scale)


def _context(
    rows: CompressedRows,
    queries: np.ndarray,
    open_members: np.ndarray,
    keep: float | np.ndarray,
    key: int,
    n_members: int,
    n_labels: int,
) -> Context:
    offsets, entries = draw.contexts(
        rows.offsets,
        rows.members,
        rows.labels,
        queries,
        open_members,
        np.broadcast_to(np.float64(keep), len(queries)),
        np.uint64(key & 0xFFFFFFFFFFFFFFFF),
        n_labels,
    )
    table_rows = n_members + 1  # the last is that of strangers
    transposed = draw.transpose(offsets, entries, table_rows * n_labels)
    return Context(Bag(offsets, entries), Grouping(*transposed))
