"""Run a row-range loop on all cores.

The CPU kernels are plain loops over rows `start..stop` that release the GIL. Each row of their
output belongs to one call, so how the rows are dealt to threads cannot change a single bit of
the result; and no OpenMP runtime is involved, so nothing spins beside torch's own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Several chunks per thread: a thread that lost its core for a while hands work to the others.
CHUNKS_PER_THREAD = 8


def thread_count() -> int:
    """Threads to use: `CFUICA_THREADS`, else the cores this process may run on."""
    asked = os.environ.get("CFUICA_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="cfuica-kernel")


def run_rows(
    kernel: Callable[..., Any], rows: int, *args: Any, work: np.ndarray | None = None
) -> None:
    """Call `kernel(*args, start, stop)` over `0..rows`, split over the threads.

    `work` is an ascending array of length rows + 1 (compressed row offsets): chunks then carry
    about equal work instead of equal numbers of rows.
    """
    threads = thread_count()
    if threads == 1 or rows < 2:
        kernel(*args, 0, rows)
        return
    bounds = _bounds(rows, threads * CHUNKS_PER_THREAD, work)
    chunk_number = itertools.count()  # next() is atomic under the GIL

    def worker() -> None:
        while (chunk := next(chunk_number)) < len(bounds) - 1:
            kernel(*args, bounds[chunk], bounds[chunk + 1])

    others = [_pool(threads - 1).submit(worker) for _ in range(threads - 1)]
    worker()
    for other in others:
        other.result()


def run_lanes(work: Callable[..., Any], lanes: list[tuple[Any, ...]]) -> list[Any]:
    """The results of `work(*lane)` for each lane, in order, computed on the threads.

    For work that adds up results of its own, so that it is not split by the number of threads.
    """
    threads = min(thread_count(), len(lanes))
    if threads == 1:
        return [work(*lane) for lane in lanes]
    return list(_pool(threads).map(lambda lane: work(*lane), lanes))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Let every matrix product run on the thread that asks for it.

    A library's own threads would compete with ours, and how many they are changes the bits.
    """
    context: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return context


def _bounds(rows: int, chunks: int, work: np.ndarray | None) -> list[int]:
    if work is None or work[-1] == work[0]:
        edges = np.linspace(0, rows, chunks + 1).astype(np.int64)
    else:
        # Every row costs something even when empty, hence the rows beside the offsets.
        cost = (work - work[0]) / (work[-1] - work[0]) + np.arange(rows + 1) / rows
        edges = np.searchsorted(cost, np.linspace(0.0, 2.0, chunks + 1))
        edges[0], edges[-1] = 0, rows
    return [int(edge) for edge in np.unique(edges)]
