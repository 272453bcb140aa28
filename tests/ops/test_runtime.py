"""Every row is computed once, and the number of threads changes no bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import adam, decode, encode, loss, runtime
from cfuica.ops.runtime import run_lanes, run_rows, thread_count, zeros_like
from cfuica.ops.tables import RowTable
from tests.ops.shapes import make_histories, make_problem
from tests.ops.test_loss_softmax import targets_of


@pytest.fixture
def threads(monkeypatch):
    def use(count):
        monkeypatch.setenv("CFUICA_THREADS", str(count))

    return use


def test_thread_count_follows_the_environment(threads, monkeypatch):
    threads(3)
    assert thread_count() == 3
    for nonsense in ("0", "-2", "many", ""):
        threads(nonsense)
        assert thread_count() >= 1
    monkeypatch.delenv("CFUICA_THREADS")
    assert thread_count() >= 1


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(0, 300),
    count=st.sampled_from([1, 2, 3, 7]),
    work=st.sampled_from(["none", "nothing", "even", "one heavy row", "random"]),
    seed=st.integers(0, 1000),
)
def test_every_row_is_computed_exactly_once(rows, count, work, seed):
    rng = np.random.default_rng(seed)
    lengths = {
        "nothing": np.zeros(rows),
        "even": np.ones(rows),
        "one heavy row": np.where(np.arange(rows) == rows // 2, 10_000, 0),
        "random": rng.integers(0, 50, rows),
    }
    offsets = None
    if work != "none":
        offsets = np.concatenate([[7], 7 + np.cumsum(lengths[work])]).astype(np.int64)
    visits = np.zeros(rows, np.int64)
    lock = threading.Lock()

    def kernel(start, stop):
        with lock:
            visits[start:stop] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFUICA_THREADS", str(count))
        run_rows(kernel, rows, work=offsets)
    assert (visits == 1).all()


@pytest.mark.parametrize(
    ("rows", "units", "work", "splits"),
    [
        (100, 8, None, False),
        (5000, 8, None, True),
        (100, 20_000, None, True),
        (10, 8, 100_000, False),
        (10, 8, 500_000, True),
    ],
)
def test_little_work_stays_on_the_thread_of_its_caller(
    threads, monkeypatch, rows, units, work, splits
):
    threads(3)
    monkeypatch.setattr(runtime, "FEW_ROWS", 4096)
    calls = []
    table = np.empty((1, units), np.float32)
    offsets = None if work is None else np.linspace(0, work, rows + 1).astype(np.int64)
    run_rows(lambda _, start, stop: calls.append((start, stop)), rows, table, work=offsets)
    assert (len(calls) > 1) == splits
    assert sum(stop - start for start, stop in calls) == rows


def test_an_error_inside_a_kernel_is_not_lost(threads):
    threads(3)

    def kernel(start, stop):
        if start > 0:
            raise ZeroDivisionError("in a worker")

    with pytest.raises(ZeroDivisionError, match="in a worker"):
        run_rows(kernel, 100)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_lanes_give_their_results_in_order(threads, count):
    threads(count)
    assert run_lanes(lambda a, b: a - b, [(n, 1) for n in range(5)]) == [-1, 0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_have_the_shape_and_the_type_of_their_model(dtype):
    made = zeros_like(torch.ones(3, 2, dtype=dtype))
    assert made.dtype == dtype
    assert torch.equal(made, torch.zeros(3, 2, dtype=dtype))


def _all_ops(problem, share):
    """Every op, forward and backward, with its losses, slots and steps of Adam: all numbers."""
    rng = np.random.default_rng(0)
    labels = problem.table_nkh.shape[1]
    histories = make_histories(rng.integers(0, 15, 40).tolist(), 101 * labels, 0)
    targets = targets_of(
        np.diff(histories.position_offsets).tolist(),
        [[int(rng.integers(len(problem.pairs.rows)))] for _ in range(histories.n_rows)],
    )
    encoder, decoder, catalogue = (
        RowTable(torch.from_numpy(problem.table_nkh.copy()), share=share) for _ in range(3)
    )
    bias = RowTable(torch.from_numpy(problem.bias_nk1.copy()), share=share)
    leaves = [torch.from_numpy(problem.bias_h.copy()).requires_grad_() for _ in range(3)]
    c, decay_h, scale_h = leaves

    sums_qh = encode.bag_sums(encoder, problem.bags, problem.norm_q)
    hidden_qh = encode.activate(sums_qh, c, "tanh")
    logits_pk = decode.decode(decoder, problem.pairs, hidden_qh)
    logits_pk = logits_pk + decode.row_bias(bias, problem.pairs)
    states_qh = encode.scan(encoder, histories, (torch.sigmoid(decay_h), scale_h))
    rows_gkh = decode.gather(catalogue, problem.pairs.rows)
    by_user_um = decode.gather(bias, problem.pairs.rows)[:, 0, 0].expand(40, -1)
    losses = [
        loss.rating_loss(logits_pk, problem.labels_p, 0.7),
        loss.bernoulli_loss(logits_pk[:, :1], problem.labels_p % 2),
        loss.catalogue_softmax(states_qh, rows_gkh[:, 0], by_user_um, targets),
    ]
    sum(losses).backward()
    found = [sums_qh, hidden_qh, logits_pk, states_qh, *losses, *(leaf.grad for leaf in leaves)]
    for table in (encoder, decoder, catalogue, bias):
        mean, square = torch.zeros(2, *table.values.shape)
        found += [table.dense_gradient(), table.gradient.squares, table.gradient.inner]
        squares = adam.adam_step(
            table.values, mean, square, table.gradient, share=share, penalty=1e-3, scale=0.5,
            limit=1.0, rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-4,
        )  # fmt: skip
        found += [table.values, mean, square, squares]
    return [np.asarray(x.detach() if isinstance(x, torch.Tensor) else x) for x in found]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(("labels", "hidden"), [(5, 33), (2, 8), (1, 1), (3, 50)])
def test_the_number_of_threads_changes_no_bit_of_any_op(threads, labels, hidden, share):
    problem = make_problem(
        n=101, labels=labels, hidden=hidden, queries=77, groups=90, pairs=1500, longest=20,
        seed=labels,
    )  # fmt: skip
    threads(1)
    alone = _all_ops(problem, share)
    assert all(np.isfinite(each).all() for each in alone)
    assert sum(each.any() for each in alone) > 25  # the rating loss of one label is nothing
    for count in (2, 3, 8):
        threads(count)
        assert all(map(np.array_equal, alone, _all_ops(problem, share)))
