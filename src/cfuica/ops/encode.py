"""Encoders, Eqns. (3) and (4): sums over contexts and histories, and f of them.

`bag_sums` adds up the rows of W of each query's context. `scan` encodes all positions of a history
in one pass, as a diagonal linear recurrence over its interactions in time order: state <- decay *
state + W[interaction]. With a decay of 1 the state is the sum of the paper. A position reads the
state before its interactions, the last position the state after all (see `Histories`). `activate`
is f(c + sums). All three are differentiable; `advance` and `without_each` are the recurrence for
live states.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from cfuica.ops import reference, runtime
from cfuica.ops.runtime import VECTORISE, run_rows, share_and_square
from cfuica.ops.tables import (
    Bags,
    Grouping,
    Histories,
    RowTable,
    inner_product,
    plain,
    uses_reference,
)

ActivationName = Literal["tanh", "sigmoid", "relu"]
TANH, SIGMOID, RELU = 0, 1, 2
CODES: dict[ActivationName, int] = {"tanh": TANH, "sigmoid": SIGMOID, "relu": RELU}


def bag_sums(table: RowTable, bags: Bags, norm_q: np.ndarray | None = None) -> Tensor:
    """norm[q] * the sum of the rows of W in the context of each query, (Q, H).

    `norm_q` (Q) float32 is the length normalisation, None: 1.
    """
    norm_q = np.ones(bags.n_rows, np.float32) if norm_q is None else norm_q
    if table.uses_reference():
        device = table.values.device
        offsets, entries = (torch.from_numpy(a).to(device) for a in (bags.offsets, bags.entries))
        norm = torch.from_numpy(norm_q).to(table.values)
        return reference.bag_sums(table.leaf(), offsets, entries.long(), norm)
    sums_qh: Tensor = _BagSums.apply(table.anchor, table, bags, norm_q)
    return sums_qh


class _BagSums(Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, table: RowTable, bags: Bags, norm_q: np.ndarray
    ) -> Tensor:
        sums_qh = runtime.empty(bags.n_rows, table.values.shape[2])
        run_rows(
            _add_up, bags.n_rows, table.rows, bags.offsets, bags.entries, norm_q, sums_qh.numpy(),
            work=bags.offsets,
        )  # fmt: skip
        ctx.table, ctx.bags, ctx.norm_q = table, bags, norm_q
        ctx.save_for_backward(sums_qh)
        return sums_qh

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_qh: Tensor) -> tuple[None, ...]:
        grad = plain(grad_qh)
        # The sums are linear in W, so <dW, W> is <dS, S>: a thousandth of the numbers.
        inner = inner_product(grad, plain(*ctx.saved_tensors))
        if (ctx.norm_q != 1).any():
            grad = grad * ctx.norm_q[:, None]
        _gather(ctx.table, ctx.bags.readers, grad, inner)
        return None, None, None, None


def _gather(table: RowTable, readers: Grouping, grad_qh: np.ndarray, inner: float) -> None:
    """The gradient of W from those of the queries, or interactions, that read each row."""
    n, labels, _ = table.values.shape
    values, squares_n = table.memory(), np.empty(n)
    run_rows(
        _sum_readers, n, grad_qh, *readers, table.share, values.numpy(), squares_n,
        work=readers.offsets[::labels],
    )  # fmt: skip
    table.add_gradient(None, values, float(squares_n.sum()), inner)


def scan(
    table: RowTable, histories: Histories, decay_and_scale: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """scale * the state before each position of each history, (Q, H).

    `decay_and_scale` are (H,) each; None: both 1, so that a state is a sum.
    """
    if table.uses_reference():
        offsets, entries, positions, position_offsets = (
            torch.from_numpy(array).to(table.values.device, torch.int64)
            for array in (
                histories.offsets,
                histories.entries,
                histories.positions,
                histories.position_offsets,
            )
        )
        ones_h = table.values.new_ones(table.values.shape[2])
        decay_h, scale_h = decay_and_scale or (ones_h, ones_h)
        return reference.scan(
            table.leaf(), offsets, entries, positions, position_offsets, decay_h, scale_h
        )
    states_qh: Tensor = _Scan.apply(
        table.anchor, table, histories, *(decay_and_scale or (None, None))
    )
    return states_qh


class _Scan(Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        table: RowTable,
        histories: Histories,
        decay_h: Tensor | None,
        scale_h: Tensor | None,
    ) -> Tensor:
        hidden = table.values.shape[2]
        ones_h = np.ones(hidden, np.float32)
        decay, scale = (ones_h if each is None else plain(each) for each in (decay_h, scale_h))
        states_qh = runtime.empty(histories.n_rows, hidden)
        run_rows(
            _scan, histories.n_histories, table.rows, histories.offsets, histories.entries,
            histories.positions, histories.position_offsets, decay, scale, states_qh.numpy(),
            work=histories.offsets,
        )  # fmt: skip
        ctx.table, ctx.histories, ctx.decays = table, histories, decay_h is not None
        ctx.decay, ctx.scale = decay, scale
        ctx.save_for_backward(states_qh)
        return states_qh

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_qh: Tensor) -> tuple[Tensor | None, ...]:
        histories, readers, grad = ctx.histories, ctx.histories.readers, plain(grad_qh)
        inner = inner_product(grad, plain(*ctx.saved_tensors))
        if not ctx.decays:
            later_rh, row_b = _later(histories, grad)
            readers = Grouping(readers.offsets, row_b[readers.order])
            _gather(ctx.table, readers, later_rh, inner)
            return None, None, None, None, None
        n_histories, hidden = histories.n_histories, grad.shape[1]
        grad_bh = np.empty((len(histories.entries), hidden), np.float32)
        by_decay_uh, by_scale_uh = np.empty((2, n_histories, hidden), np.float32)
        run_rows(
            _scan_backward, n_histories, ctx.table.rows, histories.offsets, histories.entries,
            histories.positions, histories.position_offsets, ctx.decay, ctx.scale, grad, grad_bh,
            by_decay_uh, by_scale_uh, work=histories.offsets,
        )  # fmt: skip
        if ctx.needs_input_grad[0]:
            _gather(ctx.table, readers, grad_bh, inner)
        by_decay_h, by_scale_h = (torch.from_numpy(by.sum(0)) for by in (by_decay_uh, by_scale_uh))
        return None, None, None, by_decay_h, by_scale_h


def _later(histories: Histories, grad_qh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without decay: the gradients (R, H) by the interactions between two positions, and the row of
    each interaction among them, (B,)."""
    n_histories = histories.n_histories
    later_rh = np.empty((histories.n_rows + n_histories, grad_qh.shape[1]), np.float32)
    run_rows(
        _later_sums, n_histories, grad_qh, histories.position_offsets, later_rh,
        work=histories.position_offsets,
    )  # fmt: skip
    first_u = histories.position_offsets[:-1] + np.arange(n_histories) + 1
    row_b = np.repeat(first_u, np.diff(histories.offsets)) + histories.positions
    return later_rh, row_b.astype(np.int32)


def activate(sums_qh: Tensor, bias_h: Tensor, activation: ActivationName) -> Tensor:
    """f(c + sums), (Q, H): the hidden vectors of Eqns. (3) and (4)."""
    if uses_reference(sums_qh):
        return reference.activate(sums_qh + bias_h, activation)
    hidden_qh: Tensor = _Activate.apply(sums_qh, bias_h, CODES[activation])
    return hidden_qh


class _Activate(Function):
    @staticmethod
    def forward(ctx: Any, sums_qh: Tensor, bias_h: Tensor, code: int) -> Tensor:
        hidden_qh = runtime.empty(*sums_qh.shape)
        run_rows(
            _activate_rows, len(hidden_qh), plain(sums_qh), plain(bias_h), code, hidden_qh.numpy()
        )
        ctx.code = code
        ctx.save_for_backward(hidden_qh)
        return hidden_qh

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_qh: Tensor) -> tuple[Tensor, Tensor, None]:
        (hidden_qh,) = ctx.saved_tensors
        by_sums_qh = runtime.empty(*hidden_qh.shape)
        run_rows(
            _derive_rows, len(hidden_qh), plain(grad_qh), plain(hidden_qh), ctx.code,
            by_sums_qh.numpy(),
        )  # fmt: skip
        # numpy adds in one order whatever the number of threads; torch does not.
        return by_sums_qh, torch.from_numpy(by_sums_qh.numpy().sum(0)), None


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
def apply_f(sums_h, hidden_h, activation):
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
def _activate_rows(sums_qh, bias_h, activation, hidden_qh, start, stop):
    """hidden[q] = f(c + sums[q])."""
    # f reads one array and writes another: LLVM makes no vector code of a loop in place.
    total_h = np.empty(len(bias_h), np.float32)
    for q in range(start, stop):
        for h in range(len(bias_h)):
            total_h[h] = sums_qh[q, h] + bias_h[h]
        apply_f(total_h, hidden_qh[q], activation)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _derive_rows(grad_qh, hidden_qh, activation, out_qh, start, stop):
    """out = grad * f', computed from the values of f."""
    one = np.float32(1.0)
    for q in range(start, stop):
        for h in range(out_qh.shape[1]):
            y = hidden_qh[q, h]
            if activation == TANH:
                out_qh[q, h] = grad_qh[q, h] * (one - y * y)
            elif activation == SIGMOID:
                out_qh[q, h] = grad_qh[q, h] * (y * (one - y))
            else:
                out_qh[q, h] = grad_qh[q, h] * np.float32(y > 0)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _add_up(rows_rh, offsets, entries, norm_q, sums_qh, start, stop):
    """sums[q] = norm[q] * the sum of the rows of W in q's context."""
    hidden = sums_qh.shape[1]
    for q in range(start, stop):
        sums_h = sums_qh[q]
        sums_h[:] = 0
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
        if norm_q[q] != 1:
            for h in range(hidden):
                sums_h[h] *= norm_q[q]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _sum_readers(grad_qh, offsets_r, queries, share, grad_nkh, squares_n, start, stop):
    """Gradient of W: each row sums the gradients of the queries whose context it is in.

    `offsets_r` (n*K + 1) and `queries` are the transpose of what `_add_up` reads. With label
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
def _scan(
    rows_rh, offsets, entries, positions, position_offsets, decay_h, scale_h, out_qh, start, stop
):
    """out[q] = scale * the state at position q.

    offsets (U + 1) and entries (B) are compressed rows. positions (B), ascending within a history,
    is the position of each interaction counted from 0, or -1 before all. position_offsets (U + 1)
    is the first row of each history in the output.
    """
    state_h = np.empty(len(decay_h), np.float32)
    for u in range(start, stop):
        state_h[:] = 0
        reached = -1
        first = position_offsets[u]
        for e in range(offsets[u], offsets[u + 1]):
            while reached < positions[e]:
                reached += 1
                _scaled(state_h, scale_h, out_qh[first + reached])
            if entries[e] == LEFT_OUT:
                continue
            _step(state_h, decay_h, rows_rh[entries[e]])
        while first + reached + 1 < position_offsets[u + 1]:
            reached += 1
            _scaled(state_h, scale_h, out_qh[first + reached])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def advance(rows_rh, offsets, entries, decay_h, states_uh, start, stop):
    """Advance each state (U, H) over further interactions (compressed rows), in place.

    One interaction at a time or all at once give the same bits, which are those of `_scan`.
    """
    for u in range(start, stop):
        for e in range(offsets[u], offsets[u + 1]):
            _step(states_uh[u], decay_h, rows_rh[entries[e]])


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
def _scaled(state_h, scale_h, out_h):
    for h in range(len(state_h)):
        out_h[h] = scale_h[h] * state_h[h]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _scan_backward(
    rows_rh, offsets, entries, positions, position_offsets, decay_h, scale_h, grad_qh,
    grad_bh, grad_decay_uh, grad_scale_uh, start, stop,
):  # fmt: skip
    """From the gradients by `out` to those by each interaction's row of W, by decay and by scale.

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
def _later_sums(grad_qh, position_offsets, later_rh, start, stop):
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
