"""One pass of stochastic gradient descent over ratings, for biased matrix factorisation."""

from __future__ import annotations

from numba import njit

from cfuica.ops.runtime import VECTORISE, product


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def descend(users_p, items_p, ratings_p, user_uf, item_if, bias_u, bias_i, rate, l2):
    """Descend along 1/2 (r - b_u - b_i - p_u . q_i)^2 + l2 / 2 * (b_u^2 + b_i^2 + |p_u|^2 +
    |q_i|^2) of one rating after the other, in place; returns the sum of the squared errors."""
    total = 0.0
    for p in range(len(users_p)):
        user, item = users_p[p], items_p[p]
        user_f, item_f = user_uf[user], item_if[item]
        error = ratings_p[p] - bias_u[user] - bias_i[item] - product(user_f, item_f)
        total += float(error * error)
        step, shrink = rate * error, rate * l2
        bias_u[user] += step - shrink * bias_u[user]
        bias_i[item] += step - shrink * bias_i[item]
        for f in range(len(user_f)):
            u, i = user_f[f], item_f[f]
            user_f[f] = u + step * i - shrink * u
            item_f[f] = i + step * u - shrink * i
    return total
