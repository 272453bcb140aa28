"""The cost of a pair and its gradient, against `likelihood.mixed_loss` and autograd in float64."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import loss
from cfuica.ops.reference import ORDINAL_FLOOR, mixed_loss
from tests.ops.shapes import LABELS


def run_cost(logits_pk, labels_p, ordinal_weight, factor):
    loss_p = np.full(len(labels_p), np.nan, np.float32)
    grad_pk = np.full(logits_pk.shape, np.nan, np.float32)
    loss.rating_loss(
        logits_pk,
        labels_p,
        np.float32(ordinal_weight),
        np.float32(ORDINAL_FLOOR),
        np.float32(factor),
        loss_p,
        grad_pk,
        0,
        len(labels_p),
    )
    return loss_p, grad_pk


def defined_cost(logits_pk, labels_p, ordinal_weight):
    """Costs and gradients in float64."""
    leaf = torch.from_numpy(logits_pk).double().requires_grad_()
    loss_p = mixed_loss(leaf, torch.from_numpy(labels_p).long(), ordinal_weight)
    (grad_pk,) = torch.autograd.grad(loss_p.sum(), leaf)
    return loss_p.detach().numpy(), grad_pk.numpy()


@settings(max_examples=100, deadline=None)
@given(
    labels=LABELS,
    pairs=st.integers(0, 12),
    ordinal_weight=st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1, width=32)),
    factor=st.sampled_from([1.0, 0.0078125, 3.0, 100.0]),
    spread=st.sampled_from([0.1, 1.0, 5.0, 20.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_loss_and_gradient_equal_the_reference(labels, pairs, ordinal_weight, factor, spread, seed):
    rng = np.random.default_rng(seed)
    logits_pk = rng.normal(0, spread, (pairs, labels)).astype(np.float32)
    labels_p = rng.integers(0, labels, pairs).astype(np.uint8)
    loss_p, grad_pk = run_cost(logits_pk, labels_p, ordinal_weight, factor)
    expected_p, expected_pk = defined_cost(logits_pk, labels_p, ordinal_weight)
    np.testing.assert_allclose(loss_p, expected_p, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(grad_pk, factor * expected_pk, rtol=1e-5, atol=1e-5 * factor)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.3, 1.0])
def test_loss_of_every_true_label_equals_the_reference(ordinal_weight):
    labels_p = np.arange(5, dtype=np.uint8)
    logits_pk = np.tile(np.float32([0.3, -1.2, 0.8, 2.0, -0.4]), (5, 1))
    loss_p, grad_pk = run_cost(logits_pk, labels_p, ordinal_weight, 1.0)
    expected_p, expected_pk = defined_cost(logits_pk, labels_p, ordinal_weight)
    np.testing.assert_allclose(loss_p, expected_p, rtol=1e-5)
    np.testing.assert_allclose(grad_pk, expected_pk, rtol=1e-5, atol=1e-6)


def test_255_labels_fit_in_a_byte():
    logits_pk = np.random.default_rng(0).normal(size=(3, 255)).astype(np.float32)
    labels_p = np.array([0, 128, 254], np.uint8)
    loss_p, grad_pk = run_cost(logits_pk, labels_p, 0.5, 1.0)
    expected_p, expected_pk = defined_cost(logits_pk, labels_p, 0.5)
    np.testing.assert_allclose(loss_p, expected_p, rtol=1e-5)
    np.testing.assert_allclose(grad_pk, expected_pk, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.5, 1.0])
def test_certain_and_wrong_stays_finite(ordinal_weight):
    logits_pk = np.float32([[500, -500, 0], [-500, 500, 0]])
    loss_p, grad_pk = run_cost(logits_pk, np.uint8([1, 0]), ordinal_weight, 1.0)
    assert np.isfinite(loss_p).all()
    assert np.isfinite(grad_pk).all()
    assert (loss_p > 5).all()


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.5, 1.0])
def test_gradients_of_a_pair_sum_to_zero(ordinal_weight):
    """The softmax does not feel a constant added to all logits."""
    rng = np.random.default_rng(1)
    logits_pk = rng.normal(size=(40, 5)).astype(np.float32)
    labels_p = rng.integers(0, 5, 40).astype(np.uint8)
    _, grad_pk = run_cost(logits_pk, labels_p, ordinal_weight, 1.0)
    np.testing.assert_allclose(grad_pk.sum(1), 0, atol=1e-5)


@pytest.mark.parametrize("column", [0, 2, 4])
def test_not_a_number_stays_visible(column):
    logits_pk = np.zeros((1, 5), np.float32)
    logits_pk[0, column] = np.nan
    for true in range(5):
        for ordinal_weight in (0.0, 1.0):
            loss_p, grad_pk = run_cost(logits_pk, np.uint8([true]), ordinal_weight, 1.0)
            assert np.isnan(loss_p).all()
            assert np.isnan(grad_pk).any()


_malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("PyMem_RawMalloc", ctypes.pythonapi))
_free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyMem_RawFree", ctypes.pythonapi))


def test_bits_do_not_depend_on_where_the_arrays_lie():
    """malloc may lay the arrays inside the kernel right behind the logits; here it does."""
    rng = np.random.default_rng(2)
    far_pk = np.zeros((64, 5), np.float32)
    labels_p = np.full(64, 2, np.uint8)
    blocks = sorted(_malloc(128) for _ in range(1000))  # as large as the arrays inside the kernel
    pairs = sorted(zip(blocks[::2], blocks[1::2], strict=True), key=lambda pair: pair[1] - pair[0])
    for before, behind in pairs[:60]:
        block = (ctypes.c_float * 32).from_address(before)
        near_pk = np.frombuffer(block, np.float32)[-5:].reshape(1, 5)
        near_pk[:] = far_pk[0] = rng.normal(0, 3, 5)
        far = run_cost(far_pk, labels_p, 0.5, 1.0)
        others = [_malloc(128) for _ in range(10)]  # what else the kernel might take
        _free(behind)
        near = run_cost(near_pk, labels_p[:1], 0.5, 1.0)
        for address in (before, *others):
            _free(address)
        np.testing.assert_array_equal(near[0][0], far[0][0])
        np.testing.assert_array_equal(near[1][0], far[1][0])
    for pair in pairs[60:]:
        for address in pair:
            _free(address)
