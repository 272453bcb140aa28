"""Adam on a table of parameters: one pass over every row, with L2 penalty and label sharing."""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def adam(
    table_nkh, mean_nkh, square_nkh, grad_gkh, group_of_row, share, penalty, scale, limit,
    rate, beta1, beta2, epsilon, squares_n, start, stop,
):  # fmt: skip
    """One exact Adam step on every row, in place, in the form of the published experiments.

    The table holds the columns in use. With label sharing the parameters are their differences over
    labels, which exist only inside this pass. `group_of_row[n]` is the row of `grad_gkh` that
    belongs to table row n, or -1: a row without a gradient still has a penalty and Adam's moments.
    Gradient g = clip(scale * (grad + 2 * penalty * parameter), +-limit), then
    parameter -= rate * m / (sqrt(v) + epsilon) with the bias correction inside `rate`.
    `squares_n[n]` receives the squared norm of the parameters after the step.
    """
    labels = table_nkh.shape[1]
    hidden = table_nkh.shape[2]
    one = np.float32(1.0)
    decay = np.float32(2.0) * penalty
    # The columns below the current one, before and after the step; zero without sharing.
    old_h = np.zeros(hidden, np.float32)
    new_h = np.zeros(hidden, np.float32)
    nothing_h = np.zeros(hidden, np.float32)
    for n in range(start, stop):
        g = group_of_row[n]
        squares = np.float32(0.0)
        old_h[:] = 0.0
        new_h[:] = 0.0
        for k in range(labels):
            column_h = table_nkh[n, k]
            mean_h = mean_nkh[n, k]
            square_h = square_nkh[n, k]
            grad_h = grad_gkh[g, k] if g >= 0 else nothing_h
            for h in range(hidden):
                used = column_h[h]
                w = used - old_h[h]
                d = scale * (grad_h[h] + decay * w)
                d = min(max(d, -limit), limit)
                m = beta1 * mean_h[h] + (one - beta1) * d
                v = beta2 * square_h[h] + (one - beta2) * d * d
                mean_h[h] = m
                square_h[h] = v
                w -= rate * m / (np.sqrt(v) + epsilon)
                squares += w * w
                w += new_h[h]
                column_h[h] = w
                if share:
                    old_h[h] = used
                    new_h[h] = w
        squares_n[n] = squares
