"""Decoders, Eqns. (5) and (6): logits from hidden vectors, and the gradients of V, b and h.

`bilinear` computes the rows of V of the bilinear interaction from hidden vectors, `residual_layer`
the input of the decoder from hidden vectors.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.encode import SIGMOID, TANH
from cfuica.ops.runtime import VECTORISE, share_and_square


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def decode(
    table_nkh, bias_nk, indices, offsets, order, query_of_pair, hidden_qh, out_pk, start, stop
):
    """out[p, k] += V[row, k] . h[query] + b[row, k] (Eqns. 5, 6), pairs grouped by row."""
    labels = table_nkh.shape[1]
    hidden = table_nkh.shape[2]
    for g in range(start, stop):
        row = indices[g]
        for e in range(offsets[g], offsets[g + 1]):
            p = order[e]
            hidden_h = hidden_qh[query_of_pair[p]]
            k = 0
            while k + 1 < labels:  # two labels share each load of the hidden vector
                first_h = table_nkh[row, k]
                second_h = table_nkh[row, k + 1]
                first = np.float32(0.0)
                second = np.float32(0.0)
                for h in range(hidden):
                    first += first_h[h] * hidden_h[h]
                    second += second_h[h] * hidden_h[h]
                out_pk[p, k] += first + bias_nk[row, k]
                out_pk[p, k + 1] += second + bias_nk[row, k + 1]
                k += 2
            if k < labels:
                first_h = table_nkh[row, k]
                first = np.float32(0.0)
                for h in range(hidden):
                    first += first_h[h] * hidden_h[h]
                out_pk[p, k] += first + bias_nk[row, k]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def decode_backward_rows(
    grad_pk, hidden_qh, offsets, order, query_of_pair, share, grad_gkh, grad_b_gk, squares_g,
    start, stop,
):  # fmt: skip
    """Gradients of V and b for the table row of each group, and their squared norms.

    With label sharing the gradient is that of the stored columns: the reverse cumulative sum
    over labels of the gradient of the columns in use.
    """
    labels = grad_gkh.shape[1]
    hidden = grad_gkh.shape[2]
    for g in range(start, stop):
        grad_kh = grad_gkh[g]
        grad_kh[:] = 0.0
        grad_b_gk[g, :] = 0.0
        e = offsets[g]
        end = offsets[g + 1]
        while e + 1 < end:  # two pairs share each load and store of the gradient
            first_h = hidden_qh[query_of_pair[order[e]]]
            second_h = hidden_qh[query_of_pair[order[e + 1]]]
            for k in range(labels):
                first = grad_pk[order[e], k]
                second = grad_pk[order[e + 1], k]
                grad_b_gk[g, k] += first + second
                column_h = grad_kh[k]
                for h in range(hidden):
                    column_h[h] += first * first_h[h] + second * second_h[h]
            e += 2
        if e < end:
            first_h = hidden_qh[query_of_pair[order[e]]]
            for k in range(labels):
                first = grad_pk[order[e], k]
                grad_b_gk[g, k] += first
                column_h = grad_kh[k]
                for h in range(hidden):
                    column_h[h] += first * first_h[h]
        squares_g[g] = 0.0
        if offsets[g] == offsets[g + 1]:
            continue
        for k in range(labels - 1, -1, -1):
            if share and k < labels - 1:
                grad_b_gk[g, k] += grad_b_gk[g, k + 1]
            squares_g[g] += np.float64(grad_b_gk[g, k]) ** 2
        squares_g[g] += share_and_square(grad_kh, share)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def decode_backward_queries(
    grad_pk, table_nkh, offsets, order, row_of_pair, sums_qh, hidden_qh, keep_qh, bias_h,
    activation, grad_qh, inner_q, start, stop,
):  # fmt: skip
    """Gradient of the loss by each query's sums (the input of f), pairs grouped by query.

    `keep_qh` is the dropout mask of f of the sums, `hidden_qh`; empty without dropout.

    `inner_q` receives the query's share of <dV, V> + <dW, W>: the gradient by h times h, plus the
    gradient by the sums times the sums without c. The tables are a thousand times larger, so the
    norm of the whole gradient, penalty included, comes at no expense.
    """
    labels = table_nkh.shape[1]
    hidden = table_nkh.shape[2]
    for q in range(start, stop):
        grad_h = grad_qh[q]
        grad_h[:] = 0.0
        for e in range(offsets[q], offsets[q + 1]):
            p = order[e]
            row = row_of_pair[p]
            k = 0
            while k + 1 < labels:
                first = grad_pk[p, k]
                second = grad_pk[p, k + 1]
                first_h = table_nkh[row, k]
                second_h = table_nkh[row, k + 1]
                for h in range(hidden):
                    grad_h[h] += first * first_h[h] + second * second_h[h]
                k += 2
            if k < labels:
                first = grad_pk[p, k]
                first_h = table_nkh[row, k]
                for h in range(hidden):
                    grad_h[h] += first * first_h[h]
        if keep_qh.shape[0] > 0:
            for h in range(hidden):
                grad_h[h] *= keep_qh[q, h]
        inner = np.float32(0.0)
        for h in range(hidden):
            y = hidden_qh[q, h]
            if activation == TANH:
                grad = np.float32(1.0) - y * y
            elif activation == SIGMOID:
                grad = y * (np.float32(1.0) - y)
            else:
                grad = np.float32(y > 0)
            inner += grad_h[h] * y
            grad_h[h] *= grad
            inner += grad_h[h] * (sums_qh[q, h] - bias_h[h])
        inner_q[q] = inner


# Rows of A that are read for every query before the next ones, so that they stay in the cache.
_ROWS = 16


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def bilinear(hidden_qh, bilinear_hku, out_qku, start, stop):
    """out[q, k] = the sum over h of hidden[q, h] * A[h, k]."""
    hidden, labels, units = bilinear_hku.shape
    out_qku[start:stop] = 0.0
    for low in range(0, hidden, _ROWS):
        high = min(low + _ROWS, hidden)
        for q in range(start, stop):
            for k in range(labels):
                out_u = out_qku[q, k]
                h = low
                while h + 1 < high:  # two rows share each load and store of the output
                    first = hidden_qh[q, h]
                    second = hidden_qh[q, h + 1]
                    first_u = bilinear_hku[h, k]
                    second_u = bilinear_hku[h + 1, k]
                    for u in range(units):
                        out_u[u] += first * first_u[u] + second * second_u[u]
                    h += 2
                if h < high:
                    first = hidden_qh[q, h]
                    first_u = bilinear_hku[h, k]
                    for u in range(units):
                        out_u[u] += first * first_u[u]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def residual_layer(hidden_qh, into_hu, bias_u, back_uh, out_qh, start, stop):
    """out[q] = h + relu(h into + bias) back; the bits of a row depend on that row alone."""
    hidden, units = into_hu.shape
    inner_u = np.empty(units, np.float32)
    for q in range(start, stop):
        inner_u[:] = bias_u
        for h in range(hidden):
            _add_times(inner_u, hidden_qh[q, h], into_hu[h])
        out_qh[q] = hidden_qh[q]
        for u in range(units):
            if inner_u[u] > 0:
                _add_times(out_qh[q], inner_u[u], back_uh[u])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _add_times(sum_h, by, row_h):
    for h in range(len(sum_h)):
        sum_h[h] += by * row_h[h]
