"""`cfuica bench step`: the time of a training step, beside the same step in dense torch.

`bench_step` measures whole steps and their parts (drawing, kernels, the rest). `least_bytes` counts
the bytes that each part has to move, and `memory_bandwidth` measures how fast this machine moves
memory, so that the time of a part has a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import torch
from numba import njit

from cfuica.data.matrix import InteractionMatrix
from cfuica.model.network import Network
from cfuica.ops import adam, decode, encode, loss, tables
from cfuica.ops.runtime import (
    machine,
    quiet_torch_threads,
    run_rows,
    thread_count,
    versions,
)
from cfuica.reproduction.dense import DenseAuthors, DenseBest
from cfuica.settings import RatingSettings
from cfuica.training.batches import Block, Prefetcher
from cfuica.training.optimizer import Adam
from cfuica.training.rating_task import RatingTask

# The kernels of each part, by name. The rest is allocation, small sums and Python.
KERNELS = {
    "encode": ("_add_up", "_activate_rows"),
    "decode": ("_decode_rows",),
    "loss": ("_rating",),
    "decode_backward": ("_decode_by_rows", "_decode_by_queries", "_bias_by_rows"),
    "encode_backward": ("_sum_readers", "_derive_rows"),
    "adam": ("_adam_rows",),
}
PARTS = ("draw", *KERNELS, "rest")

_PART_OF = {kernel: part for part, kernels in KERNELS.items() for kernel in kernels}
# Modules whose kernels run in a training step; each calls `run_rows` by that name.
_CALLERS = (encode, decode, loss, adam, tables)

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


def least_bytes(matrix: InteractionMatrix, model: Network, block: Block) -> dict[str, float]:
    """Bytes that each part of one step has to read and write, by part (the rest has no count).

    With H hidden units, K labels and, per side, n table rows, G of them in the block, Q queries,
    P pairs and E context entries:

    - draw: 5 per interaction of the block's users and items (index, label); per entry 8 (listed,
      transposed) and 8 per row of the transpose; per pair 9 (user, item, label) and 8 (two
      groupings).
    - encode: 4 H per entry; 8 H per query (its sums and hidden vector).
    - decode: 4 K H per group (its V is read once) and 4 H + 8 K per pair (the hidden vector, the
      logits read and written).
    - loss: 8 K + 5 per pair.
    - decode_backward, V and b: 4 K H written per group, 4 H + 4 K read per pair; hidden vectors:
      4 K H + 4 K read per pair, 12 H per query (sums, hidden vector, gradient).
    - encode_backward: 4 H per entry, 4 per parameter of W.
    - adam: 28 per parameter with a gradient (read it, the parameter and two moments, write these
      three back), 24 per parameter without.

    Gathered rows count each time they are gathered. Caches serve many of them, so the share of
    a gathering part may pass 1; only adam and encode_backward's writes stream through memory.
    """
    pairs, labels = block.pairs.size, model.n_labels
    total: dict[str, float] = dict.fromkeys((part for part in PARTS if part != "rest"), 0.0)
    total["draw"] = pairs * (2 * INDEX + LABEL + 2 * INDEX)
    total["loss"] = pairs * (2 * labels * FLOAT + FLOAT + LABEL)
    for name, one in model.sides.items():
        bags, seen = block.contexts[name], block.pairs.seen_by(name)
        entries, queries, groups = len(bags.entries), bags.n_rows, len(seen.rows)
        indices, _, hidden = one.W.values.shape
        vector, table = FLOAT * hidden, indices * labels * hidden
        # The users side encodes items: its contexts are read from the items' rows.
        rows, ids = (
            (matrix.by_item, block.pairs.items.rows)
            if name == "users"
            else (matrix.by_user, block.pairs.users.rows)
        )
        interactions = int(np.diff(rows.offsets)[ids].sum())
        total["draw"] += (
            interactions * (INDEX + LABEL) + entries * 2 * INDEX + indices * labels * OFFSET
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
        without = (indices - groups) * (labels * hidden + labels)
        total["adam"] += 7 * FLOAT * with_gradient + 6 * FLOAT * without
    return total


# Floats per array. Three arrays of 256 MB: no last-level cache comes near that.
SIZE = 64 * 2**20


@njit(nogil=True, cache=True)
def _triad(a_n: Any, b_n: Any, c_n: Any, s: Any, start: int, stop: int) -> None:
    # Slices from zero: an index that might be negative keeps the loop from becoming vector code.
    a, b, c = a_n[start:stop], b_n[start:stop], c_n[start:stop]
    for i in range(len(a)):
        a[i] = b[i] + s * c[i]


def memory_bandwidth(*, size: int = SIZE, repeats: int = 7) -> float:
    """Bytes per second of a[i] = b[i] + s * c[i] on all threads, the best of several passes.

    Counts 12 bytes per element (read b, read c, write a) as STREAM does. The line of `a` that a
    processor reads before writing it is not counted, neither here nor for the step's parts.
    """
    a_n, b_n, c_n = (np.full(size, value, np.float32) for value in (0.0, 1.0, 2.0))
    best = float("inf")
    for _ in range(repeats + 1):  # the first one compiles
        start = time.perf_counter()
        run_rows(_triad, size, a_n, b_n, c_n, np.float32(3.0))
        best = min(best, time.perf_counter() - start)
    if a_n[-1] != 7.0:
        raise AssertionError(f"the triad computed {a_n[-1]} in place of 7")
    return 12 * size / best


# Steps before the clock counts: compiled kernels are loaded, memory is touched once.
WARM_UP = 3
DENSE_WARM_UP = 1


def bench_step(
    matrix: InteractionMatrix,
    settings: RatingSettings,
    *,
    repeats: int = 30,
    dense_repeats: int = 3,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure a training step on `matrix`, all forms in one run and on the same blocks.

    The figures are medians, by name, ready for `json.dumps`: seconds, except where said.
    `median_s`: a step as the trainer takes it, the next block drawn in the background. `speedup`
    and `speedup_best`: how many of these fit into a step of the authors' dense form, and of the
    best one. `parts`: the same step, one part after the other: `draw` is then in the foreground,
    so the parts add up to somewhat more than `median_s`. `bandwidth_share`: the bytes each part
    has to move (`least_bytes`) per second, as a share of `memory_bandwidth_gb_s`.
    """
    bandwidth = memory_bandwidth()
    log(f"memory bandwidth {bandwidth / 1e9:.1f} GB/s")

    seconds, blocks = _time_ours(matrix, settings, repeats)
    log(f"our step {median(seconds):.4f} s (median of {repeats})")
    parts, shares, parameters = _time_parts(matrix, settings, repeats, bandwidth)
    log("parts " + ", ".join(f"{name} {1e3 * parts[name]:.1f} ms" for name in PARTS))

    # The dense forms take long, so they get the few blocks that are most like the typical one.
    pairs = median(block.pairs.size for block in blocks)
    blocks.sort(key=lambda block: abs(block.pairs.size - pairs))
    typical = blocks[:dense_repeats]
    best = median(_time_dense(DenseBest, matrix, settings, typical))
    log(f"best dense form {best:.3f} s (median of {len(typical)})")
    dense = median(_time_dense(DenseAuthors, matrix, settings, typical))
    log(f"the authors' dense form {dense:.3f} s (median of {len(typical)})")

    units = {"users": settings.hidden_users, "items": settings.hidden_items}
    ours = median(seconds)
    return {
        "speedup": dense / ours,
        "speedup_best": best / ours,
        "median_s": ours,
        "dense_median_s": dense,
        "dense_best_median_s": best,
        "parts": parts,
        "bandwidth_share": shares,
        "memory_bandwidth_gb_s": bandwidth / 1e9,
        "block": _describe(blocks),
        "hidden": {name: units[name] for name in blocks[0].contexts},
        "labels": matrix.n_labels,
        "parameters": parameters,
        "repeats": repeats,
        "dense_repeats": len(typical),
        "machine": machine(),
        "versions": versions(),
    }


class _Ours:
    """The trainer's step without its schedule: same functions, same order."""

    def __init__(self, matrix: InteractionMatrix, settings: RatingSettings) -> None:
        self.settings, self.task = settings, RatingTask.of(matrix, settings)
        self.model, self.estimator = self.task.new_network(0), self.task.blocks(0)
        self._optimizer = Adam(self.model, settings)

    def step(self, block: Block) -> None:
        """Forward, backward, update."""
        with quiet_torch_threads():
            total, count = self.task.loss(self.model, block)
            (total / count).backward()
            self._optimizer.step(self.settings.learning_rate)


def _time_ours(
    matrix: InteractionMatrix, settings: RatingSettings, repeats: int
) -> tuple[list[float], list[Block]]:
    """Seconds of each step after the warm-up, and the steps' blocks."""
    ours = _Ours(matrix, settings)
    prefetcher = Prefetcher(ours.estimator)
    seconds, blocks = [], []
    try:
        for step in range(WARM_UP + repeats):
            start = time.perf_counter()
            block = prefetcher.take(step)
            ours.step(block)
            seconds.append(time.perf_counter() - start)
            blocks.append(block)
    finally:
        prefetcher.close()
    return seconds[WARM_UP:], blocks[WARM_UP:]


def _time_parts(
    matrix: InteractionMatrix, settings: RatingSettings, repeats: int, bandwidth: float
) -> tuple[dict[str, float], dict[str, float], int]:
    """Median seconds of each part, each part's median share of the bandwidth, parameters.

    A pass of its own, so that the clocks inside it are not part of the headline.
    """
    ours = _Ours(matrix, settings)
    seconds: dict[str, list[float]] = {name: [] for name in PARTS}
    shares: dict[str, list[float]] = {name: [] for name in PARTS if name != "rest"}
    for step in range(WARM_UP + repeats):
        with timed_kernels() as of_part:
            start = time.perf_counter()
            block = ours.estimator.draw(step)
            of_part["draw"] = time.perf_counter() - start
            ours.step(block)
            total = time.perf_counter() - start
        of_part["rest"] = total - sum(of_part.values())
        if step < WARM_UP:
            continue
        for name in PARTS:
            seconds[name].append(of_part[name])
        for name, moved in least_bytes(matrix, ours.model, block).items():
            shares[name].append(moved / of_part[name] / bandwidth)
    return (
        {name: median(values) for name, values in seconds.items()},
        {name: median(values) for name, values in shares.items()},
        ours.model.parameter_count(),
    )


def _time_dense(
    form: type[DenseAuthors] | type[DenseBest],
    matrix: InteractionMatrix,
    settings: RatingSettings,
    blocks: list[Block],
) -> list[float]:
    """Seconds of each block's step in a dense form; the blocks are drawn already."""
    task = RatingTask.of(matrix, settings)
    dense = form(task.new_network(0), settings)
    seconds = []
    with _torch_threads(thread_count()):
        for block in [blocks[0]] * DENSE_WARM_UP + blocks:
            factor = 1 / task.count(block)
            start = time.perf_counter()
            dense.step(block, factor)
            seconds.append(time.perf_counter() - start)
    return seconds[DENSE_WARM_UP:]


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _describe(blocks: list[Block]) -> dict[str, int]:
    """Medians over the blocks: users, items, pairs, context entries of each side."""
    found: dict[str, list[int]] = {}
    for block in blocks:
        counts = {
            "users": len(block.pairs.users.rows),
            "items": len(block.pairs.items.rows),
            "pairs": block.pairs.size,
        }
        for name, context in block.contexts.items():
            counts[f"context_entries_{name}"] = len(context.entries)
        for key, count in counts.items():
            found.setdefault(key, []).append(count)
    return {key: int(median(counts)) for key, counts in found.items()}
