"""Encoders, Eqns. (3) and (4): hidden vectors of contexts and of histories, and their gradients.

`encode` sums the rows of W of each query's context and applies f. `scan` encodes all positions of a
history in one pass, as a diagonal linear recurrence over its interactions in time order: state <-
decay * state + W[interaction]. With a decay of 1 the state is the sum of the paper. A position
reads the state before its interactions, the last position the state after all (see `Histories`).
`advance`, `read` and `without_each` are the same recurrence for live states.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE, share_and_square

TANH, SIGMOID, RELU = 0, 1, 2


# Lambert's continued fraction for tanh, cut after nine terms: x * NUMERATOR / DENOMINATOR in x^2.
# Below 4.5 its error is under float32's; twice that range comes from tanh 2x = 2t / (1 + t^2).
# Written out because LLVM turns it into vector code, and a call of the C library it does not.
_RANGE = np.float32(4.5)


@njit(inline="always")
def _tanh(x):
    half = min(max(np.float32(0.5) * x, -_RANGE), _RANGE)
    s = half * half
    numerator = np.float32(34459425) + s * (
        np.float32(4729725) + s * (np.float32(135135) + s * (np.float32(990) + s))
    )
    denominator = np.float32(34459425) + s * (
        np.float32(16216200)
        + s * (np.float32(945945) + s * (np.float32(13860) + s * np.float32(45)))
    )
    t = half * numerator / denominator
    return (t + t) / (np.float32(1) + t * t)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def activate(sums_h, hidden_h, activation):
    """hidden = f(sums)."""
    if activation == TANH:
        for h in range(len(sums_h)):
            hidden_h[h] = _tanh(sums_h[h])
    elif activation == SIGMOID:
        for h in range(len(sums_h)):
            # sigmoid(x) = (1 + tanh(x / 2)) / 2
            hidden_h[h] = np.float32(0.5) + np.float32(0.5) * _tanh(np.float32(0.5) * sums_h[h])
    else:
        for h in range(len(sums_h)):
            hidden_h[h] = max(sums_h[h], np.float32(0))


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def encode(
    rows_rh, offsets, entries, bias_h, length_norm_q, activation, sums_qh, hidden_qh, start, stop
):
    """sums[q] = c + norm[q] * the sum of the rows of W in q's context; hidden[q] = f(sums[q])."""
    hidden = sums_qh.shape[1]
    for q in range(start, stop):
        sums_h = sums_qh[q]
        length_norm = length_norm_q[q]
        # Without length normalisation c comes first: the rounding of a sum depends on its order.
        for h in range(hidden):
            sums_h[h] = bias_h[h] if length_norm == 1 else np.float32(0)
        e = offsets[q]
        end = offsets[q + 1]
        # Two rows at a time halve the traffic on the accumulator.
        while e + 1 < end:
            first_h = rows_rh[entries[e]]
            second_h = rows_rh[entries[e + 1]]
            for h in range(hidden):
                sums_h[h] += first_h[h] + second_h[h]
            e += 2
        if e < end:
            first_h = rows_rh[entries[e]]
            for h in range(hidden):
                sums_h[h] += first_h[h]
        if length_norm != 1:
            for h in range(hidden):
                sums_h[h] = bias_h[h] + length_norm * sums_h[h]
        activate(sums_h, hidden_qh[q], activation)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def encode_backward(grad_qh, offsets_r, queries, share, grad_nkh, squares_n, start, stop):
    """Gradient of W: each row sums the gradients of the queries whose context it is in.

    `offsets_r` (n*K + 1) and `queries` are the transpose of what `encode` reads. With label
    sharing the result is the gradient of the stored columns.
    """
    labels = grad_nkh.shape[1]
    hidden = grad_nkh.shape[2]
    for n in range(start, stop):
        grad_kh = grad_nkh[n]
        for k in range(labels):
            column_h = grad_kh[k]
            e = offsets_r[n * labels + k]
            end = offsets_r[n * labels + k + 1]
            if e == end:
                column_h[:] = 0.0
                continue
            first_h = grad_qh[queries[e]]
            for h in range(hidden):
                column_h[h] = first_h[h]
            e += 1
            while e + 1 < end:
                first_h = grad_qh[queries[e]]
                second_h = grad_qh[queries[e + 1]]
                for h in range(hidden):
                    column_h[h] += first_h[h] + second_h[h]
                e += 2
            if e < end:
                first_h = grad_qh[queries[e]]
                for h in range(hidden):
                    column_h[h] += first_h[h]
        squares_n[n] = 0.0
        if offsets_r[n * labels] != offsets_r[(n + 1) * labels]:
            squares_n[n] = share_and_square(grad_kh, share)


LEFT_OUT = -1  # the entry of an interaction that does not change the state


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def scan(
    rows_rh, offsets, entries, positions, position_offsets, decay_h, scale_h, bias_h, activation,
    sums_qh, hidden_qh, start, stop,
):  # fmt: skip
    """sums[q] = c + scale * the state at position q, hidden[q] = f(sums[q]).

    offsets (U + 1) and entries (B) are compressed rows. positions (B), ascending within a history,
    is the position of each interaction counted from 0, or -1 before all. position_offsets (U + 1)
    is the first row of each history in the output.
    """
    hidden = len(decay_h)
    state_h = np.empty(hidden, np.float32)
    for u in range(start, stop):
        state_h[:] = 0
        reached = -1
        first = position_offsets[u]
        for e in range(offsets[u], offsets[u + 1]):
            while reached < positions[e]:
                reached += 1
                _read(state_h, scale_h, bias_h, sums_qh[first + reached])
            if entries[e] == LEFT_OUT:
                continue
            _step(state_h, decay_h, rows_rh[entries[e]])
        while first + reached + 1 < position_offsets[u + 1]:
            reached += 1
            _read(state_h, scale_h, bias_h, sums_qh[first + reached])
        for q in range(first, position_offsets[u + 1]):
            activate(sums_qh[q], hidden_qh[q], activation)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def advance(rows_rh, offsets, entries, decay_h, states_uh, start, stop):
    """Advance each state (U, H) over further interactions (compressed rows), in place.

    One interaction at a time or all at once give the same bits, which are those of `scan`.
    """
    for u in range(start, stop):
        for e in range(offsets[u], offsets[u + 1]):
            _step(states_uh[u], decay_h, rows_rh[entries[e]])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def read(states_uh, scale_h, bias_h, activation, hidden_uh, start, stop):
    """hidden[u] = f(c + scale * states[u])."""
    sums_h = np.empty(len(bias_h), np.float32)
    for u in range(start, stop):
        _read(states_uh[u], scale_h, bias_h, sums_h)
        activate(sums_h, hidden_uh[u], activation)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def without_each(rows_rh, offsets, entries, decay_h, states_bh, start, stop):
    """states[e] (B, H) = the state after the history without interaction e, for each e.

    Of n interactions those after number i keep their weights decay^(n - 1 - t). Those before it,
    with the state p_i, have one interaction less after them. So the state without i is
    decay^(n - 1 - i) * p_i + the sum over t > i of decay^(n - 1 - t) * W[t]: a forward pass for
    the p_i and a backward pass for the rest, instead of n scans.
    """
    hidden = len(decay_h)
    power_h = np.empty(hidden, np.float64)
    later_h = np.empty(hidden, np.float64)
    for u in range(start, stop):
        begin = offsets[u]
        end = offsets[u + 1]
        if begin == end:
            continue
        states_bh[begin] = 0
        for e in range(begin, end - 1):
            states_bh[e + 1] = states_bh[e]
            _step(states_bh[e + 1], decay_h, rows_rh[entries[e]])
        power_h[:] = 1
        later_h[:] = 0
        for e in range(end - 1, begin - 1, -1):
            state_h = states_bh[e]
            row_h = rows_rh[entries[e]]
            for h in range(hidden):
                state_h[h] = np.float32(power_h[h] * state_h[h] + later_h[h])
                later_h[h] += power_h[h] * row_h[h]
                power_h[h] *= decay_h[h]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _step(state_h, decay_h, row_h):
    for h in range(len(state_h)):
        state_h[h] = decay_h[h] * state_h[h] + row_h[h]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _read(state_h, scale_h, bias_h, sums_h):
    for h in range(len(state_h)):
        sums_h[h] = bias_h[h] + scale_h[h] * state_h[h]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def scan_backward(
    rows_rh, offsets, entries, positions, position_offsets, decay_h, scale_h, grad_qh,
    grad_bh, grad_decay_uh, grad_scale_uh, start, stop,
):  # fmt: skip
    """From the gradients by `sums` to those by each interaction's row of W, by decay and by scale.

    grad_bh (B, H) is zero where an interaction is left out. Those by decay and scale are (U, H), a
    row for each history, to be summed in one order.
    """
    hidden = len(decay_h)
    longest = 0
    for u in range(start, stop):
        longest = max(longest, offsets[u + 1] - offsets[u])
    before_th = np.empty((longest + 1, hidden), np.float32)
    grad_h = np.empty(hidden, np.float32)
    for u in range(start, stop):
        begin = offsets[u]
        length = offsets[u + 1] - begin
        # The states once more: storing them in the forward pass takes longer.
        before_th[0] = 0
        for t in range(length):
            next_h = before_th[t + 1]
            now_h = before_th[t]
            entry = entries[begin + t]
            if entry == LEFT_OUT:
                next_h[:] = now_h
                continue
            row_h = rows_rh[entry]
            for h in range(hidden):
                next_h[h] = decay_h[h] * now_h[h] + row_h[h]
        grad_h[:] = 0
        by_decay_h = grad_decay_uh[u]
        by_scale_h = grad_scale_uh[u]
        by_decay_h[:] = 0
        by_scale_h[:] = 0
        q = position_offsets[u + 1] - 1
        for t in range(length - 1, -1, -1):
            # Positions that read the state after this interaction and before the next one.
            while q > position_offsets[u] + positions[begin + t]:
                _unread(grad_qh[q], before_th[t + 1], scale_h, grad_h, by_scale_h)
                q -= 1
            own_h = grad_bh[begin + t]
            if entries[begin + t] == LEFT_OUT:
                own_h[:] = 0
                continue
            now_h = before_th[t]
            for h in range(hidden):
                own_h[h] = grad_h[h]
                by_decay_h[h] += grad_h[h] * now_h[h]
                grad_h[h] *= decay_h[h]
        # The remaining positions read the initial state, a constant zero.


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def later_sums(grad_qh, position_offsets, later_rh, start, stop):
    """later[r] = the sum of the gradients of position r of a history and of those after it.

    Without decay that is the gradient by the interactions between positions r - 1 and r. A history
    has one row more than positions, for interactions that no position reads. Its rows begin at its
    first position plus the history's number."""
    hidden = grad_qh.shape[1]
    for u in range(start, stop):
        end = position_offsets[u + 1]
        later_rh[end + u] = 0
        for q in range(end - 1, position_offsets[u] - 1, -1):
            now_h = later_rh[q + u]
            next_h = later_rh[q + u + 1]
            grad_h = grad_qh[q]
            for h in range(hidden):
                now_h[h] = next_h[h] + grad_h[h]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _unread(grad_read_h, state_h, scale_h, grad_h, by_scale_h):
    for h in range(len(grad_h)):
        grad_h[h] += scale_h[h] * grad_read_h[h]
        by_scale_h[h] += grad_read_h[h] * state_h[h]
