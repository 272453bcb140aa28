"""Row tables: their anchors, and gradients that meet in one slot."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops import decode, encode, reference
from cfuica.ops.tables import RowGradient, RowTable, uses_reference
from tests.ops.shapes import EXAMPLES, make_problem, problems


def table_of(problem, *, share=False, dtype=torch.float32):
    return RowTable(torch.from_numpy(problem.table_nkh).to(dtype), share=share)


def used_twice(table, problem, hidden_qh):
    """Encoder, decoder and gather on one table: gradients of all rows, of some, of the same."""
    sums_qh = encode.bag_sums(table, problem.bags, problem.norm_q)
    logits_pk = decode.decode(table, problem.pairs, torch.tanh(sums_qh) + hidden_qh)
    rows_gkh = decode.gather(table, problem.pairs.rows)
    return logits_pk.square().sum() + rows_gkh.pow(3).sum()


def held_to_explicit(table: RowTable, dense: torch.Tensor) -> None:
    """The slot is that of this whole gradient (float64, by the stored columns)."""
    assert table.gradient is not None
    scale = 1 + float(dense.abs().max())
    np.testing.assert_allclose(table.dense_gradient(), dense, rtol=1e-4, atol=1e-4 * scale)
    assert table.gradient.squares == pytest.approx(float(dense.square().sum()), rel=1e-3)
    stored = table.values.double()
    products = dense * (reference.differences(stored) if table.share else stored)
    size = float(products.abs().sum())
    assert table.gradient.inner == pytest.approx(float(products.sum()), abs=1e-3 * size + 1e-6)


def explicit(problem, share, times=1):
    """The gradient of the sum of all uses, by autograd in float64 through one leaf."""
    stored = torch.from_numpy(problem.table_nkh).double()
    stored = (reference.differences(stored) if share else stored).requires_grad_()
    used = reference.accumulate(stored) if share else stored
    bags, pairs = problem.bags, problem.pairs
    sums_qh = reference.bag_sums(
        used,
        torch.from_numpy(bags.offsets),
        torch.from_numpy(bags.entries).long(),
        torch.from_numpy(problem.norm_q).double(),
    )
    hidden_qh = torch.tanh(sums_qh) + torch.from_numpy(problem.hidden_qh).double()
    rows_p, query_p = (torch.from_numpy(a).long() for a in (pairs.row_of_pair, pairs.query_of_pair))
    logits_pk = reference.decode(used, rows_p, hidden_qh[query_p])
    rows_gkh = used[torch.from_numpy(pairs.rows).long()]
    total = times * (logits_pk.square().sum() + rows_gkh.pow(3).sum())
    return torch.autograd.grad(total, stored)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@EXAMPLES
@given(problem=problems(), share=st.booleans())
def test_gradients_of_one_table_used_twice_in_a_forward_are_added_before_the_norm(
    dtype, problem, share
):
    table = table_of(problem, share=share, dtype=dtype)
    used_twice(table, problem, torch.from_numpy(problem.hidden_qh).to(dtype)).backward()
    held_to_explicit(table, explicit(problem, share))


@pytest.mark.parametrize("share", [False, True])
def test_gradients_of_two_backward_passes_are_added_before_the_norm(share):
    """The second of all rows must not be written over the first, whose memory is reused later."""
    problem = make_problem(n=6, labels=3, hidden=5, queries=4, groups=4, pairs=9, longest=4, seed=1)
    table = table_of(problem, share=share)
    for passes in range(1, 4):
        used_twice(table, problem, torch.from_numpy(problem.hidden_qh)).backward()
        held_to_explicit(table, explicit(problem, share, times=passes))
    table.gradient = None
    used_twice(table, problem, torch.from_numpy(problem.hidden_qh)).backward()
    held_to_explicit(table, explicit(problem, share))


def test_the_memory_of_a_gradient_that_waits_for_its_step_is_not_written_again():
    problem = make_problem(n=6, labels=2, hidden=3, queries=5, groups=0, pairs=0, longest=4, seed=0)
    table = table_of(problem)
    for factor in (1.0, 2.0, 4.0):
        (factor * encode.bag_sums(table, problem.bags)).sum().backward()
    once = table_of(problem)
    encode.bag_sums(once, problem.bags).sum().backward()
    assert torch.equal(table.dense_gradient(), 7 * once.dense_gradient())


def test_memory_is_reused_between_steps_and_holds_nothing_of_the_step_before():
    first, second = (
        make_problem(n=6, labels=2, hidden=3, queries=5, groups=0, pairs=0, longest=n, seed=n)
        for n in (6, 1)
    )
    table, fresh = table_of(second), table_of(second)
    encode.bag_sums(table, first.bags).sum().backward()
    memory = table.gradient.values
    table.gradient = None
    for each in (table, fresh):
        encode.bag_sums(each, second.bags).sum().backward()
    assert table.gradient.values is memory
    assert torch.equal(table.dense_gradient(), fresh.dense_gradient())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_table_trains_through_its_anchor_and_frozen_it_does_not(dtype):
    """Nothing else in these graphs requires a gradient."""
    problem = make_problem(n=6, labels=2, hidden=3, queries=5, groups=4, pairs=8, longest=4, seed=0)
    hidden_qh = torch.from_numpy(problem.hidden_qh).to(dtype)
    uses = (
        lambda table: encode.bag_sums(table, problem.bags),
        lambda table: decode.decode(table, problem.pairs, hidden_qh),
        lambda table: decode.gather(table, problem.pairs.rows),
    )
    for use in uses:
        table, frozen = table_of(problem, dtype=dtype), table_of(problem, dtype=dtype)
        frozen.freeze()
        assert not use(frozen).requires_grad
        use(table).sum().backward()
        assert table.dense_gradient().any()
        (use(frozen) * use(table).sum()).sum().backward()
        assert frozen.gradient is None
        with torch.no_grad():
            assert not use(table).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_frozen_table_decodes_still_has_its_gradient(dtype):
    problem = make_problem(n=6, labels=2, hidden=3, queries=5, groups=4, pairs=8, longest=4, seed=0)
    grads = []
    for freeze in (False, True):
        table, hidden_qh = table_of(problem, dtype=dtype), torch.from_numpy(problem.hidden_qh)
        hidden_qh = hidden_qh.to(dtype, copy=True).requires_grad_()
        if freeze:
            table.freeze()
        decode.decode(table, problem.pairs, hidden_qh).sum().backward()
        assert (table.gradient is None) == freeze
        grads.append(hidden_qh.grad)
    assert torch.equal(*grads)
    assert grads[0].any()


def test_a_gradient_lists_rows_or_all_of_them():
    table = RowTable(torch.zeros(4, 1, 2))
    assert not table.dense_gradient().any()
    table.gradient = RowGradient(np.array([2, 0]), torch.ones(2, 1, 2), 4.0, 0.0)
    assert table.dense_gradient()[:, 0, 0].tolist() == [1, 0, 1, 0]
    table.add_gradient(np.array([3, 2]), 2 * torch.ones(2, 1, 2), 16.0, 1.5)
    assert table.gradient.rows.tolist() == [0, 2, 3]
    assert table.dense_gradient()[:, 0, 0].tolist() == [1, 0, 3, 2]
    assert (table.gradient.squares, table.gradient.inner) == (2 * (1 + 9 + 4), 1.5)


def test_the_reference_is_for_other_devices_double_precision_and_where_it_is_asked_for(monkeypatch):
    single = torch.zeros(2)
    assert not uses_reference(single)
    assert uses_reference(single.double())
    assert uses_reference(single.to("meta"))
    monkeypatch.setenv("CFUICA_OPS", "reference")
    assert uses_reference(single)
