"""The cost of each pair's distribution and its slope by the activations."""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def cost(activation_pk, labels_p, ordinal_weight, floor, factor, cost_p, slope_pk, start, stop):
    """cost[p] as `likelihood.mixed_cost`; slope = factor * d cost / d activation. (P), (P, K)."""
    labels = activation_pk.shape[1]
    one = np.float32(1.0)
    softmax_weight = one - ordinal_weight
    p_k = np.empty(labels, np.float32)  # softmax
    q_k = np.empty(labels, np.float32)  # softmax + floor, as the ordinal cost reads it
    down_k = np.empty(labels, np.float32)  # q_k + .. + q_K
    grad_k = np.empty(labels, np.float32)  # d ordinal cost / d q
    for p in range(start, stop):
        true = labels_p[p]
        highest = activation_pk[p, 0]
        for k in range(1, labels):
            highest = max(highest, activation_pk[p, k])
        for k in range(labels):
            p_k[k] = activation_pk[p, k] - highest
        total = np.float32(0.0)
        for k in range(labels):  # apart from the loop above, see VECTORISE
            p_k[k] = np.exp(p_k[k])
            total += p_k[k]
        for k in range(labels):
            p_k[k] /= total
        value = np.float32(0.0)
        for k in range(labels):
            slope_pk[p, k] = np.float32(0.0)
        if softmax_weight > 0:
            value += softmax_weight * (np.log(total) + highest - activation_pk[p, true])
            for k in range(labels):
                slope_pk[p, k] = softmax_weight * (p_k[k] - np.float32(k == true))
        if ordinal_weight > 0:
            value += ordinal_weight * _ordinal(p_k, true, floor, q_k, down_k, grad_k)
            mean = np.float32(0.0)
            for k in range(labels):
                mean += grad_k[k] * p_k[k]
            for k in range(labels):
                slope_pk[p, k] += ordinal_weight * p_k[k] * (grad_k[k] - mean)
        cost_p[p] = value
        for k in range(labels):
            slope_pk[p, k] *= factor


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _ordinal(p_k, true, floor, q_k, down_k, grad_k):
    """The ordinal cost of one pair, and its gradient by q = p + floor in `grad_k`."""
    labels = len(p_k)
    one = np.float32(1.0)
    for k in range(labels):
        q_k[k] = p_k[k] + floor
    down = np.float32(0.0)
    for k in range(labels - 1, -1, -1):
        down += q_k[k]
        down_k[k] = down
    value = np.float32(0.0)
    up = np.float32(0.0)
    for k in range(true + 1):
        up += q_k[k]
        value -= np.log(q_k[k] / up)
        grad_k[k] = up
    # Label k stands in the sums of the labels k..true. Only sums of positive terms: 1 / up may
    # be as large as 1 / floor, and what a subtraction leaves of that has no digits.
    inverse = np.float32(0.0)
    for k in range(true, -1, -1):
        inverse += one / grad_k[k]
        grad_k[k] = inverse - one / q_k[k]
    # Label k stands in the sums of the labels true..k.
    below = grad_k[true]
    inverse = np.float32(0.0)
    for k in range(true, labels):
        value -= np.log(q_k[k] / down_k[k])
        inverse += one / down_k[k]
        grad_k[k] = inverse - one / q_k[k]
    grad_k[true] += below
    return value


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def bernoulli(activation_pk, labels_p, factor, cost_p, slope_pk, start, stop):
    """cost[p] as `likelihood.bernoulli_cost` of the one activation; slope = factor * its slope."""
    one = np.float32(1.0)
    for p in range(start, stop):
        x = activation_pk[p, 0]
        happened = np.float32(labels_p[p])
        small = np.exp(-abs(x))  # never overflows
        cost_p[p] = max(x, np.float32(0.0)) - happened * x + np.log1p(small)
        chance = one / (one + small) if x >= 0 else small / (one + small)
        slope_pk[p, 0] = factor * (chance - happened)
