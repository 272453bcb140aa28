"""Running sums of encoders: updated by one interaction at a time, to the same bits in any order.

A running sum is that of the rows of W in Eqns. (3) and (4), in float64. Its addends are rounded to
multiples of 2^-32. As long as no sum reaches 2^21 every sum is then exact, whatever was added and
subtracted before, in whatever order. `residuals` predicts each interaction of a history from the
others, for the bias of cold-start users. `products` and `chosen` are inner products whose
bits depend on the two vectors alone, unlike those of a BLAS.

Row r of a pool holds the entries `starts[r] : starts[r] + lengths[r]` of `indices` (ascending) and
`labels`. Shapes as in `runtime.py`; `rows_rh` is W (n, K, H) seen as n * K rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.encode import apply_f
from cfuica.ops.runtime import VECTORISE, product

STEPS_PER_UNIT = 2.0**32
STEP = 2.0**-32


@njit(inline="always")
def _steps(weight):
    """A weight as a whole number of steps."""
    return np.rint(np.float64(weight) * STEPS_PER_UNIT)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def fill(
    rows_rh, starts, lengths, indices, labels, row_of_entry, n_labels, queries, places, sums_qh,
    start, stop,
):  # fmt: skip
    """sums[places[i]] = the sum of the rows of W of all interactions of queries[i]."""
    hidden = sums_qh.shape[1]
    for i in range(start, stop):
        sums_h = sums_qh[places[i]]
        sums_h[:] = 0.0
        e = starts[queries[i]]
        end = e + lengths[queries[i]]
        # Two rows at a time halve the traffic on the accumulator.
        while e + 1 < end:
            first_h = rows_rh[row_of_entry[indices[e]] * n_labels + labels[e]]
            second_h = rows_rh[row_of_entry[indices[e + 1]] * n_labels + labels[e + 1]]
            for h in range(hidden):
                sums_h[h] += _steps(first_h[h]) + _steps(second_h[h])
            e += 2
        if e < end:
            first_h = rows_rh[row_of_entry[indices[e]] * n_labels + labels[e]]
            for h in range(hidden):
                sums_h[h] += _steps(first_h[h])
        for h in range(hidden):
            sums_h[h] *= STEP


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def shift(rows_rh, sums_h, taken_out, put_in):
    """Subtract one row of W from a sum and add another, in place (-1: none)."""
    if taken_out >= 0:
        row_h = rows_rh[taken_out]
        for h in range(len(sums_h)):
            sums_h[h] -= _steps(row_h[h]) * STEP
    if put_in >= 0:
        row_h = rows_rh[put_in]
        for h in range(len(sums_h)):
            sums_h[h] += _steps(row_h[h]) * STEP


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def read(rows_rh, sums_qh, places, left_out, norms, out_qh, start, stop):
    """out[i] = norm[i] * (sums[places[i]] - row left_out[i] of W (-1: none)), float32.

    Everything that a network reads of running sums comes from here, so that equal sums give equal
    bits.
    """
    hidden = sums_qh.shape[1]
    rest_h = np.empty(hidden, np.float64)
    for i in range(start, stop):
        rest_h[:] = sums_qh[places[i]]
        if left_out[i] >= 0:
            row_h = rows_rh[left_out[i]]
            for h in range(hidden):
                rest_h[h] -= _steps(row_h[h]) * STEP
        norm = np.float64(norms[i])
        for h in range(hidden):
            out_qh[i, h] = np.float32(norm * rest_h[h])


@njit(nogil=True, cache=True)
def find(starts, lengths, indices, rows_p, wanted_p):
    """The entry of index wanted[p] in row rows[p] for each pair, or -1; (P) int64."""
    entry_p = np.full(len(rows_p), -1, np.int64)
    for p in range(len(rows_p)):
        low = starts[rows_p[p]]
        end = low + lengths[rows_p[p]]
        high = end
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < wanted_p[p]:
                low = middle + 1
            else:
                high = middle
        if low < end and indices[low] == wanted_p[p]:
            entry_p[p] = low
    return entry_p


@njit(nogil=True, cache=True)
def repack(starts, lengths, indices, labels, new_starts, new_indices, new_labels):
    """Copy every row to its new start in another pool."""
    for row in range(len(starts)):
        old = starts[row]
        new = new_starts[row]
        for e in range(lengths[row]):
            new_indices[new + e] = indices[old + e]
            new_labels[new + e] = labels[old + e]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def residuals(
    rows_rh, bias_h, sums_rh, removed_r, length_norm_r, entries_n, labels_n, decoder_nkh, base_nk,
    place_k, activation, surplus_r, variance_r, start, stop,
):  # fmt: skip
    """For each of R versions of a history of n interactions: the sum of the residuals (observed
    less expected rating) and the sum of the predicted variances.

    Each interaction is predicted from the others. Version r is without interaction removed[r] (-1:
    whole). `sums_rh` are its float64 sums, and length_norm_r[r] is the factor of a sum of one
    interaction less. entries (n) are rows of W, decoder_nkh and base_nk the decoder of each
    interaction's item, place_k the labels' places from -1 to 1.
    """
    n, labels, hidden = decoder_nkh.shape
    single_h = np.empty(hidden, np.float32)
    values_h = np.empty(hidden, np.float32)
    p_k = np.empty(labels, np.float32)
    for r in range(start, stop):
        sums_h = sums_rh[r]
        length_norm = np.float64(length_norm_r[r])
        surplus = 0.0
        variance = 0.0
        for i in range(n):
            if i == removed_r[r]:
                continue
            row_h = rows_rh[entries_n[i]]
            for h in range(hidden):
                rest = sums_h[h] - _steps(row_h[h]) * STEP
                single_h[h] = np.float32(bias_h[h] + length_norm * rest)
            apply_f(single_h, values_h, activation)
            highest = np.float32(-np.inf)
            for k in range(labels):
                column_h = decoder_nkh[i, k]
                total = base_nk[i, k]
                for h in range(hidden):
                    total += values_h[h] * column_h[h]
                p_k[k] = total
                highest = max(highest, total)
            total = np.float32(0.0)
            mean = np.float32(0.0)
            square = np.float32(0.0)
            for k in range(labels):
                p = np.exp(p_k[k] - highest)
                total += p
                mean += p * place_k[k]
                square += p * place_k[k] * place_k[k]
            mean /= total
            surplus += place_k[labels_n[i]] - mean
            variance += square / total - mean * mean
        surplus_r[r] = surplus
        variance_r[r] = variance


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def products(vectors_mh, query_bh, out_mb, start, stop):
    """out[m, b] = vectors[m] . query[b], with bits that do not depend on the other queries."""
    for m in range(start, stop):
        for b in range(query_bh.shape[0]):
            out_mb[m, b] = product(vectors_mh[m], query_bh[b])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def chosen(vectors_mh, indices_bc, query_bh, out_bc, start, stop):
    """out[b, c] = vectors[indices[b, c]] . query[b], without a copy of the vectors."""
    for b in range(start, stop):
        for c in range(indices_bc.shape[1]):
            out_bc[b, c] = product(vectors_mh[indices_bc[b, c]], query_bh[b])
