"""What the compiled CPU kernels share: threads, compiler flags, memory, and facts of the machine.

`run_rows` runs a kernel on all cores. A kernel is a plain loop over the rows `start..stop` of its
*output* that releases the GIL and shares no output row with another call. So the split over threads
cannot change a bit of the result, and no OpenMP threads spin beside torch's own. `reference.py`
defines what each kernel must equal.

Shapes in all kernels: n rows of a side's table, K labels, H hidden units, Q queries (encoded
contexts), P pairs in G groups of equal table row. A table (n, K, H) is also seen as n * K rows.

`empty`, `zeros` and `zeros_like` allocate large tensors by numpy, which asks Linux for huge pages.
Gathering table rows from torch's 4 KB pages takes a tenth of a minibatch longer, and filling a
tensor in torch wakes its OpenMP threads, which then spin beside the kernels.
"""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit
from threadpoolctl import ThreadpoolController
from torch import Tensor

# Several chunks per thread: the other threads do the work of one that lost its core for a while.
CHUNKS_PER_THREAD = 8


def thread_count() -> int:
    """Threads to use: `CFUICA_THREADS`, else the cores this process may run on."""
    setting = os.environ.get("CFUICA_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# So few rows that read so few bytes are done before another thread is awake.
FEW_ROWS, FEW_BYTES = 4096, 4 << 20


def _is_little(rows: int, args: tuple[Any, ...], work: np.ndarray | None) -> bool:
    """Whether the caller's thread alone is about as fast."""
    if rows >= FEW_ROWS:
        return False
    entries = rows if work is None else int(work[-1] - work[0])
    tables = (arg for arg in args if isinstance(arg, np.ndarray) and arg.ndim > 1)
    return entries * max((table.strides[0] for table in tables), default=8) < FEW_BYTES


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="cfuica-kernel")


def _after_fork() -> None:
    """A forked process has none of the threads of its parent: new pools, and torch on one thread,
    because its OpenMP would wait for threads that are gone."""
    _pool.cache_clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run_rows(
    kernel: Callable[..., Any], rows: int, *args: Any, work: np.ndarray | None = None
) -> None:
    """Call `kernel(*args, start, stop)` over `0..rows`, split over the threads.

    `work` is an ascending array of length rows + 1 (compressed row offsets): chunks then carry
    about equal work instead of equal numbers of rows.
    """
    threads = thread_count()
    if threads == 1 or rows < 2 or _is_little(rows, args, work):
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

    For work that accumulates sums, whose order must not depend on the number of threads.
    """
    threads = min(thread_count(), len(lanes))
    if threads == 1:
        return [work(*lane) for lane in lanes]
    return list(_pool(threads).map(lambda lane: work(*lane), lanes))


_thread_pools = cache(ThreadpoolController)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Run every matrix product on the thread that calls it.

    The threads of a BLAS would compete with ours, and their number changes the bits.
    """
    context: AbstractContextManager[Any] = _thread_pools().limit(limits=1, user_api="blas")
    return context


@contextmanager
def quiet_torch_threads() -> Iterator[None]:
    """Keep torch's OpenMP threads from spinning beside ours after every parallel operation.

    They sleep at once where `OMP_WAIT_POLICY` was passive when torch was imported, which `import
    cfuica` sees to where it comes first. Elsewhere torch gets one thread here.
    """
    threads = torch.get_num_threads()
    if threads == 1 or os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _bounds(rows: int, chunks: int, work: np.ndarray | None) -> list[int]:
    if work is None or work[-1] == work[0]:
        edges = np.linspace(0, rows, chunks + 1).astype(np.int64)
    else:
        # Even an empty row takes time, hence the row numbers beside the offsets.
        weight = (work - work[0]) / (work[-1] - work[0]) + np.arange(rows + 1) / rows
        edges = np.searchsorted(weight, np.linspace(0.0, 2.0, chunks + 1))
        edges[0], edges[-1] = 0, rows
    return [int(edge) for edge in np.unique(edges)]


# Sums may be reordered into vector lanes. NaN and infinity keep their meaning, for the trainer must
# see a divergence. error_model="numpy" because Python's check for a zero divisor is a branch, which
# keeps a loop from becoming vector code.
#
# LLVM compiles a loop that writes one array and reads another twice, as vector and as scalar code,
# and chooses at run time: the scalar code runs where one array begins within some 128 bytes behind
# the other, even if they do not overlap. Both have the same bits unless the loop accumulates a sum
# or calls the C library. Such a loop must only read, or write only what it reads (LLVM then tests
# for overlap, and there is none). Otherwise its bits depend on the addresses of the arrays.
VECTORISE = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def share_and_square(grad_kh, share):
    """Reverse cumulative sum over labels in place (if sharing); the squared norm of the result."""
    labels, hidden = grad_kh.shape
    total = 0.0
    for k in range(labels - 1, -1, -1):
        column_h = grad_kh[k]
        if share and k < labels - 1:
            above_h = grad_kh[k + 1]
            for h in range(hidden):
                column_h[h] += above_h[h]
        squares = np.float32(0.0)
        for h in range(hidden):
            squares += column_h[h] * column_h[h]
        total += squares
    return total


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def product(first_h, second_h):
    """The inner product of two vectors."""
    total = np.float32(0.0)
    for h in range(len(first_h)):
        total += first_h[h] * second_h[h]
    return total


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def paired(first_ph, second_ph, out_p, start, stop):
    """out[p] = first[p] . second[p]."""
    for p in range(start, stop):
        out_p[p] = product(first_ph[p], second_ph[p])


def empty(*shape: int) -> Tensor:
    """An uninitialised float32 tensor on the CPU."""
    return torch.from_numpy(np.empty(shape, np.float32))


def zeros(*shape: int) -> Tensor:
    """A float32 tensor of zeros on the CPU, or without memory under `torch.device("meta")`."""
    if torch.get_default_device().type == "meta":
        return torch.zeros(shape)
    return torch.from_numpy(np.zeros(shape, np.float32))


def zeros_like(tensor: Tensor) -> Tensor:
    """Zeros of the tensor's shape and type on its device."""
    if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
        return torch.zeros_like(tensor)
    return zeros(*tensor.shape)


def peak_memory_gb() -> float:
    """The peak memory of this process in GB (0 where the system does not report it)."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not ru_maxrss: on Linux a process inherits that of its parent.
        lines = (line.split() for line in status.read_text("ascii", "replace").splitlines())
        return next((int(line[1]) * 1024 / 1e9 for line in lines if line[:1] == ["VmHWM:"]), 0.0)
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if platform.system() == "Darwin" else 1024) / 1e9


def resident_memory() -> float:
    """The bytes that this process has in memory now (0 where the system does not report it)."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def machine() -> dict[str, str | int]:
    """The processor's name, its cores, and the threads in use."""
    return {"cpu": _cpu_name(), "cores": os.cpu_count() or 1, "threads": thread_count()}


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that a measurement depends on."""
    found = {"python": platform.python_version()}
    for name in ("cfuica", "torch", "numpy", "numba", "polars"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
