"""Losses and their gradients by the logits: of rated pairs, of implicit pairs, of a catalogue.

`rating_loss` mixes the softmax and the ordinal loss over K labels, `bernoulli` is the loss of one
logit a pair. `softmax_gradients` is the softmax over all items: it turns each query's logits into
gradients in place.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def rating_loss(logits_pk, labels_p, ordinal_weight, floor, factor, loss_p, grad_pk, start, stop):
    """loss[p] as in `reference.mixed_loss`, (P); grad = factor * d loss / d logits, (P, K)."""
    labels = logits_pk.shape[1]
    one = np.float32(1.0)
    softmax_weight = one - ordinal_weight
    p_k = np.empty(labels, np.float32)  # softmax
    q_k = np.empty(labels, np.float32)  # softmax + floor, for the ordinal loss
    down_k = np.empty(labels, np.float32)  # q_k + .. + q_K
    grad_k = np.empty(labels, np.float32)  # d ordinal loss / d q
    for p in range(start, stop):
        true = labels_p[p]
        highest = logits_pk[p, 0]
        for k in range(1, labels):
            highest = max(highest, logits_pk[p, k])
        for k in range(labels):
            p_k[k] = logits_pk[p, k] - highest
        total = np.float32(0.0)
        for k in range(labels):  # apart from the loop above, see VECTORISE
            p_k[k] = np.exp(p_k[k])
            total += p_k[k]
        for k in range(labels):
            p_k[k] /= total
        value = np.float32(0.0)
        for k in range(labels):
            grad_pk[p, k] = np.float32(0.0)
        if softmax_weight > 0:
            value += softmax_weight * (np.log(total) + highest - logits_pk[p, true])
            for k in range(labels):
                grad_pk[p, k] = softmax_weight * (p_k[k] - np.float32(k == true))
        if ordinal_weight > 0:
            value += ordinal_weight * _ordinal(p_k, true, floor, q_k, down_k, grad_k)
            mean = np.float32(0.0)
            for k in range(labels):
                mean += grad_k[k] * p_k[k]
            for k in range(labels):
                grad_pk[p, k] += ordinal_weight * p_k[k] * (grad_k[k] - mean)
        loss_p[p] = value
        for k in range(labels):
            grad_pk[p, k] *= factor


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _ordinal(p_k, true, floor, q_k, down_k, grad_k):
    """The ordinal loss of one pair, and its gradient by q = p + floor in `grad_k`."""
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
    # Label k is in the sums of the labels k..true. Only positive terms are summed: 1 / up may be as
    # large as 1 / floor, and a subtraction would cancel all its digits.
    inverse = np.float32(0.0)
    for k in range(true, -1, -1):
        inverse += one / grad_k[k]
        grad_k[k] = inverse - one / q_k[k]
    # Label k is in the sums of the labels true..k.
    below = grad_k[true]
    inverse = np.float32(0.0)
    for k in range(true, labels):
        value -= np.log(q_k[k] / down_k[k])
        inverse += one / down_k[k]
        grad_k[k] = inverse - one / q_k[k]
    grad_k[true] += below
    return value


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def bernoulli(logits_pk, labels_p, factor, loss_p, grad_pk, start, stop):
    """loss[p] as in `reference.bernoulli_loss`, (P); grad = factor * d loss / d logit, (P, 1)."""
    one = np.float32(1.0)
    for p in range(start, stop):
        x = logits_pk[p, 0]
        happened = np.float32(labels_p[p])
        small = np.exp(-abs(x))  # never overflows
        loss_p[p] = max(x, np.float32(0.0)) - happened * x + np.log1p(small)
        chance = one / (one + small) if x >= 0 else small / (one + small)
        grad_pk[p, 0] = factor * (chance - happened)


# exp(x) = 2^n * exp(r) with n a whole number and |r| <= ln(2) / 2, and a polynomial for exp(r)
# (Cephes). LLVM turns this into vector code, but not a call of the C library.
_LOG2E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_SMALLEST = np.float32(-87.0)
_ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to a whole number


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _highest(row_m):
    highest = np.float32(-np.inf)
    for m in range(len(row_m)):
        highest = max(highest, row_m[m])
    return highest


# Without "reassoc": adding and subtracting _ROUND must not cancel.
@njit(nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")
def _exponentials(row_m, highest, bits_m):
    """exp(row - highest): its mantissas in place, its powers of two as the `bits` of floats."""
    for m in range(len(row_m)):
        x = max(row_m[m] - highest, _SMALLEST)
        whole = (x * _LOG2E + _ROUND) - _ROUND
        r = x - whole * _LN2_HIGH - whole * _LN2_LOW
        y = np.float32(1.9875691500e-4)
        y = y * r + np.float32(1.3981999507e-3)
        y = y * r + np.float32(8.3334519073e-3)
        y = y * r + np.float32(4.1665795894e-2)
        y = y * r + np.float32(1.6666665459e-1)
        y = y * r + np.float32(5.0000001201e-1)
        row_m[m] = y * r * r + r + np.float32(1.0)
        bits_m[m] = (np.int32(whole) + np.int32(127)) << np.int32(23)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _multiply(row_m, power_m):
    total = np.float32(0.0)
    for m in range(len(row_m)):
        row_m[m] *= power_m[m]
        total += row_m[m]
    return total


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _scale(row_m, by):
    for m in range(len(row_m)):
        row_m[m] *= by


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _sum_into(sum_m, row_m):
    for m in range(len(row_m)):
        sum_m[m] += row_m[m]


@njit(nogil=True, cache=True, error_model="numpy")
def softmax_gradients(
    logits_qm, of_user_um, user_q, offsets_q, columns, seen_columns, seen_start_q, seen_stop_q,
    correction_m, factor, grad_um, start, stop,
):  # fmt: skip
    """The loss of the queries start..stop, and its gradients in place of their logits.

    The logits of query q are row q - start of `logits_qm` plus those of its user, `of_user_um`, and
    plus `correction_m` (where not empty) for all columns but its targets. The targets are
    columns[offsets_q[q]:offsets_q[q + 1]]; the loss is the sum of their -log softmax, times
    `factor`. seen_columns[seen_start_q[q]:seen_stop_q[q]] are masked, unless they are targets. The
    gradients are also summed by user in `grad_um`.
    """
    columns_m = logits_qm.shape[1]
    power_m = np.empty(columns_m, np.float32)
    bits_m = power_m.view(np.int32)
    most = 0
    for q in range(start, stop):
        most = max(most, offsets_q[q + 1] - offsets_q[q])
    own = np.empty(most, np.float32)
    loss = 0.0
    for q in range(start, stop):
        row_m = logits_qm[q - start]
        first = offsets_q[q]
        targets = offsets_q[q + 1] - first
        if targets == 0:
            row_m[:] = 0
            continue
        u = user_q[q]
        _sum_into(row_m, of_user_um[u])
        for t in range(targets):
            own[t] = row_m[columns[first + t]]
        if len(correction_m):
            _sum_into(row_m, correction_m)
        for e in range(seen_start_q[q], seen_stop_q[q]):
            row_m[seen_columns[e]] = -np.inf
        for t in range(targets):
            row_m[columns[first + t]] = own[t]
        highest = _highest(row_m)
        for t in range(targets):
            loss -= own[t] - highest
        _exponentials(row_m, highest, bits_m)
        total = _multiply(row_m, power_m)
        loss += targets * np.log(np.float64(total))
        _scale(row_m, np.float32(factor * targets / total))
        for t in range(targets):
            row_m[columns[first + t]] -= np.float32(factor)
        _sum_into(grad_um[u], row_m)
    return loss * factor
