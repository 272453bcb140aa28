"""Decoders: compiled against the reference, with all that they return and write to the slots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops.decode import decode, gather, pair_products, row_bias, weighted_sums
from cfuica.ops.tables import RowTable, SidePairs
from tests.ops.compare import equals_reference
from tests.ops.shapes import EXAMPLES, SEEDS, Problem, grouped, make_problem, problems


@EXAMPLES
@given(problem=problems(), share=st.booleans())
def test_decode_equals_the_reference(problem, share):
    equals_reference(
        lambda table, hidden_qh: decode(table, problem.pairs, hidden_qh),
        [problem.table_nkh],
        [problem.hidden_qh],
        share=share,
        rows=problem.pairs.rows,
    )


@EXAMPLES
@given(problem=problems(), share=st.booleans())
def test_row_bias_equals_the_reference(problem, share):
    equals_reference(
        lambda table: row_bias(table, problem.pairs),
        [problem.bias_nk1],
        share=share,
        rows=problem.pairs.rows,
    )


@EXAMPLES
@given(problem=problems(), share=st.booleans())
def test_gather_equals_the_reference(problem, share):
    rows = problem.pairs.rows
    equals_reference(lambda table: gather(table, rows), [problem.table_nkh], share=share, rows=rows)


def of_computed_rows(problem: Problem) -> SidePairs:
    """The pairs of a problem, where each group has a row of its own."""
    own = problem.pairs
    groups = np.arange(len(own.rows), dtype=np.int32)
    group_p = np.empty(problem.n_pairs, np.int32)
    group_p[own.by_row.order] = np.repeat(groups, np.diff(own.by_row.offsets))
    return replace(own, rows=groups, row_of_pair=group_p)


@EXAMPLES
@given(problem=problems())
def test_pair_products_equal_the_reference(problem):
    pairs = of_computed_rows(problem)
    equals_reference(
        lambda rows_gkh, hidden_qh: pair_products(rows_gkh, pairs, hidden_qh),
        inputs=[problem.table_nkh[problem.pairs.rows], problem.hidden_qh],
    )


@EXAMPLES
@given(problem=problems(), seed=SEEDS)
def test_weighted_sums_equal_the_reference(problem, seed):
    pairs = of_computed_rows(problem)
    shape = problem.n_pairs, problem.table_nkh.shape[1]
    weights_pk = np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
    equals_reference(
        lambda rows_gkh: weighted_sums(rows_gkh, pairs, weights_pk),
        inputs=[problem.table_nkh[problem.pairs.rows]],
    )


@EXAMPLES
@given(problem=problems(), seed=SEEDS)
def test_weighted_sums_are_the_transpose_of_pair_products(problem, seed):
    """<w, products(rows, h)> = <sums(rows, w), h>."""
    pairs, rows = of_computed_rows(problem), torch.from_numpy(problem.table_nkh[problem.pairs.rows])
    hidden_qh = torch.from_numpy(problem.hidden_qh)
    products_pk = pair_products(rows, pairs, hidden_qh)
    weights_pk = np.random.default_rng(seed).normal(0, 1, products_pk.shape).astype(np.float32)
    sums_qh = weighted_sums(rows, pairs, weights_pk)
    one, other = (torch.from_numpy(weights_pk) * products_pk).sum(), (sums_qh * hidden_qh).sum()
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@EXAMPLES
@given(problems())
def test_several_groups_may_belong_to_one_row(problem):
    """As in prediction, where an observed pair has a query of its own."""
    table, hidden_qh = RowTable(torch.from_numpy(problem.table_nkh)), problem.hidden_qh
    own, each = problem.pairs, np.arange(problem.n_pairs, dtype=np.int32)
    apart = replace(own, rows=own.row_of_pair, by_row=grouped(each, problem.n_pairs))
    found = [decode(table, pairs, torch.from_numpy(hidden_qh)) for pairs in (own, apart)]
    assert torch.equal(*found)


def test_a_gradient_that_is_an_expanded_view_is_stored_as_it_is():
    """Where the rows' gradient is one number, autograd hands out a view with strides of zero."""
    problem = make_problem(n=5, labels=3, hidden=4, queries=1, groups=3, pairs=1, longest=1, seed=0)
    table = RowTable(torch.from_numpy(problem.table_nkh))
    gather(table, problem.pairs.rows).sum().backward()
    expected = torch.zeros_like(table.values)
    expected[problem.pairs.rows] = 1.0
    assert torch.equal(table.dense_gradient(), expected)
