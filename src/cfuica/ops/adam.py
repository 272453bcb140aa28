"""Adam on a table of parameters: one pass over every row, with L2 penalty and label sharing."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from cfuica.ops import reference
from cfuica.ops.runtime import VECTORISE, run_rows
from cfuica.ops.tables import RowGradient, uses_reference


def adam_step(
    table_nkh: Tensor,
    mean_nkh: Tensor,
    square_nkh: Tensor,
    gradient: RowGradient | None,
    *,
    share: bool,
    penalty: float,
    scale: float,
    limit: float,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> float:
    """One Adam step on every row of a table and its moments, in place; returns the squared norm of
    the stored parameters after it.

    The gradient is clip(scale * (gradient + 2 * penalty * parameter), +-limit); a row without one
    still has a penalty and moments.
    """
    rows = len(table_nkh)
    if uses_reference(table_nkh):
        stored = reference.differences(table_nkh) if share else table_nkh
        grad = 2 * penalty * stored
        if gradient is not None and gradient.rows is None:
            grad = grad + gradient.values
        elif gradient is not None:
            index = torch.from_numpy(gradient.rows).to(table_nkh.device, torch.int64)
            grad = grad.index_add(0, index, gradient.values)
        grad = (scale * grad).clamp_(-limit, limit)
        stored = reference.adam(
            stored, mean_nkh, square_nkh, grad, rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon
        )
        table_nkh.copy_(reference.accumulate(stored) if share else stored)
        return float(stored.double().square().sum())
    if gradient is None:
        group_of_row = np.full(rows, -1, np.int32)
        values = np.empty((0, *table_nkh.shape[1:]), np.float32)
    else:
        values = gradient.values.numpy()
        group_of_row = np.arange(rows, dtype=np.int32)
        if gradient.rows is not None:
            group_of_row[:] = -1
            group_of_row[gradient.rows] = np.arange(len(gradient.rows), dtype=np.int32)
    squares_n = np.empty(rows)
    numbers = (np.float32(x) for x in (penalty, scale, limit, rate, beta1, beta2, epsilon))
    run_rows(
        _adam_rows, rows, table_nkh.numpy(), mean_nkh.numpy(), square_nkh.numpy(), values,
        group_of_row, share, *numbers, squares_n,
    )  # fmt: skip
    return float(squares_n.sum())


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _adam_rows(
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
