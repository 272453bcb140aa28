"""Several factorisations of one matrix of ratings at once, each weighted around an anchor.

Model l predicts p_ul . q_il, from rows of (U, L, F) and (I, L, F). Its weight for a pair is that of
the user times that of the item, from (U, L) and (I, L). The models of a row stand side by side, so
that all of them are one stretch of memory.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE, product


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def descend(
    users_p, items_p, ratings_p, user_weight_ul, item_weight_il, user_ulf, item_ilf, rate, l2,
    is_joint, start, stop,
):  # fmt: skip
    """Descend along the loss of one rating after the other, by the factors of the models
    start..stop, in place; returns the sum of the losses without the penalty.

    With w the weights of the pair, that is half of

        sum over l of w_l (r - p_l . q_l)^2,      or, if joint,
        (r - sum over l of v_l p_l . q_l)^2       with v = w / sum of w,

    and of l2 * (|p_l|^2 + |q_l|^2) of each model. A joint loss where all weights are 0 is skipped.
    """
    rate, l2 = np.float32(rate), np.float32(l2)
    weight_l, error_l = np.empty(stop, np.float32), np.empty(stop, np.float32)
    total = 0.0
    for p in range(len(users_p)):
        user_lf, item_lf = user_ulf[users_p[p]], item_ilf[items_p[p]]
        user_weight_l, item_weight_l = user_weight_ul[users_p[p]], item_weight_il[items_p[p]]
        rating = np.float32(ratings_p[p])
        for l in range(start, stop):  # noqa: E741
            weight_l[l] = user_weight_l[l] * item_weight_l[l]
            error_l[l] = rating - product(user_lf[l], item_lf[l])
        if is_joint:
            weight, error = np.float32(0.0), np.float32(0.0)
            for l in range(start, stop):  # noqa: E741
                weight += weight_l[l]
                error += weight_l[l] * error_l[l]
            if weight == 0:
                continue
            weight_l[start:stop] /= weight
            error_l[start:stop] = error / weight
            total += (error / weight) ** 2
        for l in range(start, stop):  # noqa: E741
            user_f, item_f = user_lf[l], item_lf[l]
            if not is_joint:
                total += weight_l[l] * error_l[l] ** 2
            step, shrink = rate * weight_l[l] * error_l[l], rate * l2
            for f in range(len(user_f)):
                u, i = user_f[f], item_f[f]
                user_f[f] = u + step * i - shrink * u
                item_f[f] = i + step * u - shrink * i
    return total


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def predict(
    users_p, items_p, user_weight_ul, item_weight_il, user_ulf, item_ilf, fallback, out_p, start,
    stop,
):  # fmt: skip
    """out[p] = the weighted mean of the models' predictions; `fallback` where all weights are 0."""
    for p in range(start, stop):
        user_lf, item_lf = user_ulf[users_p[p]], item_ilf[items_p[p]]
        user_weight_l, item_weight_l = user_weight_ul[users_p[p]], item_weight_il[items_p[p]]
        total, weights = 0.0, 0.0
        for l in range(len(user_lf)):  # noqa: E741
            weight = user_weight_l[l] * item_weight_l[l]
            total += weight * product(user_lf[l], item_lf[l])
            weights += weight
        out_p[p] = total / weights if weights > 0 else fallback
