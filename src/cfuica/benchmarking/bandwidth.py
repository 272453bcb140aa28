"""How fast this machine moves memory: the ruler for every part of the step."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numba import njit

from cfuica.kernels.threads import run_rows

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
