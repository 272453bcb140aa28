"""`cfuica bench step`: one training minibatch, beside the same minibatch in dense torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from cfuica.benchmarking.bandwidth import memory_bandwidth
from cfuica.benchmarking.dense import DenseAuthors, DenseBest
from cfuica.benchmarking.machine import machine, versions
from cfuica.benchmarking.parts import PARTS, least_bytes, timed_kernels
from cfuica.data.matrix import BehaviourMatrix
from cfuica.kernels.threads import thread_count
from cfuica.learning.block import Block
from cfuica.learning.estimator import make_estimator
from cfuica.learning.gradients import GradientBuffers, block_cost_and_gradients
from cfuica.learning.optimiser import Adam
from cfuica.learning.prefetch import Prefetcher
from cfuica.learning.rating import cost_factor, new_model
from cfuica.settings import Settings

# Steps before the clock counts: compiled kernels are loaded, memory is touched once.
WARM_UP = 3
DENSE_WARM_UP = 1

Log = Callable[[str], None]


@dataclass(frozen=True)
class StepBench:
    """Medians of one run. Seconds, except where said.

    `median_s`: a step as the trainer takes it, the next block drawn in the background.
    `parts`: the same step, one part after the other: `draw` is then in the foreground, so the
    parts add up to somewhat more than `median_s`. `bandwidth_share`: the bytes each part has to
    move (`parts.least_bytes`) per second, as a share of `memory_bandwidth_gb_s`.
    """

    median_s: float
    dense_median_s: float
    dense_best_median_s: float
    parts: dict[str, float]
    bandwidth_share: dict[str, float]
    memory_bandwidth_gb_s: float
    block: dict[str, int]
    hidden: dict[str, int]
    labels: int
    parameters: int
    repeats: int
    dense_repeats: int
    machine: dict[str, str | int]
    versions: dict[str, str]

    @property
    def speedup(self) -> float:
        """How many of our steps fit into one of the authors' dense form."""
        return self.dense_median_s / self.median_s

    @property
    def speedup_best(self) -> float:
        """How many of our steps fit into one of the best dense form."""
        return self.dense_best_median_s / self.median_s

    def as_json(self) -> dict[str, Any]:
        """Every figure, ready for `json.dumps`."""
        return {"speedup": self.speedup, "speedup_best": self.speedup_best, **asdict(self)}


def bench_step(
    matrix: BehaviourMatrix,
    settings: Settings,
    *,
    repeats: int = 30,
    dense_repeats: int = 3,
    log: Log = lambda line: None,
) -> StepBench:
    """Measure a training step on `matrix`, all forms in one run and on the same blocks."""
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
    return StepBench(
        median_s=median(seconds),
        dense_median_s=dense,
        dense_best_median_s=best,
        parts=parts,
        bandwidth_share=shares,
        memory_bandwidth_gb_s=bandwidth / 1e9,
        block=_describe(blocks),
        hidden={name: units[name] for name in blocks[0].contexts},
        labels=matrix.n_labels,
        parameters=parameters,
        repeats=repeats,
        dense_repeats=len(typical),
        machine=machine(),
        versions=versions(),
    )


class _Ours:
    """The trainer's step without its schedule: same functions, same order."""

    def __init__(self, matrix: BehaviourMatrix, settings: Settings) -> None:
        self.matrix, self.settings = matrix, settings
        self.model = new_model(matrix, settings)
        self.estimator = make_estimator(matrix, settings)
        self._optimiser = Adam(self.model, settings)
        self._buffers = GradientBuffers()

    def step(self, block: Block) -> None:
        """Forward, backward, update."""
        settings = self.settings
        _, gradients = block_cost_and_gradients(
            self.model,
            block,
            factor=cost_factor(block, self.matrix, settings),
            ordinal_weight=settings.ordinal_weight,
            share=settings.share_labels,
            buffers=self._buffers,
        )
        self._optimiser.step(gradients, settings.learning_rate)


def _time_ours(
    matrix: BehaviourMatrix, settings: Settings, repeats: int
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
    matrix: BehaviourMatrix, settings: Settings, repeats: int, bandwidth: float
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
    matrix: BehaviourMatrix,
    settings: Settings,
    blocks: list[Block],
) -> list[float]:
    """Seconds of each block's step in a dense form; the blocks are drawn already."""
    dense = form(new_model(matrix, settings), settings)
    seconds = []
    with _torch_threads(thread_count()):
        for block in [blocks[0]] * DENSE_WARM_UP + blocks:
            factor = cost_factor(block, matrix, settings)
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
            "users": len(block.pairs.users.members),
            "items": len(block.pairs.items.members),
            "pairs": block.pairs.size,
        }
        for name, context in block.contexts.items():
            counts[f"context_entries_{name}"] = len(context.bag.entries)
        for key, count in counts.items():
            found.setdefault(key, []).append(count)
    return {key: int(median(counts)) for key, counts in found.items()}
