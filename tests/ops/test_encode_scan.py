"""The scan and its reverse against the definition, one step after another."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import Csr
from cfuica.model.layers import decay_and_scale, log_time_constants_gradient
from cfuica.model.pairs import Histories
from cfuica.model.side import Side
from cfuica.ops import reference, sampling
from cfuica.ops.encode import scan_backward
from cfuica.ops.runtime import run_rows
from cfuica.training.batches import Context
from cfuica.training.gradients import encode_backward
from tests.training.histories import read_by


def histories_of(lengths: list[int], entries: int, seed: int) -> Histories:
    """Histories of these lengths, of whose interactions some share a moment and some are left
    out."""
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    n = int(offsets[-1])
    entry = rng.integers(0, entries, n).astype(np.int32)
    entry[rng.random(n) < 0.2] = -1
    positions = np.zeros(n, np.int32)
    position_offsets = [0]
    for begin, end in pairwise(offsets):
        begins = rng.random(end - begin) < 0.6
        begins[:1] = True
        positions[begin:end] = np.cumsum(begins) - 1
        position_offsets.append(position_offsets[-1] + int(begins.sum()) + 1)
    return Histories(offsets, entry, positions, np.array(position_offsets, np.int64))


def side_of(indices: int, labels: int, hidden: int, *, learns_decay: bool, seed: int) -> Side:
    side = Side.initial(
        indices, labels, hidden, activation="tanh", share=False,
        generator=torch.Generator().manual_seed(seed), learns_decay=learns_decay,
    )  # fmt: skip
    side.encoder_bias_h.normal_(generator=torch.Generator().manual_seed(seed))
    return side


CASES = {
    "lengths": st.lists(st.integers(0, 9), min_size=1, max_size=6),
    "labels": st.integers(1, 3),
    "hidden": st.integers(1, 19),
    "learns_decay": st.booleans(),
    "seed": st.integers(0, 999),
}


@settings(max_examples=60, deadline=None)
@given(**CASES)
def test_a_position_reads_the_decayed_sum_of_earlier_interactions(
    lengths, labels, hidden, learns_decay, seed
):
    side = side_of(5, labels, hidden, learns_decay=learns_decay, seed=seed)
    histories = histories_of(lengths, 5 * labels, seed)
    decay_h, scale_h = (each.double().numpy() for each in side.decay_and_scale())
    rows_rh = side.encoder_nkh.flatten(0, 1).double().numpy()
    expected = []
    for entries in read_by(histories):
        state_h = np.zeros(hidden)
        for entry in entries:
            state_h = decay_h * state_h + rows_rh[entry]
        expected.append(side.encoder_bias_h.double().numpy() + scale_h * state_h)
    encoded = side.encode(histories)
    np.testing.assert_allclose(encoded.sums_qh, np.array(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(encoded.values_qh, np.tanh(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(side.sums(histories), np.array(expected), rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(**CASES)
def test_the_reverse_scan_is_the_gradient_of_the_definition(
    lengths, labels, hidden, learns_decay, seed
):
    side = side_of(5, labels, hidden, learns_decay=learns_decay, seed=seed)
    histories = histories_of(lengths, 5 * labels, seed)
    grad_qh = np.random.default_rng(seed).standard_normal((histories.n_rows, hidden))
    grad_qh = grad_qh.astype(np.float32)
    decay_h, scale_h = side.decay_and_scale()
    n, n_histories = len(histories.indices), len(lengths)
    grad_bh = np.full((n, hidden), np.nan, np.float32)
    by_decay_uh, by_scale_uh = np.full((2, n_histories, hidden), np.nan, np.float32)
    run_rows(
        scan_backward, n_histories, side.encoder_nkh.flatten(0, 1).numpy(), histories.offsets,
        histories.indices, histories.positions, histories.position_offsets, decay_h.numpy(),
        scale_h.numpy(), grad_qh, grad_bh, by_decay_uh, by_scale_uh,
    )  # fmt: skip
    table = side.encoder_nkh.clone().requires_grad_()
    factors = [each.clone().requires_grad_() for each in (decay_h, scale_h)]
    sums_qh = reference.scan(
        table, side.encoder_bias_h, *histories.on(torch.device("cpu")), *factors
    )
    total = (sums_qh * torch.from_numpy(grad_qh)).sum()
    by_table, *by_factors = torch.autograd.grad(total, [table, *factors], materialize_grads=True)
    found_rh = np.zeros((6 * labels, hidden))
    happened = histories.indices >= 0
    np.add.at(found_rh, histories.indices[happened], grad_bh[happened])
    assert not grad_bh[~happened].any()
    np.testing.assert_allclose(found_rh, by_table.flatten(0, 1), rtol=1e-3, atol=1e-4)
    for by_uh, expected in zip((by_decay_uh, by_scale_uh), by_factors, strict=True):
        np.testing.assert_allclose(by_uh.sum(0), expected, rtol=1e-3, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(**CASES, stays=st.floats(0, 1))
def test_positions_without_targets_can_be_left_out(
    lengths, labels, hidden, learns_decay, seed, stays
):
    """Those that stay read what they read before, by the kernel and by the definition, and the
    gradient is what it was where the others had none."""
    side = side_of(5, labels, hidden, learns_decay=learns_decay, seed=seed)
    whole = histories_of(lengths, 5 * labels, seed)
    rng = np.random.default_rng(seed)
    asked = rng.permutation(whole.n_rows)[: round(stays * whole.n_rows)].astype(np.int32)
    some, place_p = whole.only(asked)
    assert some.n_rows == len(asked)
    assert sorted(place_p) == list(range(some.n_rows))
    read = read_by(whole)
    assert [read_by(some)[place] for place in place_p] == [read[position] for position in asked]
    for found_qh, expected_qh in (
        (side.encode(some).sums_qh, side.encode(whole).sums_qh),
        (side.sums(some), side.sums(whole)),
    ):
        assert torch.equal(found_qh[place_p], expected_qh[asked])
    grad_qh = np.zeros((whole.n_rows, hidden), np.float32)
    grad_qh[asked] = rng.standard_normal((len(asked), hidden))
    grad_some_qh = np.empty((some.n_rows, hidden), np.float32)
    grad_some_qh[place_p] = grad_qh[asked]
    gradients = [
        gradient_of(side, histories, grads)
        for histories, grads in ((some, grad_some_qh), (whole, grad_qh))
    ]
    assert torch.equal(*gradients)


def gradient_of(side: Side, histories: Histories, grad_qh: np.ndarray) -> torch.Tensor:
    rows = side.encoder_nkh.shape[0] * side.encoder_nkh.shape[1]
    entries = np.where(histories.indices < 0, rows, histories.indices)
    offsets, order = sampling.group(entries, rows + 1)
    context = Context(histories, Csr(offsets[:-1], order))
    gradient_nkh = torch.full_like(side.encoder_nkh, torch.nan)
    encode_backward(side, context, grad_qh, False, gradient_nkh)
    return gradient_nkh


@settings(max_examples=60, deadline=None)
@given(**{**CASES, "learns_decay": st.just(False)}, every_other=st.booleans())
def test_units_without_decay_have_the_same_gradient_by_sums_of_later_gradients(
    lengths, labels, hidden, learns_decay, seed, every_other
):
    side = side_of(5, labels, hidden, learns_decay=learns_decay, seed=seed)
    histories = histories_of(lengths, 5 * labels, seed)
    if every_other:
        histories, _ = histories.only(np.arange(0, histories.n_rows, 2, dtype=np.int32))
    grad_qh = np.random.default_rng(seed).standard_normal((histories.n_rows, hidden))
    grad_qh = grad_qh.astype(np.float32)
    table = side.encoder_nkh.clone().requires_grad_()
    bias_h = side.encoder_bias_h.clone().requires_grad_()
    of_torch = histories.on(torch.device("cpu"))
    sums_qh = reference.scan(table, bias_h, *of_torch, *side.decay_and_scale())
    total = (sums_qh * torch.from_numpy(grad_qh)).sum()
    (expected,) = torch.autograd.grad(total, table, materialize_grads=True)
    found = gradient_of(side, histories, grad_qh)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_without_a_memory_a_state_is_the_sum_of_the_paper():
    side = side_of(4, 1, 3, learns_decay=False, seed=0)
    histories = histories_of([6], 4, 1)
    own = histories.indices[histories.indices >= 0]
    expected = side.encoder_nkh[own, 0].sum(0) + side.encoder_bias_h
    np.testing.assert_allclose(side.encode(histories).sums_qh[-1], expected, rtol=1e-5)


def test_the_gradient_of_the_log_times_is_that_of_finite_differences():
    log_time_constants_h = torch.linspace(-1.0, 5.0, 7, dtype=torch.float64)
    by_decay_h, by_scale_h = torch.randn(2, 7, dtype=torch.float64)

    def total(at_h: torch.Tensor) -> torch.Tensor:
        decay_h, scale_h = decay_and_scale(at_h)
        return decay_h * by_decay_h + scale_h * by_scale_h

    step = 1e-6
    expected = (total(log_time_constants_h + step) - total(log_time_constants_h - step)) / (
        2 * step
    )
    found = log_time_constants_gradient(log_time_constants_h, by_decay_h, by_scale_h)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_units_begin_with_memories_from_short_to_long():
    side = side_of(4, 1, 50, learns_decay=True, seed=0)
    decay_h, scale_h = side.decay_and_scale()
    times_h = -1 / torch.log(decay_h.double())
    assert times_h[0] == pytest.approx(0.3, rel=1e-3)
    assert times_h[-1] == pytest.approx(200, rel=1e-2)
    # What f reads has one variance whatever the memory: 9 / (1 - decay^2) of it is undone.
    np.testing.assert_allclose(scale_h**2 / (1 - decay_h**2), 9.0, rtol=1e-2)
