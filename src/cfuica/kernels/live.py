"""Running sums and the rows they are made of.

Rows of a pool: row r holds entries `starts[r] : starts[r] + lengths[r]` of `members` (ascending)
and `labels`. Shapes as in `compiled.py`; `rows_rh` is W seen as n * K rows.

Addends of a sum are rounded to multiples of 2^-32. As long as no sum reaches 2^21 each is then a
float64 exactly, whatever was added and taken out before it, in whatever order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE
from cfuica.kernels.encode import activate

STEPS_PER_UNIT = 2.0**32
STEP = 2.0**-32


@njit(inline="always")
def _steps(weight):
    """A weight as a whole number of steps."""
    return np.rint(np.float64(weight) * STEPS_PER_UNIT)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def fill(
    rows_rh, bias_h, starts, lengths, members, labels, row_of_member, n_labels, queries, places,
    sums_qh, start, stop,
):  # fmt: skip
    """sums[places[i]] = c + the rows of W of all behaviours of queries[i], in float64."""
    hidden = sums_qh.shape[1]
    for i in range(start, stop):
        sums_h = sums_qh[places[i]]
        for h in range(hidden):
            sums_h[h] = _steps(bias_h[h])
        e = starts[queries[i]]
        end = e + lengths[queries[i]]
        # Two rows at a time halve the traffic on the accumulator.
        while e + 1 < end:
            first_h = rows_rh[row_of_member[members[e]] * n_labels + labels[e]]
            second_h = rows_rh[row_of_member[members[e + 1]] * n_labels + labels[e + 1]]
            for h in range(hidden):
                sums_h[h] += _steps(first_h[h]) + _steps(second_h[h])
            e += 2
        if e < end:
            first_h = rows_rh[row_of_member[members[e]] * n_labels + labels[e]]
            for h in range(hidden):
                sums_h[h] += _steps(first_h[h])
        for h in range(hidden):
            sums_h[h] *= STEP


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def shift(rows_rh, sums_h, taken_out, put_in):
    """Take one row of W out of a sum and put another in, in place (-1: none)."""
    if taken_out >= 0:
        row_h = rows_rh[taken_out]
        for h in range(len(sums_h)):
            sums_h[h] -= _steps(row_h[h]) * STEP
    if put_in >= 0:
        row_h = rows_rh[put_in]
        for h in range(len(sums_h)):
            sums_h[h] += _steps(row_h[h]) * STEP


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def hidden_vectors(
    rows_rh, bias_h, sums_qh, places, left_out, gains, activation, hidden_qh, start, stop
):
    """hidden[i] = f(c + gains[i] * (sums[places[i]] - c - the row left_out[i] of W (-1: none))).

    The one place that makes hidden vectors of sums, so that equal sums give equal bits.
    """
    hidden = sums_qh.shape[1]
    rest_h = np.empty(hidden, np.float64)
    # f reads one array and writes another: LLVM makes no vector code of a loop in place.
    single_h = np.empty(hidden, np.float32)
    for i in range(start, stop):
        rest_h[:] = sums_qh[places[i]]
        if left_out[i] >= 0:
            row_h = rows_rh[left_out[i]]
            for h in range(hidden):
                rest_h[h] -= _steps(row_h[h]) * STEP
        if gains[i] != 1:
            gain = np.float64(gains[i])
            for h in range(hidden):
                rest_h[h] = bias_h[h] + gain * (rest_h[h] - bias_h[h])
        for h in range(hidden):
            single_h[h] = np.float32(rest_h[h])
        activate(single_h, hidden_qh[i], activation)


@njit(nogil=True, cache=True)
def find(starts, lengths, members, rows_p, wanted_p):
    """The entry of member wanted[p] in row rows[p] for each pair, or -1; (P) int64."""
    entry_p = np.full(len(rows_p), -1, np.int64)
    for p in range(len(rows_p)):
        low = starts[rows_p[p]]
        end = low + lengths[rows_p[p]]
        high = end
        while low < high:
            middle = (low + high) // 2
            if members[middle] < wanted_p[p]:
                low = middle + 1
            else:
                high = middle
        if low < end and members[low] == wanted_p[p]:
            entry_p[p] = low
    return entry_p


@njit(nogil=True, cache=True)
def repack(starts, lengths, members, labels, new_starts, new_members, new_labels):
    """Copy every row to its new start in another pool."""
    for row in range(len(starts)):
        old = starts[row]
        new = new_starts[row]
        for e in range(lengths[row]):
            new_members[new + e] = members[old + e]
            new_labels[new + e] = labels[old + e]
