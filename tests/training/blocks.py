"""What tests read out of a block."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cfuica.training.batches import Block


def cells_of(block: Block) -> dict[tuple[int, int], int]:
    """The interactions whose loss the block computes."""
    users = block.pairs.users.row_of_pair.tolist()
    items = block.pairs.items.row_of_pair.tolist()
    cells = dict(zip(zip(users, items, strict=True), block.labels.tolist(), strict=True))
    assert len(cells) == block.pairs.size, "a pair is listed twice"
    return cells


def context_of(block: Block, side: str, n_labels: int) -> dict[int, dict[int, int]]:
    """{query: {row: label}} of one side; the users side encodes items."""
    other = block.pairs.items if side == "users" else block.pairs.users
    bags = block.contexts[side]
    rows = {}
    for query, (start, stop) in zip(other.rows.tolist(), pairwise(bags.offsets), strict=True):
        entries = bags.entries[start:stop].tolist()
        rows[query] = {entry // n_labels: entry % n_labels for entry in entries}
        assert len(rows[query]) == len(entries), "a row is context twice"
    return rows


def arrays_of(block: Block) -> list[np.ndarray]:
    """Everything a block holds, to compare blocks bit by bit."""
    arrays = [block.labels, np.array([block.scale])]
    for seen in (block.pairs.users, block.pairs.items):
        arrays += [seen.rows, seen.query_of_pair, seen.row_of_pair]
        for grouping in (seen.by_row, seen.by_query):
            arrays += [grouping.offsets, grouping.order]
    for side in sorted(block.contexts):
        bags = block.contexts[side]
        arrays += [bags.offsets, bags.entries, *bags.readers]
    return arrays


def same(one: Block, other: Block) -> bool:
    a, b = arrays_of(one), arrays_of(other)
    return len(a) == len(b) and all(map(np.array_equal, a, b))
