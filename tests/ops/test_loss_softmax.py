"""The softmax over a catalogue against torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops.loss import softmax_gradients

NONE = np.empty(0, np.float32)


def by_kernel(logits_qm, of_user_um, user_q, targets, correction_m=NONE, factor=1.0, done=None):
    """(cost, gradients, gradients by user) for a list of target columns per query, and of done
    ones."""
    offsets = np.append(0, np.cumsum([len(own) for own in targets])).astype(np.int64)
    columns = np.array([column for own in targets for column in own], np.int32)
    done = done or [[] for _ in targets]
    seen_stop_q = np.cumsum([len(own) for own in done])
    seen_start_q = seen_stop_q - [len(own) for own in done]
    seen_columns = np.array([column for own in done for column in own], np.int32)
    grad_qm = logits_qm.astype(np.float32)
    grad_um = np.zeros_like(of_user_um)
    cost = softmax_gradients(
        grad_qm, of_user_um, user_q, offsets, columns, seen_columns, seen_start_q, seen_stop_q,
        correction_m, factor, grad_um, 0, len(grad_qm),
    )  # fmt: skip
    return cost, grad_qm, grad_um


@settings(max_examples=80, deadline=None)
@given(
    queries=st.integers(1, 5),
    columns=st.integers(2, 40),
    spread=st.sampled_from([0.1, 3.0, 30.0]),
    factor=st.sampled_from([1.0, 0.01]),
    is_sampled=st.booleans(),
    n_done=st.integers(0, 20),
    seed=st.integers(0, 999),
)
def test_loss_and_gradients_are_those_of_the_reference(
    queries, columns, spread, factor, is_sampled, n_done, seed
):
    rng = np.random.default_rng(seed)
    logits_qm = (spread * rng.standard_normal((queries, columns))).astype(np.float32)
    of_user_um = rng.standard_normal((2, columns)).astype(np.float32)
    user_q = rng.integers(0, 2, queries).astype(np.int32)
    targets = [
        rng.choice(columns, rng.integers(0, min(3, columns)), replace=False) for _ in range(queries)
    ]
    correction_m = NONE
    if is_sampled:
        correction_m = rng.choice([-np.inf, 0.7], columns).astype(np.float32)
    done = [rng.choice(columns, min(n_done, columns), replace=False) for _ in range(queries)]
    cost, grad_qm, grad_um = by_kernel(
        logits_qm, of_user_um, user_q, targets, correction_m, factor, done
    )
    leaf = torch.from_numpy(logits_qm).double().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for q, own in enumerate(targets):
        row_m = leaf[q] + torch.from_numpy(of_user_um[user_q[q]])
        add_m = torch.zeros(columns, dtype=torch.float64)
        if is_sampled:
            add_m += torch.from_numpy(correction_m)
        add_m[torch.from_numpy(done[q])] = -torch.inf
        add_m[torch.from_numpy(own)] = 0.0
        row_m = row_m + add_m
        for column in own:
            total = total - factor * torch.log_softmax(row_m, 0)[column]
    if total.requires_grad:
        total.backward()
        np.testing.assert_allclose(grad_qm, leaf.grad, rtol=1e-4, atol=2e-6 * factor)
    assert cost == pytest.approx(float(total.detach()), rel=1e-4, abs=1e-5 * factor)
    by_user_um = np.zeros_like(grad_um)
    np.add.at(by_user_um, user_q, grad_qm)
    np.testing.assert_allclose(grad_um, by_user_um, rtol=1e-5, atol=1e-6 * factor)


def test_exponentials_are_right_to_float32_over_their_whole_range():
    x = np.linspace(-86, 0, 10_001, dtype=np.float32)
    _, grad_qm, _ = by_kernel(
        x[None], np.zeros((1, x.size), np.float32), np.zeros(1, np.int32), [[x.size - 1]]
    )
    expected = torch.softmax(torch.from_numpy(x).double(), 0)
    np.testing.assert_allclose(grad_qm[0, :-1], expected[:-1], rtol=3e-6)


def test_huge_logits_overflow_nothing():
    logits = np.array([[1e4, -1e4, 9.999e3]], np.float32)
    cost, grad_qm, _ = by_kernel(logits, np.zeros((1, 3), np.float32), np.zeros(1, np.int32), [[0]])
    assert cost == pytest.approx(np.log1p(np.exp(-1.0)), rel=1e-3)
    assert np.isfinite(grad_qm).all()


def test_a_position_without_a_target_has_no_loss_and_no_gradient():
    cost, grad_qm, grad_um = by_kernel(
        np.ones((1, 4)), np.ones((1, 4), np.float32), np.zeros(1, np.int32), [[]]
    )
    assert cost == 0
    assert not grad_qm.any()
    assert not grad_um.any()
