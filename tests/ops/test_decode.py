"""Decoding and its gradients, against the torch definition and autograd."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given

from cfuica.model.layers import ACTIVATION_CODES, activate
from cfuica.ops import decode, reference
from tests.ops.shapes import EXAMPLES, Problem, grouped, problems

CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def random_hidden(problem: Problem) -> np.ndarray:
    """(Q, H) any hidden vectors: decoding does not ask where they come from."""
    shape = problem.n_queries, problem.decoder_nkh.shape[2]
    return np.random.default_rng(problem.n_pairs).normal(size=shape).astype(np.float32)


def run_decode(problem, indices, group_of_pair, hidden_qh, out_pk):
    offsets, order = grouped(group_of_pair, len(indices))
    decode.decode(
        problem.decoder_nkh,
        problem.decoder_bias_nk,
        indices,
        offsets,
        order,
        problem.query_of_pair,
        hidden_qh,
        out_pk,
        0,
        len(indices),
    )


def defined_activations(problem, table_nkh, bias_nk, hidden_qh):
    members_p = torch.from_numpy(problem.row_of_pair).long()
    queries_p = torch.from_numpy(problem.query_of_pair).long()
    return reference.decode(table_nkh, bias_nk, members_p, hidden_qh[queries_p])


@EXAMPLES
@given(problems())
def test_decode_adds_each_pairs_logits(problem):
    hidden_qh = random_hidden(problem)
    already_pk = problem.grad_pk[::-1].copy()
    out_pk = already_pk.copy()
    run_decode(problem, problem.indices, problem.group_of_pair, hidden_qh, out_pk)
    expected_pk = defined_activations(
        problem,
        torch.from_numpy(problem.decoder_nkh).double(),
        torch.from_numpy(problem.decoder_bias_nk).double(),
        torch.from_numpy(hidden_qh).double(),
    )
    np.testing.assert_allclose(out_pk, already_pk + expected_pk.numpy(), **CLOSE)


@EXAMPLES
@given(problems())
def test_decode_lets_several_groups_belong_to_one_row(problem):
    """As in prediction, where an observed pair has a row of its own."""
    hidden_qh = random_hidden(problem)
    together_pk, apart_pk = np.zeros((2, *problem.grad_pk.shape), np.float32)
    run_decode(problem, problem.indices, problem.group_of_pair, hidden_qh, together_pk)
    one_each = np.arange(problem.n_pairs, dtype=np.int32)
    run_decode(problem, problem.row_of_pair, one_each, hidden_qh, apart_pk)
    assert np.array_equal(together_pk, apart_pk)


@EXAMPLES
@given(problems())
def test_decode_backward_rows_is_the_gradient_of_stored_v_and_b_and_its_squares(problem):
    _, labels, hidden = problem.decoder_nkh.shape
    hidden_qh = random_hidden(problem)
    groups = len(problem.indices)
    grad_gkh = np.full((groups, labels, hidden), np.nan, np.float32)
    grad_gk = np.full((groups, labels), np.nan, np.float32)
    squares_g = np.full(groups, np.nan)
    decode.decode_backward_rows(
        problem.grad_pk,
        hidden_qh,
        *grouped(problem.group_of_pair, groups),
        problem.query_of_pair,
        problem.share,
        grad_gkh,
        grad_gk,
        squares_g,
        0,
        groups,
    )

    table_nkh = torch.from_numpy(problem.decoder_nkh).double().requires_grad_()
    bias_nk = torch.from_numpy(problem.decoder_bias_nk).double().requires_grad_()
    logits_pk = defined_activations(
        problem, table_nkh, bias_nk, torch.from_numpy(hidden_qh).double()
    )
    total = (logits_pk * torch.from_numpy(problem.grad_pk)).sum()
    expected_nkh, expected_nk = torch.autograd.grad(total, (table_nkh, bias_nk))
    if problem.share:
        expected_nkh = reference.stored_gradient(expected_nkh)
        expected_nk = reference.stored_gradient(expected_nk)
    indices = torch.from_numpy(problem.indices).long()
    expected_gkh, expected_gk = expected_nkh[indices], expected_nk[indices]
    np.testing.assert_allclose(grad_gkh, expected_gkh.numpy(), **CLOSE)
    np.testing.assert_allclose(grad_gk, expected_gk.numpy(), **CLOSE)
    squares = expected_gkh.square().sum((1, 2)) + expected_gk.square().sum(1)
    np.testing.assert_allclose(squares_g, squares.numpy(), **CLOSE)


@EXAMPLES
@given(problems())
def test_decode_backward_queries_is_the_gradient_by_the_sums_and_the_inner_product(problem):
    """`inner_q` sums to <dV, V> + <dW, W>, though neither gradient is at hand."""
    table_nkh = torch.from_numpy(problem.encoder_nkh).double().requires_grad_()
    decoder_nkh = torch.from_numpy(problem.decoder_nkh).double().requires_grad_()
    sums_qh = reference.encode(
        table_nkh,
        torch.from_numpy(problem.encoder_bias_h).double(),
        torch.from_numpy(problem.offsets),
        torch.from_numpy(problem.entries).long(),
        torch.from_numpy(problem.length_norm_q),
    )
    values_qh = activate(sums_qh, problem.activation)
    logits_pk = defined_activations(
        problem, decoder_nkh, torch.from_numpy(problem.decoder_bias_nk).double(), values_qh
    )
    total = (logits_pk * torch.from_numpy(problem.grad_pk)).sum()
    by_sums_qh, by_w, by_v = torch.autograd.grad(total, (sums_qh, table_nkh, decoder_nkh))

    grad_qh = np.full(sums_qh.shape, np.nan, np.float32)
    inner_q = np.full(problem.n_queries, np.nan)
    decode.decode_backward_queries(
        problem.grad_pk,
        problem.decoder_nkh,
        *grouped(problem.query_of_pair, problem.n_queries),
        problem.row_of_pair,
        sums_qh.detach().float().numpy(),
        values_qh.detach().float().numpy(),
        np.empty((0, 0), np.float32),
        problem.encoder_bias_h,
        ACTIVATION_CODES[problem.activation],
        grad_qh,
        inner_q,
        0,
        problem.n_queries,
    )
    np.testing.assert_allclose(grad_qh, by_sums_qh.numpy(), **CLOSE)
    products = np.concatenate(
        [(by_w.numpy() * problem.encoder_nkh).ravel(), (by_v.numpy() * problem.decoder_nkh).ravel()]
    )
    atol = 1e-5 * (1 + np.abs(products).sum())
    np.testing.assert_allclose(inner_q.sum(), products.sum(), rtol=0, atol=atol)
