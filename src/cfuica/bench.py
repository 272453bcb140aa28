"""`cfuica bench`: the time of a training step, and of predicting a test set, beside dense torch.

`bench_step` measures whole steps and their parts (drawing, kernels, the rest), `bench_test` the
prediction of all test ratings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.ops import adam, decode, encode, loss, tables
from cfuica.ops.runtime import (
    machine,
    quiet_torch_threads,
    run_rows,
    thread_count,
    versions,
)
from cfuica.ops.tables import SideName
from cfuica.reproduction.dense import DenseAuthors, DenseBest
from cfuica.settings import RatingSettings
from cfuica.training.batches import Block, Prefetcher
from cfuica.training.optimizer import Adam
from cfuica.training.rating_task import RatingTask, pair_contexts

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

    with ExitStack() as stack:
        for module in _CALLERS:
            stack.enter_context(mock.patch.object(module, "run_rows", timed))
        yield seconds


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
    so the parts add up to somewhat more than `median_s`.
    """
    seconds, blocks = _time_ours(matrix, settings, repeats)
    log(f"our step {median(seconds):.4f} s (median of {repeats})")
    parts, parameters = _time_parts(matrix, settings, repeats)
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
        "block": _describe(blocks),
        "hidden": {name: units[name] for name in blocks[0].contexts},
        "labels": matrix.n_labels,
        "parameters": parameters,
        "repeats": repeats,
        "dense_repeats": len(typical),
        "machine": machine(),
        "versions": versions(),
    }


def bench_test(
    matrix: InteractionMatrix, test: RatedPairs, settings: RatingSettings, *, repeats: int = 5
) -> dict[str, Any]:
    """Measure the prediction of all test ratings from `matrix`, all forms in one run.

    Every form computes the hidden vectors of all users and items of the test set anew, and from
    them the logits of the pairs. The parameters are initial ones. Seconds are medians.
    """
    task = RatingTask.of(matrix, settings)
    network = task.new_network(0)
    rows: dict[SideName, np.ndarray] = {
        "users": np.arange(matrix.n_users, dtype=np.int32),
        "items": np.arange(matrix.n_items, dtype=np.int32),
    }
    pairs, contexts = pair_contexts(matrix, test.users_p, test.items_p, rows)
    block = Block(pairs, test.labels_p, {name: contexts[name] for name in network.sides}, 1.0)

    def seconds(predict: Callable[[], object], times: int) -> float:
        taken = []
        with torch.no_grad():
            for _ in range(1 + times):  # The first one warms up.
                start = time.perf_counter()
                predict()
                taken.append(time.perf_counter() - start)
        return median(taken[1:])

    def ours() -> object:
        with quiet_torch_threads():
            return network(pairs, network.encode(block.contexts))

    found: dict[str, Any] = {"median_s": seconds(ours, repeats)}
    for name, form in (("dense", DenseAuthors), ("dense_best", DenseBest)):
        dense = form(network, settings)
        # The loss of so few numbers as there are labels is nothing beside them.
        found[f"{name}_median_s"] = seconds(partial(dense.loss, block, 1.0), 1)
    return {**found, "pairs": test.n, "machine": machine(), "versions": versions()}


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
    seconds, blocks = [], []
    with closing(Prefetcher(ours.estimator)) as prefetcher:
        for step in range(WARM_UP + repeats):
            start = time.perf_counter()
            block = prefetcher.take(step)
            ours.step(block)
            seconds.append(time.perf_counter() - start)
            blocks.append(block)
    return seconds[WARM_UP:], blocks[WARM_UP:]


def _time_parts(
    matrix: InteractionMatrix, settings: RatingSettings, repeats: int
) -> tuple[dict[str, float], int]:
    """Median seconds of each part, and the number of parameters.

    A pass of its own, so that the clocks inside it are not part of the headline.
    """
    ours = _Ours(matrix, settings)
    seconds: dict[str, list[float]] = {name: [] for name in PARTS}
    for step in range(WARM_UP + repeats):
        with timed_kernels() as of_part:
            start = time.perf_counter()
            block = ours.estimator.draw(step)
            of_part["draw"] = time.perf_counter() - start
            ours.step(block)
            total = time.perf_counter() - start
        of_part["rest"] = total - sum(of_part.values())
        for name in PARTS:
            seconds[name].append(of_part[name])
    medians = {name: median(values[WARM_UP:]) for name, values in seconds.items()}
    return medians, ours.model.parameter_count()


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
    before = torch.get_num_threads()
    torch.set_num_threads(thread_count())
    try:
        for block in [blocks[0]] * DENSE_WARM_UP + blocks:
            factor = 1 / task.count(block)
            start = time.perf_counter()
            dense.step(block, factor)
            seconds.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    return seconds[DENSE_WARM_UP:]


def _describe(blocks: list[Block]) -> dict[str, int]:
    """Medians over the blocks: users, items, pairs, context entries of each side."""
    counts = [
        {
            "users": len(block.pairs.users.rows),
            "items": len(block.pairs.items.rows),
            "pairs": block.pairs.size,
            **{f"context_entries_{name}": len(bag.entries) for name, bag in block.contexts.items()},
        }
        for block in blocks
    ]
    return {key: int(median(each[key] for each in counts)) for key in counts[0]}
