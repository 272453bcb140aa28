"""Decoders: compiled against the reference, with all that they return and write to the slots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops.decode import decode, gather, pair_products, row_bias
from cfuica.ops.tables import RowTable
from tests.ops.compare import equals_reference
from tests.ops.shapes import EXAMPLES, grouped, make_problem, problems


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


@EXAMPLES
@given(problem=problems())
def test_pair_products_equal_the_reference(problem):
    """Of computed rows, one for each group of pairs."""
    own = problem.pairs
    groups = np.arange(len(own.rows), dtype=np.int32)
    group_p = np.empty(problem.n_pairs, np.int32)
    group_p[own.by_row.order] = np.repeat(groups, np.diff(own.by_row.offsets))
    pairs = replace(own, rows=groups, row_of_pair=group_p)
    equals_reference(
        lambda rows_gkh, hidden_qh: pair_products(rows_gkh, pairs, hidden_qh),
        inputs=[problem.table_nkh[own.rows], problem.hidden_qh],
    )


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
