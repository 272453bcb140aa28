"""Eqns. (3) and (4): from contexts to hidden vectors, and the gradient of W."""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE, share_and_square

TANH, SIGMOID, RELU = 0, 1, 2


# Lambert's continued fraction for tanh, cut after nine terms: x * NUMERATOR / DENOMINATOR in x^2.
# Below 4.5 its error is under float32's; twice that range comes from tanh 2x = 2t / (1 + t^2).
# Written out because LLVM turns it into vector code, and a call of the C library it does not.
_RANGE = np.float32(4.5)


@njit(inline="always")
def _tanh(x):
    half = min(max(np.float32(0.5) * x, -_RANGE), _RANGE)
    s = half * half
    numerator = np.float32(34459425) + s * (
        np.float32(4729725) + s * (np.float32(135135) + s * (np.float32(990) + s))
    )
    denominator = np.float32(34459425) + s * (
        np.float32(16216200)
        + s * (np.float32(945945) + s * (np.float32(13860) + s * np.float32(45)))
    )
    t = half * numerator / denominator
    return (t + t) / (np.float32(1) + t * t)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def activate(sums_h, hidden_h, activation):
    """hidden = f(sums)."""
    if activation == TANH:
        for h in range(len(sums_h)):
            hidden_h[h] = _tanh(sums_h[h])
    elif activation == SIGMOID:
        for h in range(len(sums_h)):
            # sigmoid(x) = (1 + tanh(x / 2)) / 2
            hidden_h[h] = np.float32(0.5) + np.float32(0.5) * _tanh(np.float32(0.5) * sums_h[h])
    else:
        for h in range(len(sums_h)):
            hidden_h[h] = max(sums_h[h], np.float32(0))


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def encode(rows_rh, offsets, entries, bias_h, gain_q, activation, sums_qh, hidden_qh, start, stop):
    """sums[q] = c + gain[q] * the table rows that `entries` lists for q, hidden[q] = f(sums[q])."""
    hidden = sums_qh.shape[1]
    for q in range(start, stop):
        sums_h = sums_qh[q]
        gain = gain_q[q]
        # Without a gain c comes first: the rounding of a sum depends on its order.
        for h in range(hidden):
            sums_h[h] = bias_h[h] if gain == 1 else np.float32(0)
        e = offsets[q]
        end = offsets[q + 1]
        # Two rows at a time halve the traffic on the accumulator.
        while e + 1 < end:
            first_h = rows_rh[entries[e]]
            second_h = rows_rh[entries[e + 1]]
            for h in range(hidden):
                sums_h[h] += first_h[h] + second_h[h]
            e += 2
        if e < end:
            first_h = rows_rh[entries[e]]
            for h in range(hidden):
                sums_h[h] += first_h[h]
        if gain != 1:
            for h in range(hidden):
                sums_h[h] = bias_h[h] + gain * sums_h[h]
        activate(sums_h, hidden_qh[q], activation)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def encode_backward(slope_qh, offsets_r, queries, share, grad_nkh, squares_n, start, stop):
    """Gradient of W: each row sums the slopes of the queries it was a context of.

    `offsets_r` (n*K + 1) and `queries` are the transpose of what `encode` reads. With label
    sharing the result is the gradient of the stored columns.
    """
    labels = grad_nkh.shape[1]
    hidden = grad_nkh.shape[2]
    for n in range(start, stop):
        grad_kh = grad_nkh[n]
        for k in range(labels):
            column_h = grad_kh[k]
            e = offsets_r[n * labels + k]
            end = offsets_r[n * labels + k + 1]
            if e == end:
                column_h[:] = 0.0
                continue
            first_h = slope_qh[queries[e]]
            for h in range(hidden):
                column_h[h] = first_h[h]
            e += 1
            while e + 1 < end:
                first_h = slope_qh[queries[e]]
                second_h = slope_qh[queries[e + 1]]
                for h in range(hidden):
                    column_h[h] += first_h[h] + second_h[h]
                e += 2
            if e < end:
                first_h = slope_qh[queries[e]]
                for h in range(hidden):
                    column_h[h] += first_h[h]
        squares_n[n] = 0.0
        if offsets_r[n * labels] != offsets_r[(n + 1) * labels]:
            squares_n[n] = share_and_square(grad_kh, share)
