"""One pass of stochastic gradient descent over triples, for Bayesian personalised ranking."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE, product


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def descend(users_p, items_p, negatives_p, user_uf, item_if, rate, l2):
    """Descend along -log sigmoid(x) + l2 / 2 * |factors|^2 of one triple (user, item, negative)
    after the other, in place, where x is the score of the item less that of the negative; returns
    the sum of the losses without the penalty."""
    total = 0.0
    for p in range(len(users_p)):
        user_f, item_f, other_f = user_uf[users_p[p]], item_if[items_p[p]], item_if[negatives_p[p]]
        x = float(product(user_f, item_f) - product(user_f, other_f))
        # Without overflow for either sign of x.
        small = math.exp(-abs(x))
        total += math.log1p(small) + max(-x, 0.0)
        sigmoid = (small if x > 0 else 1.0) / (1.0 + small)  # of -x
        step = rate * np.float32(sigmoid)
        shrink = rate * l2
        for f in range(len(user_f)):
            u, i, j = user_f[f], item_f[f], other_f[f]
            user_f[f] = u + step * (i - j) - shrink * u
            item_f[f] = i + step * u - shrink * i
            other_f[f] = j - step * u - shrink * j
    return total
