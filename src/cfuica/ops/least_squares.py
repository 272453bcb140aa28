"""Ridge regressions of many rows at once: the step of alternating least squares.

A row is a user or an item, its regressors are the factors of what it has interacted with. The
normal equations of a row are solved by conjugate gradients from where the row is, so that a few
steps per sweep are enough, and no row needs a matrix of its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE, product


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def solve(offsets, indices, labels, values_k, other_nf, l2_f, steps, out_nf, start, stop):
    """Minimise sum (r - other_bias - x . z)^2 + l2_f . x^2 for each row x, in place.

    r is values_k[label]; z are the factors of the other side with a 1 in front, whose own bias,
    which comes first, is explained already. At most `steps` conjugate gradients.
    """
    features = other_nf.shape[1]
    longest = 0
    for row in range(start, stop):
        longest = max(longest, offsets[row + 1] - offsets[row])
    z_pf = np.empty((longest, features), other_nf.dtype)
    residual_f, direction_f = np.empty((2, features), other_nf.dtype)
    image_f = np.empty(features, other_nf.dtype)
    for row in range(start, stop):
        begin = offsets[row]
        n = offsets[row + 1] - begin
        x_f = out_nf[row]
        if n == 0:
            x_f[:] = 0
            continue
        # The gradient at x: what is left of each rating, times its regressors.
        residual_f[:] = 0
        for p in range(n):
            other_f, z_f = other_nf[indices[begin + p]], z_pf[p]
            for f in range(features):
                z_f[f] = other_f[f]
            left = values_k[labels[begin + p]] - z_f[0]
            z_f[0] = 1
            left -= product(z_f, x_f)
            for f in range(features):
                residual_f[f] += left * z_f[f]
        for f in range(features):
            residual_f[f] -= l2_f[f] * x_f[f]
            direction_f[f] = residual_f[f]
        norm = product(residual_f, residual_f)
        first = norm
        for _ in range(steps):
            if norm <= first * 1e-24 or norm <= 1e-30:
                break
            for f in range(features):
                image_f[f] = l2_f[f] * direction_f[f]
            for p in range(n):
                z_f = z_pf[p]
                along = product(z_f, direction_f)
                for f in range(features):
                    image_f[f] += along * z_f[f]
            size = norm / product(direction_f, image_f)
            for f in range(features):
                x_f[f] += size * direction_f[f]
                residual_f[f] -= size * image_f[f]
            before = norm
            norm = product(residual_f, residual_f)
            for f in range(features):
                direction_f[f] = residual_f[f] + (norm / before) * direction_f[f]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def errors(offsets, indices, labels, values_k, user_nf, item_nf, out_n, start, stop):
    """out[u] = the sum of (r - b_u - b_i - p_u . q_i)^2 over the ratings of each user."""
    for user in range(start, stop):
        total = 0.0
        x_f = user_nf[user]
        for e in range(offsets[user], offsets[user + 1]):
            z_f = item_nf[indices[e]]
            # The first features are the biases, which are added, not multiplied.
            left = values_k[labels[e]] - x_f[0] - z_f[0] - product(x_f, z_f) + x_f[0] * z_f[0]
            total += left * left
        out_n[user] = total
