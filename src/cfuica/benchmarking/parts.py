"""Which part of a step takes how long, and how much memory it has to touch for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cfuica.data.matrix import BehaviourMatrix
from cfuica.kernels.threads import run_rows
from cfuica.learning import encoding, gradients, optimiser
from cfuica.learning.block import Block
from cfuica.model import side
from cfuica.model.conditional import CoAutoregressive

# The kernels of each part, by name. What no kernel does is the rest: allocation, small sums,
# Python.
KERNELS = {
    "encode": ("encode",),
    "decode": ("decode",),
    "cost": ("cost",),
    "decode_backward": ("decode_backward_members", "decode_backward_queries"),
    "encode_backward": ("encode_backward",),
    "adam": ("adam",),
}
PARTS = ("draw", *KERNELS, "rest")

_PART_OF = {kernel: part for part, kernels in KERNELS.items() for kernel in kernels}
# Modules whose kernels run in a training step; each calls `run_rows` by that name.
_CALLERS = (side, encoding, gradients, optimiser)

FLOAT, LABEL, INDEX, OFFSET = 4, 1, 4, 8


@contextmanager
def timed_kernels() -> Iterator[dict[str, float]]:
    """Inside, the seconds of every kernel call add up under the name of its part."""
    seconds = dict.fromkeys(KERNELS, 0.0)

    def timed(kernel: Callable[..., Any], rows: int, *args: Any, **kwargs: Any) -> None:
        start = time.perf_counter()
        run_rows(kernel, rows, *args, **kwargs)
        part = _PART_OF.get(kernel.__name__)
        if part is not None:
            seconds[part] += time.perf_counter() - start

    try:
        for module in _CALLERS:
            setattr(module, "run_rows", timed)  # noqa: B010 (mypy forbids the plain assignment)
        yield seconds
    finally:
        for module in _CALLERS:
            setattr(module, "run_rows", run_rows)  # noqa: B010


def least_bytes(matrix: BehaviourMatrix, model: CoAutoregressive, block: Block) -> dict[str, float]:
    """Bytes that each part of one step has to read and write, by part (the rest has no count).

    With H hidden units, K labels and, per side, n members, G of them in the block, Q queries,
    P pairs and E context entries:

    - draw: 5 per behaviour of the block's users and items (member, label); per entry 8 (listed,
      transposed) and 8 per row of the transpose; per pair 9 (user, item, label) and 8 (two
      groupings).
    - encode: 4 H per entry; 8 H per query (its sums and hidden vector).
    - decode: 4 K H per group (its V is read once) and 4 H + 8 K per pair (the hidden vector, the
      activations read and written).
    - cost: 8 K + 5 per pair.
    - decode_backward, V and b: 4 K H written per group, 4 H + 4 K read per pair; hidden vectors:
      4 K H + 4 K read per pair, 12 H per query (sums, hidden vector, slope).
    - encode_backward: 4 H per entry, 4 per parameter of W.
    - adam: 28 per parameter with a gradient (read it, the parameter and two moments, write these
      three back), 24 per parameter without.

    Gathered rows count each time they are gathered. Caches serve many of them, so the share of
    a gathering part may pass 1; only adam and encode_backward's writes stream through memory.
    """
    pairs, labels = block.pairs.size, model.n_labels
    total: dict[str, float] = dict.fromkeys((part for part in PARTS if part != "rest"), 0.0)
    total["draw"] = pairs * (2 * INDEX + LABEL + 2 * INDEX)
    total["cost"] = pairs * (2 * labels * FLOAT + FLOAT + LABEL)
    for name, one in model.sides.items():
        bag, seen = block.contexts[name].bag, block.pairs.seen_by(name)
        entries, queries, groups = len(bag.entries), bag.size, len(seen.members)
        members, _, hidden = one.encoder_nkh.shape
        vector, table = FLOAT * hidden, members * labels * hidden
        # The users side encodes items: its contexts are read from the items' rows.
        rows, ids = (
            (matrix.by_item, block.pairs.items.members)
            if name == "users"
            else (matrix.by_user, block.pairs.users.members)
        )
        behaviours = int(np.diff(rows.offsets)[ids].sum())
        total["draw"] += (
            behaviours * (INDEX + LABEL) + entries * 2 * INDEX + members * labels * OFFSET
        )
        total["encode"] += entries * vector + queries * 2 * vector
        total["decode"] += groups * labels * vector + pairs * (vector + 2 * FLOAT * labels)
        total["decode_backward"] += (
            groups * labels * vector
            + pairs * (vector + labels * vector + 2 * FLOAT * labels)
            + queries * 3 * vector
        )
        total["encode_backward"] += entries * vector + FLOAT * table
        with_gradient = table + hidden + groups * (labels * hidden + labels)
        without = (members - groups) * (labels * hidden + labels)
        total["adam"] += 7 * FLOAT * with_gradient + 6 * FLOAT * without
    return total
