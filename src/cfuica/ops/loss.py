"""Losses: of rated pairs, of implicit pairs, and of the next items among a whole catalogue.

`rating_loss` mixes the softmax and the ordinal loss over K labels, `bernoulli_loss` is the loss of
one logit a pair. `catalogue_softmax` is the softmax over all items; it never has the logits of all
positions in memory. Each returns the *sum* of its losses as a float64 scalar and is differentiable;
who calls it divides by a count.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from cfuica.ops import reference
from cfuica.ops.runtime import VECTORISE, one_blas_thread, run_lanes, run_rows
from cfuica.ops.tables import Grouping, plain, uses_reference


def rating_loss(
    logits_pk: Tensor,
    labels_p: np.ndarray,
    ordinal_weight: float,
    weights_p: np.ndarray | None = None,
) -> Tensor:
    """The sum of (1 - w) * softmax loss + w * ordinal loss over pairs with these labels (P), times
    the weight of the pair (P) float32, by default 1."""
    if uses_reference(logits_pk):
        labels = torch.from_numpy(labels_p).to(logits_pk.device, torch.int64)
        return _weighted(reference.mixed_loss(logits_pk, labels, ordinal_weight), weights_p)
    options = np.float32(ordinal_weight), np.float32(reference.ORDINAL_FLOOR)
    total: Tensor = _PairLoss.apply(logits_pk, labels_p, _rating, options, weights_p)
    return total


def bernoulli_loss(
    logits_p1: Tensor, labels_p: np.ndarray, weights_p: np.ndarray | None = None
) -> Tensor:
    """The sum of -log p of whether each pair is an interaction (labels 0 or 1), one logit each,
    times the weight of the pair (P) float32, by default 1."""
    if uses_reference(logits_p1):
        labels = torch.from_numpy(labels_p).to(logits_p1.device, torch.int64)
        return _weighted(reference.bernoulli_loss(logits_p1, labels), weights_p)
    total: Tensor = _PairLoss.apply(logits_p1, labels_p, _bernoulli, (), weights_p)
    return total


def _weighted(loss_p: Tensor, weights_p: np.ndarray | None) -> Tensor:
    if weights_p is not None:
        loss_p = loss_p * torch.from_numpy(weights_p).to(loss_p)
    return loss_p.double().sum()


class _PairLoss(Function):
    """A loss of each pair by itself: the kernel gives it and its gradient in one pass."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_pk: Tensor,
        labels_p: np.ndarray,
        kernel: Any,
        options: tuple[Any, ...],
        weights_p: np.ndarray | None = None,
    ) -> Tensor:
        grad_pk = np.empty(logits_pk.shape, np.float32)
        loss_p = np.empty(len(grad_pk), np.float32)
        run_rows(kernel, len(loss_p), plain(logits_pk), labels_p, *options, loss_p, grad_pk)
        if weights_p is not None:
            loss_p *= weights_p
            grad_pk *= weights_p[:, None]
        ctx.grad_pk = grad_pk
        return torch.tensor(loss_p.sum(dtype=np.float64))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return torch.from_numpy(ctx.grad_pk * np.float32(grad)), None, None, None, None


@dataclass(frozen=True, eq=False)
class CatalogueTargets:
    """The next items of Q positions, of U users one after the other, among M columns."""

    position_offsets: np.ndarray  # (U + 1,) int64: the positions of each user
    # The targets of position q are columns[by_position.order[e]] for e of its group.
    columns: np.ndarray  # (P,) int32
    by_position: Grouping
    # Masked at position q, where they are no targets: seen[seen_start[q]:seen_stop[q]].
    seen: np.ndarray
    seen_start: np.ndarray
    seen_stop: np.ndarray
    # Added to the logit of each column that is no target; None: nothing.
    correction_m: np.ndarray | None = None
    weights: np.ndarray | None = None  # (P,) float32 what each target's loss counts; None: 1

    @property
    def user_of_position(self) -> np.ndarray:
        """(Q,) int32."""
        sizes = np.diff(self.position_offsets)
        return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


# Positions whose logits are in memory at a time, per lane. The number of lanes does not depend on
# the threads: each lane sums its own gradients, and the order of additions must not change.
CHUNK, LANES = 256, 4


def catalogue_softmax(
    queries_qh: Tensor, items_mh: Tensor, by_user_um: Tensor, targets: CatalogueTargets
) -> Tensor:
    """The sum of -log softmax of all targets, each over the M items and times its weight.

    The logit of item m at position q is queries[q] . items[m] + by_user[user of q, m].
    """
    if uses_reference(items_mh):
        return _chunked_reference(queries_qh, items_mh, by_user_um, targets)
    total: Tensor = _CatalogueSoftmax.apply(queries_qh, items_mh, by_user_um, targets)
    return total


class _CatalogueSoftmax(Function):
    """Loss and gradients in one pass over chunks of positions: product, mask, softmax, products."""

    @staticmethod
    def forward(
        ctx: Any,
        queries_qh: Tensor,
        items_mh: Tensor,
        by_user_um: Tensor,
        targets: CatalogueTargets,
    ) -> Tensor:
        queries, items, by_user = (plain(each) for each in (queries_qh, items_mh, by_user_um))
        user_of_position = targets.user_of_position
        columns = targets.columns[targets.by_position.order]
        correction_m = targets.correction_m
        correction_m = np.empty(0, np.float32) if correction_m is None else correction_m
        weights = np.empty(0, np.float32)
        if targets.weights is not None:
            weights = targets.weights[targets.by_position.order]
        grad_um, grad_qh = np.zeros_like(by_user), np.empty_like(queries)

        def lane(first: int, stop: int) -> tuple[float, np.ndarray]:
            """The positions of some users."""
            logits_qm = np.empty((CHUNK, len(items)), np.float32)
            grad_mh = np.zeros_like(items)
            loss = 0.0
            for start in range(first, stop, CHUNK):
                end = min(start + CHUNK, stop)
                rows_qm = logits_qm[: end - start]
                np.matmul(queries[start:end], items.T, out=rows_qm)
                loss += _softmax_gradients(
                    rows_qm, by_user, user_of_position, targets.by_position.offsets, columns,
                    weights, targets.seen, targets.seen_start, targets.seen_stop, correction_m,
                    grad_um, start, end,
                )  # fmt: skip
                np.matmul(rows_qm, items, out=grad_qh[start:end])
                grad_mh += rows_qm.T @ queries[start:end]
            return loss, grad_mh

        # Lanes end between users: the gradients of one user are summed by one lane.
        positions = targets.position_offsets
        wanted = np.linspace(0, positions[-1], LANES + 1)
        bounds = positions[np.searchsorted(positions, wanted)]
        with one_blas_thread():
            results = run_lanes(lane, [(int(a), int(b)) for a, b in pairwise(bounds)])
        ctx.gradients = grad_qh, sum(grad for _, grad in results), grad_um
        return torch.tensor(sum(loss for loss, _ in results), dtype=torch.float64)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scale = np.float32(grad)
        return *(torch.from_numpy(each * scale) for each in ctx.gradients), None


def _chunked_reference(
    queries_qh: Tensor, items_mh: Tensor, by_user_um: Tensor, targets: CatalogueTargets
) -> Tensor:
    """The same by the reference: chunk by chunk, each computed again for its gradients."""
    device, n_columns = items_mh.device, len(items_mh)
    correction_m = torch.zeros(n_columns)
    if targets.correction_m is not None:
        correction_m = torch.from_numpy(targets.correction_m)
    correction_m = correction_m.to(items_mh)
    offsets, order = targets.by_position.offsets, targets.by_position.order
    weights = np.ones(len(order), np.float32) if targets.weights is None else targets.weights
    columns, weights = targets.columns[order], weights[order]
    user_q = torch.from_numpy(targets.user_of_position).to(device, torch.int64)

    def chunk(own_qh: Tensor, items_mh: Tensor, by_user_um: Tensor, start: int) -> Tensor:
        stop = start + len(own_qh)
        is_masked = np.zeros((len(own_qh), n_columns), bool)
        weights_qm = np.zeros((len(own_qh), n_columns), np.float32)
        for q in range(start, stop):
            own = slice(offsets[q], offsets[q + 1])
            weights_qm[q - start, columns[own]] = weights[own]
            is_masked[q - start, targets.seen[targets.seen_start[q] : targets.seen_stop[q]]] = True
        logits_qm = own_qh @ items_mh.T + by_user_um[user_q[start:stop]]
        masks = (torch.from_numpy(mask).to(device) for mask in (is_masked, weights_qm))
        return reference.catalogue_softmax(logits_qm, correction_m, *masks)

    total = queries_qh.new_zeros((), dtype=torch.float64)
    for start in range(0, len(queries_qh), CHUNK):
        part: Tensor = checkpoint(
            chunk, queries_qh[start : start + CHUNK], items_mh, by_user_um, start,
            use_reentrant=False,
        )  # fmt: skip
        total = total + part
    return total


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _rating(logits_pk, labels_p, ordinal_weight, floor, loss_p, grad_pk, start, stop):
    """loss[p] as in `reference.mixed_loss`, (P); grad = d loss / d logits, (P, K)."""
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
def _bernoulli(logits_pk, labels_p, loss_p, grad_pk, start, stop):
    """loss[p] as in `reference.bernoulli_loss`, (P); grad = d loss / d logit, (P, 1)."""
    one = np.float32(1.0)
    for p in range(start, stop):
        x = logits_pk[p, 0]
        happened = np.float32(labels_p[p])
        small = np.exp(-abs(x))  # never overflows
        loss_p[p] = max(x, np.float32(0.0)) - happened * x + np.log1p(small)
        chance = one / (one + small) if x >= 0 else small / (one + small)
        grad_pk[p, 0] = chance - happened


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
def _softmax_gradients(
    logits_qm, of_user_um, user_q, offsets_q, columns, weights, seen_columns, seen_start_q,
    seen_stop_q, correction_m, grad_um, start, stop,
):  # fmt: skip
    """The loss of the queries start..stop, and its gradients in place of their logits.

    The logits of query q are row q - start of `logits_qm` plus those of its user, `of_user_um`, and
    plus `correction_m` (where not empty) for all columns but its targets. The targets are
    columns[offsets_q[q]:offsets_q[q + 1]]; the loss is the sum of their -log softmax, times their
    `weights` (where not empty).
    seen_columns[seen_start_q[q]:seen_stop_q[q]] are masked, unless they are targets. The
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
        weight = np.float64(0.0)
        for t in range(targets):
            share = weights[first + t] if len(weights) else np.float32(1.0)
            weight += share
            loss -= share * (own[t] - highest)
        _exponentials(row_m, highest, bits_m)
        total = _multiply(row_m, power_m)
        loss += weight * np.log(np.float64(total))
        _scale(row_m, np.float32(weight / total))
        for t in range(targets):
            share = weights[first + t] if len(weights) else np.float32(1.0)
            row_m[columns[first + t]] -= share
        _sum_into(grad_um[u], row_m)
    return loss
