"""Every row is computed once, and the number of threads changes no bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.layers import ACTIVATION_CODES
from cfuica.ops import adam, decode, encode, loss
from cfuica.ops.runtime import run_rows, thread_count
from tests.ops.shapes import grouped, make_problem


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


def test_an_error_inside_a_kernel_is_not_lost(threads):
    threads(3)

    def kernel(start, stop):
        if start > 0:
            raise ZeroDivisionError("in a worker")

    with pytest.raises(ZeroDivisionError, match="in a worker"):
        run_rows(kernel, 100)


def _all_kernels(problem, seed):
    """Run every kernel through `run_rows`; all arrays they wrote."""
    indices, labels, hidden = problem.encoder_nkh.shape
    queries, pairs, groups = problem.n_queries, problem.n_pairs, len(problem.indices)
    code = ACTIVATION_CODES[problem.activation]
    rng = np.random.default_rng(seed)
    labels_p = rng.integers(0, labels, pairs).astype(np.uint8)
    sums_qh, hidden_qh, grad_qh = np.empty((3, queries, hidden), np.float32)
    by_group, by_query = (
        grouped(problem.group_of_pair, groups),
        grouped(problem.query_of_pair, queries),
    )
    run_rows(
        encode.encode, queries, problem.encoder_nkh.reshape(-1, hidden), problem.offsets,
        problem.entries, problem.encoder_bias_h, problem.length_norm_q, code, sums_qh, hidden_qh,
        work=problem.offsets,
    )  # fmt: skip
    out_pk = np.zeros((pairs, labels), np.float32)
    run_rows(
        decode.decode, groups, problem.decoder_nkh, problem.decoder_bias_nk, problem.indices,
        *by_group, problem.query_of_pair, hidden_qh, out_pk, work=by_group[0],
    )  # fmt: skip
    loss_p, grad_pk = np.empty(pairs, np.float32), np.empty((pairs, labels), np.float32)
    run_rows(
        loss.rating_loss, pairs, out_pk, labels_p, np.float32(0.7), np.float32(1e-4),
        np.float32(0.1), loss_p, grad_pk,
    )  # fmt: skip
    grad_gkh = np.empty((groups, labels, hidden), np.float32)
    grad_gk, squares_g = np.empty((groups, labels), np.float32), np.empty(groups)
    run_rows(
        decode.decode_backward_rows, groups, grad_pk, hidden_qh, *by_group,
        problem.query_of_pair, problem.share, grad_gkh, grad_gk, squares_g, work=by_group[0],
    )  # fmt: skip
    inner_q = np.empty(queries)
    run_rows(
        decode.decode_backward_queries, queries, grad_pk, problem.decoder_nkh, *by_query,
        problem.row_of_pair, sums_qh, hidden_qh, np.empty((0, 0), np.float32),
        problem.encoder_bias_h, code, grad_qh, inner_q, work=by_query[0],
    )  # fmt: skip
    offsets_r, order = grouped(problem.entries, indices * labels)
    grad_nkh, squares_n = np.empty_like(problem.encoder_nkh), np.empty(indices)
    run_rows(
        encode.encode_backward, indices, grad_qh, offsets_r, problem.query_of_entry[order],
        problem.share, grad_nkh, squares_n, work=offsets_r[::labels],
    )  # fmt: skip
    table_nkh, after_n = problem.encoder_nkh.copy(), np.empty(indices)
    mean_nkh, square_nkh = np.zeros((2, *table_nkh.shape), np.float32)
    run_rows(
        adam.adam, indices, table_nkh, mean_nkh, square_nkh, grad_nkh,
        np.arange(indices, dtype=np.int32), problem.share,
        *map(np.float32, (1e-3, 0.5, 1.0, 0.01, 0.9, 0.999, 1e-4)), after_n,
    )  # fmt: skip
    return {name: value for name, value in locals().items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(("labels", "hidden"), [(5, 33), (2, 8), (1, 1), (3, 50)])
def test_the_number_of_threads_changes_no_bit_of_any_kernel(threads, labels, hidden, share):
    problem = make_problem(
        n=101, labels=labels, hidden=hidden, queries=77, groups=90, pairs=1500, longest=20,
        activation="tanh", share=share, seed=labels,
    )  # fmt: skip
    threads(1)
    alone = _all_kernels(problem, 0)
    assert len(alone) > 15
    for count in (2, 3, 8):
        threads(count)
        together = _all_kernels(problem, 0)
        assert [name for name in alone if not np.array_equal(alone[name], together[name])] == []
