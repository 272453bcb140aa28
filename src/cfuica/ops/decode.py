"""Decoders, Eqns. (5) and (6): logits of pairs from hidden vectors and rows of a table.

`decode` gives V[row] . h[query] of each pair, `row_bias` gives b[row]; `pair_products` is `decode`
with rows that a network has computed, and `gather` gives rows of a table as an ordinary tensor.
`weighted_sums` goes the other way, from numbers of pairs to a sum of rows for each query. All are
differentiable. `linear` is the matrix product of a layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from cfuica.ops import reference, runtime
from cfuica.ops.runtime import VECTORISE, run_rows, share_and_square
from cfuica.ops.tables import RowTable, SidePairs, inner_product, plain, uses_reference


def decode(table: RowTable, pairs: SidePairs, hidden_qh: Tensor) -> Tensor:
    """V[row, k] . h[query] of each pair, (P, K)."""
    if table.uses_reference():
        return reference.decode(
            table.leaf(),
            _long(pairs.row_of_pair, table),
            hidden_qh[_long(pairs.query_of_pair, table)],
        )
    logits_pk: Tensor = _Decode.apply(table.anchor, table, pairs, hidden_qh)
    return logits_pk


def _long(indices: np.ndarray, like: RowTable | Tensor) -> Tensor:
    device = like.values.device if isinstance(like, RowTable) else like.device
    return torch.from_numpy(indices).to(device, torch.int64)


def pair_products(rows_gkh: Tensor, pairs: SidePairs, hidden_qh: Tensor) -> Tensor:
    """rows[g, k] . h[query] of each pair, (P, K): `decode` with computed rows (G, K, H).

    Row g is that of the pairs in group g of `pairs.by_row`; `row_of_pair` is the group of a pair.
    """
    if uses_reference(rows_gkh):
        queries_p = _long(pairs.query_of_pair, rows_gkh)
        return reference.decode(rows_gkh, _long(pairs.row_of_pair, rows_gkh), hidden_qh[queries_p])
    logits_pk: Tensor = _Decode.apply(rows_gkh, None, pairs, hidden_qh)
    return logits_pk


class _Decode(Function):
    """Of a table, whose anchor is the first input, or of computed rows, which are that input."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, table: RowTable | None, pairs: SidePairs, hidden_qh: Tensor
    ) -> Tensor:
        values_nkh = plain(rows) if table is None else table.array
        row_of_group = np.arange(len(rows), dtype=np.int32) if table is None else pairs.rows
        logits_pk = runtime.empty(len(pairs.query_of_pair), values_nkh.shape[1])
        run_rows(
            _decode_rows, len(row_of_group), values_nkh, row_of_group, *pairs.by_row,
            pairs.query_of_pair, plain(hidden_qh), logits_pk.numpy(), work=pairs.by_row.offsets,
        )  # fmt: skip
        ctx.table, ctx.pairs, ctx.values = table, pairs, values_nkh
        ctx.save_for_backward(hidden_qh, logits_pk)
        return logits_pk

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_pk: Tensor) -> tuple[Tensor | None, ...]:
        hidden_qh, logits_pk = ctx.saved_tensors
        table, pairs, grad = ctx.table, ctx.pairs, plain(grad_pk)
        by_rows = by_hidden = None
        if ctx.needs_input_grad[0]:
            groups, labels = len(pairs.by_row.offsets) - 1, grad.shape[1]
            by_rows, squares_g = runtime.empty(groups, labels, hidden_qh.shape[1]), np.empty(groups)
            run_rows(
                _decode_by_rows, groups, grad, plain(hidden_qh), *pairs.by_row,
                pairs.query_of_pair, table is not None and table.share, by_rows.numpy(), squares_g,
                work=pairs.by_row.offsets,
            )  # fmt: skip
            if table is not None:
                # The logits are linear in V, so <dV, V> is that of gradients and logits.
                inner = inner_product(grad, plain(logits_pk))
                table.add_gradient(pairs.rows, by_rows, float(squares_g.sum()), inner)
                by_rows = None
        if ctx.needs_input_grad[3]:
            by_hidden = runtime.empty(*hidden_qh.shape)
            run_rows(
                _decode_by_queries, len(by_hidden), grad, ctx.values, *pairs.by_query,
                pairs.row_of_pair, by_hidden.numpy(), work=pairs.by_query.offsets,
            )  # fmt: skip
        return by_rows, None, None, by_hidden


def weighted_sums(rows_gkh: Tensor, pairs: SidePairs, weights_pk: np.ndarray) -> Tensor:
    """The sum over the pairs of a query, and over k, of weights[p, k] * rows[g, k], (Q, H).

    The transpose of `pair_products`, and of the same pairs. Differentiable by the rows alone.
    """
    if uses_reference(rows_gkh):
        queries_p, groups_p = (
            _long(each, rows_gkh) for each in (pairs.query_of_pair, pairs.row_of_pair)
        )
        weights = torch.from_numpy(weights_pk).to(rows_gkh)
        n_queries = len(pairs.by_query.offsets) - 1
        return reference.weighted_sums(rows_gkh, groups_p, weights, queries_p, n_queries)
    sums_qh: Tensor = _WeightedSums.apply(rows_gkh, pairs, weights_pk)
    return sums_qh


class _WeightedSums(Function):
    """What one does forward, `_Decode` does backward, and the other way round."""

    @staticmethod
    def forward(ctx: Any, rows_gkh: Tensor, pairs: SidePairs, weights_pk: np.ndarray) -> Tensor:
        sums_qh = runtime.empty(len(pairs.by_query.offsets) - 1, rows_gkh.shape[2])
        run_rows(
            _decode_by_queries, len(sums_qh), weights_pk, plain(rows_gkh), *pairs.by_query,
            pairs.row_of_pair, sums_qh.numpy(), work=pairs.by_query.offsets,
        )  # fmt: skip
        ctx.pairs, ctx.weights_pk, ctx.shape = pairs, weights_pk, rows_gkh.shape
        return sums_qh

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_qh: Tensor) -> tuple[Tensor | None, ...]:
        pairs, by_rows, squares_g = ctx.pairs, runtime.empty(*ctx.shape), np.empty(ctx.shape[0])
        run_rows(
            _decode_by_rows, len(by_rows), ctx.weights_pk, plain(grad_qh), *pairs.by_row,
            pairs.query_of_pair, False, by_rows.numpy(), squares_g, work=pairs.by_row.offsets,
        )  # fmt: skip
        return by_rows, None, None


def row_bias(table: RowTable, pairs: SidePairs) -> Tensor:
    """b[row] of each pair, (P, K), from a table (n, K, 1)."""
    if table.uses_reference():
        return table.leaf()[_long(pairs.row_of_pair, table), :, 0]
    bias_pk: Tensor = _RowBias.apply(table.anchor, table, pairs)
    return bias_pk


class _RowBias(Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: RowTable, pairs: SidePairs) -> Tensor:
        ctx.table, ctx.pairs = table, pairs
        bias_pk = torch.from_numpy(table.array[pairs.row_of_pair, :, 0])
        ctx.save_for_backward(bias_pk)
        return bias_pk

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_pk: Tensor) -> tuple[None, ...]:
        table, pairs, grad = ctx.table, ctx.pairs, plain(grad_pk)
        groups = len(pairs.rows)
        values, squares_g = runtime.empty(groups, grad.shape[1], 1), np.empty(groups)
        run_rows(
            _bias_by_rows, groups, grad, *pairs.by_row, table.share, values.numpy(), squares_g,
            work=pairs.by_row.offsets,
        )  # fmt: skip
        inner = inner_product(grad, plain(*ctx.saved_tensors))
        table.add_gradient(pairs.rows, values, float(squares_g.sum()), inner)
        return None, None, None


def gather(table: RowTable, rows: np.ndarray) -> Tensor:
    """The rows (G, K, H) of these numbers, which are distinct."""
    if table.uses_reference():
        return table.leaf()[_long(rows, table)]
    rows_gkh: Tensor = _Gather.apply(table.anchor, table, rows)
    return rows_gkh


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: RowTable, rows: np.ndarray) -> Tensor:
        ctx.table, ctx.rows = table, rows
        rows_gkh = torch.from_numpy(table.array[rows])
        ctx.save_for_backward(rows_gkh)
        return rows_gkh

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_gkh: Tensor) -> tuple[None, ...]:
        (rows_gkh,) = ctx.saved_tensors
        inner = inner_product(plain(grad_gkh.flatten(1)), plain(rows_gkh.flatten(1)))
        values = reference.stored_gradient(grad_gkh) if ctx.table.share else grad_gkh
        flat = plain(values.flatten(1))
        ctx.table.add_gradient(ctx.rows, values, inner_product(flat, flat), inner)
        return None, None, None


def linear(hidden_qh: Tensor, weight_hu: Tensor, plus: Tensor) -> Tensor:
    """hidden @ weight + plus, (Q, U), for the layers of a network; `plus` is (U) or (Q, U).

    In inference the bits of a row do not depend on the other rows. Those of a BLAS do, for it adds
    up in another order where a matrix has other rows.
    """
    if torch.is_grad_enabled() or uses_reference(hidden_qh):
        return torch.addmm(plus, hidden_qh, weight_hu)
    out_qu = runtime.empty(len(hidden_qh), weight_hu.shape[1])
    run_rows(_row_products, len(out_qu), plain(hidden_qh), plain(weight_hu), out_qu.numpy())
    return out_qu + plus


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _row_products(hidden_qh, weight_hu, out_qu, start, stop):
    """out[q] = the sum over h of hidden[q, h] * weight[h]."""
    units = out_qu.shape[1]
    hidden = weight_hu.shape[0]
    for q in range(start, stop):
        out_u = out_qu[q]
        out_u[:] = 0.0
        h = 0
        while h + 3 < hidden:  # four rows share each load and store of the sum
            first = hidden_qh[q, h]
            second = hidden_qh[q, h + 1]
            third = hidden_qh[q, h + 2]
            fourth = hidden_qh[q, h + 3]
            first_u = weight_hu[h]
            second_u = weight_hu[h + 1]
            third_u = weight_hu[h + 2]
            fourth_u = weight_hu[h + 3]
            for u in range(units):
                out_u[u] += (
                    first * first_u[u]
                    + second * second_u[u]
                    + third * third_u[u]
                    + fourth * fourth_u[u]
                )
            h += 4
        while h < hidden:
            first = hidden_qh[q, h]
            first_u = weight_hu[h]
            for u in range(units):
                out_u[u] += first * first_u[u]
            h += 1


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _decode_rows(table_nkh, rows, offsets, order, query_of_pair, hidden_qh, out_pk, start, stop):
    """out[p, k] = V[row, k] . h[query], pairs grouped by row."""
    labels = table_nkh.shape[1]
    hidden = table_nkh.shape[2]
    for g in range(start, stop):
        row = rows[g]
        for e in range(offsets[g], offsets[g + 1]):
            p = order[e]
            hidden_h = hidden_qh[query_of_pair[p]]
            k = 0
            while k + 1 < labels:  # two labels share each load of the hidden vector
                first_h = table_nkh[row, k]
                second_h = table_nkh[row, k + 1]
                first = np.float32(0.0)
                second = np.float32(0.0)
                for h in range(hidden):
                    first += first_h[h] * hidden_h[h]
                    second += second_h[h] * hidden_h[h]
                out_pk[p, k] = first
                out_pk[p, k + 1] = second
                k += 2
            if k < labels:
                first_h = table_nkh[row, k]
                first = np.float32(0.0)
                for h in range(hidden):
                    first += first_h[h] * hidden_h[h]
                out_pk[p, k] = first


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _decode_by_rows(
    grad_pk, hidden_qh, offsets, order, query_of_pair, share, grad_gkh, squares_g, start, stop
):
    """Gradients of V for the table row of each group, and their squared norms.

    With label sharing the gradient is that of the stored columns: the reverse cumulative sum
    over labels of the gradient of the columns in use.
    """
    labels = grad_gkh.shape[1]
    hidden = grad_gkh.shape[2]
    for g in range(start, stop):
        grad_kh = grad_gkh[g]
        grad_kh[:] = 0.0
        e = offsets[g]
        end = offsets[g + 1]
        while e + 1 < end:  # two pairs share each load and store of the gradient
            first_h = hidden_qh[query_of_pair[order[e]]]
            second_h = hidden_qh[query_of_pair[order[e + 1]]]
            for k in range(labels):
                first = grad_pk[order[e], k]
                second = grad_pk[order[e + 1], k]
                column_h = grad_kh[k]
                for h in range(hidden):
                    column_h[h] += first * first_h[h] + second * second_h[h]
            e += 2
        if e < end:
            first_h = hidden_qh[query_of_pair[order[e]]]
            for k in range(labels):
                first = grad_pk[order[e], k]
                column_h = grad_kh[k]
                for h in range(hidden):
                    column_h[h] += first * first_h[h]
        squares_g[g] = 0.0
        if offsets[g] != offsets[g + 1]:
            squares_g[g] = share_and_square(grad_kh, share)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _bias_by_rows(grad_pk, offsets, order, share, grad_gk1, squares_g, start, stop):
    """Gradients of b for the table row of each group, and their squared norms."""
    for g in range(start, stop):
        grad_gk1[g] = 0.0
        for e in range(offsets[g], offsets[g + 1]):
            for k in range(grad_gk1.shape[1]):
                grad_gk1[g, k, 0] += grad_pk[order[e], k]
        squares_g[g] = share_and_square(grad_gk1[g], share)


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _decode_by_queries(grad_pk, table_nkh, offsets, order, row_of_pair, grad_qh, start, stop):
    """Gradient by each query's hidden vector, pairs grouped by query."""
    labels = table_nkh.shape[1]
    hidden = table_nkh.shape[2]
    for q in range(start, stop):
        grad_h = grad_qh[q]
        grad_h[:] = 0.0
        for e in range(offsets[q], offsets[q + 1]):
            p = order[e]
            row = row_of_pair[p]
            k = 0
            while k + 1 < labels:
                first = grad_pk[p, k]
                second = grad_pk[p, k + 1]
                first_h = table_nkh[row, k]
                second_h = table_nkh[row, k + 1]
                for h in range(hidden):
                    grad_h[h] += first * first_h[h] + second * second_h[h]
                k += 2
            if k < labels:
                first = grad_pk[p, k]
                first_h = table_nkh[row, k]
                for h in range(hidden):
                    grad_h[h] += first * first_h[h]
