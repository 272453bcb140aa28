"""The argsort of numpy before 1.25 (`npy_aquicksort`), which defines the paper's test items.

A user's test item is the last in this order of the user's times. The sort is not stable, so the
algorithm decides which of several equal times comes last, and numpy's algorithm depends on the
processor since 1.25. This one is quicksort with the median of three, insertion sort for short
stretches and heapsort where the recursion gets too deep.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# A stretch with at most one element more than this is sorted by insertion, which is stable.
SMALL = 15


@njit(nogil=True, cache=True)
def last_of_each(offsets, times, last, start, stop):
    """last[r] = the place of the last of row r's times, -1 where it has none (compressed rows)."""
    for row in range(start, stop):
        first, end = offsets[row], offsets[row + 1]
        last[row] = -1 if first == end else first + argsort(times[first:end])[-1]


@njit(nogil=True, cache=True)
def argsort(values):
    """(n,) int64: the order that `np.argsort(values)` gave on any processor before numpy 1.25."""
    order = np.arange(values.size)
    if values.size < 2:
        return order
    # Stretches to be sorted later: first, last and how much deeper quicksort may go.
    todo = np.empty((128, 3), np.int64)
    height = 0
    low, high = 0, values.size - 1
    depth = 2 * (_bits(values.size) - 1)
    while True:
        if depth < 0:
            _heapsort(values, order[low : high + 1])
        else:
            while high - low > SMALL:
                middle = _partition(values, order, low, high)
                depth -= 1
                # The larger stretch waits, so that few are waiting.
                if middle - low < high - middle:
                    todo[height, 0], todo[height, 1] = middle + 1, high
                    high = middle - 1
                else:
                    todo[height, 0], todo[height, 1] = low, middle - 1
                    low = middle + 1
                todo[height, 2] = depth
                height += 1
            _insertion(values, order, low, high)
        if height == 0:
            return order
        height -= 1
        low, high, depth = todo[height, 0], todo[height, 1], todo[height, 2]


@njit(nogil=True, cache=True)
def _partition(values, order, low, high):
    """Partition order[low:high + 1] by the median of three; returns the pivot's place."""
    middle = low + ((high - low) >> 1)
    if values[order[middle]] < values[order[low]]:
        _swap(order, middle, low)
    if values[order[high]] < values[order[middle]]:
        _swap(order, high, middle)
    if values[order[middle]] < values[order[low]]:
        _swap(order, middle, low)
    pivot = values[order[middle]]
    i, j = low, high - 1
    _swap(order, middle, j)
    while True:
        i += 1
        while values[order[i]] < pivot:
            i += 1
        j -= 1
        while pivot < values[order[j]]:
            j -= 1
        if i >= j:
            break
        _swap(order, i, j)
    _swap(order, i, high - 1)
    return i


@njit(nogil=True, cache=True)
def _insertion(values, order, low, high):
    for i in range(low + 1, high + 1):
        moved = order[i]
        j = i
        while j > low and values[moved] < values[order[j - 1]]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = moved


@njit(nogil=True, cache=True)
def _heapsort(values, order):
    """`npy_aheapsort`, counted from 1."""
    size = order.size
    for root in range(size >> 1, 0, -1):
        _sink(values, order, root, size)
    while size > 1:
        moved = order[size - 1]
        order[size - 1] = order[0]
        size -= 1
        order[0] = moved
        _sink(values, order, 1, size)


@njit(nogil=True, cache=True)
def _sink(values, order, place, size):
    moved = order[place - 1]
    child = place << 1
    while child <= size:
        if child < size and values[order[child - 1]] < values[order[child]]:
            child += 1
        if not values[moved] < values[order[child - 1]]:
            break
        order[place - 1] = order[child - 1]
        place = child
        child <<= 1
    order[place - 1] = moved


@njit(nogil=True, cache=True)
def _swap(order, i, j):
    order[i], order[j] = order[j], order[i]


@njit(nogil=True, cache=True)
def _bits(n):
    """The number of binary digits of n."""
    bits = 0
    while n > 0:
        bits += 1
        n >>= 1
    return bits
