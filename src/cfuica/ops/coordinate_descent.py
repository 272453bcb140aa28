"""Element-wise least squares over all pairs of users and items: the step of eALS.

A row is a user or an item; z are the factors of the other side. The pairs without an interaction
cost nothing: they enter the equations of all rows by one matrix, which a row scales.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE, product


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def sweep(
    offsets, indices, other_nf, missing_n, gram_ff, scale_n, l2_n, out_nf, loss_n, start, stop
):
    """Minimise for each row x, one number of it after the other, in place,

        sum of (1 - x . z)^2 over its interactions + l2 |x|^2
            + scale * the sum of missing * (x . z)^2 over all others of the other side,

    where `gram_ff` is the sum of missing * z z' over all of that side. loss[row] is the result.
    """
    factors = other_nf.shape[1]
    longest = 0
    for row in range(start, stop):
        longest = max(longest, offsets[row + 1] - offsets[row])
    z_fp = np.empty((factors, longest), np.float32)
    weight_p, predicted_p = np.empty((2, longest), np.float32)
    one = np.float32(1.0)
    for row in range(start, stop):
        begin = offsets[row]
        n = offsets[row + 1] - begin
        x_f, scale, l2 = out_nf[row], scale_n[row], l2_n[row]
        if n == 0:
            x_f[:] = 0
            loss_n[row] = 0
            continue
        for p in range(n):
            other_f = other_nf[indices[begin + p]]
            for f in range(factors):
                z_fp[f, p] = other_f[f]
            # The gram matrix counts every pair as missing, this one too.
            weight_p[p] = one - scale * missing_n[indices[begin + p]]
            predicted_p[p] = product(other_f, x_f)
        for f in range(factors):
            z_p = z_fp[f]
            gradient = -scale * product(gram_ff[f], x_f) - l2 * x_f[f]
            curvature = scale * gram_ff[f, f] + l2
            for p in range(n):
                gradient += (one - weight_p[p] * predicted_p[p]) * z_p[p]
                curvature += weight_p[p] * z_p[p] * z_p[p]
            change = gradient / curvature
            x_f[f] += change
            for p in range(n):
                predicted_p[p] += change * z_p[p]
        loss = float(l2 * product(x_f, x_f))
        for f in range(factors):
            loss += scale * x_f[f] * product(gram_ff[f], x_f)
        for p in range(n):
            loss += one - (one + one - weight_p[p] * predicted_p[p]) * predicted_p[p]
        loss_n[row] = loss
