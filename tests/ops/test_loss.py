"""The losses of pairs: compiled against the reference, and at the edges of float32."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import loss
from cfuica.ops.loss import bernoulli_loss, rating_loss
from cfuica.ops.reference import ORDINAL_FLOOR
from tests.ops.compare import equals_reference
from tests.ops.shapes import LABELS, SEEDS

SPREADS = st.sampled_from([0.1, 1.0, 5.0, 20.0])


@settings(max_examples=100, deadline=None)
@given(
    labels=LABELS,
    pairs=st.integers(0, 12),
    ordinal_weight=st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1, width=32)),
    spread=SPREADS,
    is_weighted=st.booleans(),
    seed=SEEDS,
)
def test_rating_loss_equals_the_reference(labels, pairs, ordinal_weight, spread, is_weighted, seed):
    rng = np.random.default_rng(seed)
    logits_pk = rng.normal(0, spread, (pairs, labels)).astype(np.float32)
    labels_p = rng.integers(0, labels, pairs).astype(np.uint8)
    weights_p = rng.uniform(0, 3, pairs).astype(np.float32) if is_weighted else None
    equals_reference(
        lambda logits_pk: rating_loss(logits_pk, labels_p, ordinal_weight, weights_p),
        inputs=[logits_pk],
    )


@settings(max_examples=60, deadline=None)
@given(pairs=st.integers(0, 12), spread=SPREADS, is_weighted=st.booleans(), seed=SEEDS)
def test_bernoulli_loss_equals_the_reference(pairs, spread, is_weighted, seed):
    rng = np.random.default_rng(seed)
    logits_p1 = rng.normal(0, spread, (pairs, 1)).astype(np.float32)
    labels_p = rng.integers(0, 2, pairs).astype(np.uint8)
    weights_p = rng.uniform(0, 3, pairs).astype(np.float32) if is_weighted else None
    equals_reference(
        lambda logits_p1: bernoulli_loss(logits_p1, labels_p, weights_p), inputs=[logits_p1]
    )


@pytest.mark.parametrize("ops", ["compiled", "reference"])
def test_a_pair_of_weight_three_counts_three_times(ops, monkeypatch):
    if ops == "reference":
        monkeypatch.setenv("CFUICA_OPS", "reference")
    logits_p1, labels_p = torch.tensor([[0.3], [-1.2]]), np.array([1, 0], np.uint8)
    logits_pk = torch.tensor([[0.3, 0.1], [-1.2, 0.4]])
    weights_p = np.array([3, 0.5], np.float32)
    for loss_of, logits in (
        (bernoulli_loss, logits_p1),
        (lambda *arguments: rating_loss(*arguments[:2], 0.7, *arguments[2:]), logits_pk),
    ):
        single = [float(loss_of(logits[[at]], labels_p[[at]])) for at in range(2)]
        weighted = float(loss_of(logits, labels_p, weights_p))
        assert weighted == pytest.approx(3 * single[0] + 0.5 * single[1], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_are_float64_scalars(dtype):
    """A float32 sum of a million losses has three digits fewer."""
    logits_pk, labels_p = torch.zeros(3, 2, dtype=dtype, requires_grad=True), np.zeros(3, np.uint8)
    rated, binary = logits_pk, logits_pk[:, :1]
    for total in (rating_loss(rated, labels_p, 0.5), bernoulli_loss(binary, labels_p)):
        assert (total.dtype, total.shape) == (torch.float64, ())
        (grad,) = torch.autograd.grad(total, logits_pk)
        assert grad.dtype == dtype


def test_a_loss_may_be_differentiated_twice_from_the_same_graph():
    logits_pk = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    total = 0.5 * rating_loss(logits_pk, np.zeros(5, np.uint8), 1.0)
    first, second = (torch.autograd.grad(total, logits_pk, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def by_kernel(logits_pk, labels_p, ordinal_weight):
    """The losses (P) and gradients (P, K) of single pairs."""
    loss_p = np.full(len(labels_p), np.nan, np.float32)
    grad_pk = np.full(logits_pk.shape, np.nan, np.float32)
    weights = np.float32(ordinal_weight), np.float32(ORDINAL_FLOOR)
    loss._rating(logits_pk, labels_p, *weights, loss_p, grad_pk, 0, len(labels_p))
    return loss_p, grad_pk


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("labels", "true"), [(5, range(5)), (255, (0, 128, 254))])
def test_the_loss_of_every_true_label_equals_the_reference(labels, true, ordinal_weight):
    """Also of as many labels as a byte holds."""
    logits_pk = np.random.default_rng(0).normal(size=(len(true), labels)).astype(np.float32)
    labels_p = np.array(true, np.uint8)
    equals_reference(
        lambda logits_pk: rating_loss(logits_pk, labels_p, ordinal_weight),
        inputs=[logits_pk],
        near=1e-4,
    )


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.5, 1.0])
def test_certain_and_wrong_stays_finite(ordinal_weight):
    logits_pk = np.float32([[500, -500, 0], [-500, 500, 0]])
    loss_p, grad_pk = by_kernel(logits_pk, np.uint8([1, 0]), ordinal_weight)
    assert np.isfinite(loss_p).all()
    assert np.isfinite(grad_pk).all()
    assert (loss_p > 5).all()


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.5, 1.0])
def test_gradients_of_a_pair_sum_to_zero(ordinal_weight):
    """The softmax does not feel a constant added to all logits."""
    rng = np.random.default_rng(1)
    logits_pk = rng.normal(size=(40, 5)).astype(np.float32)
    labels_p = rng.integers(0, 5, 40).astype(np.uint8)
    _, grad_pk = by_kernel(logits_pk, labels_p, ordinal_weight)
    np.testing.assert_allclose(grad_pk.sum(1), 0, atol=1e-5)


@pytest.mark.parametrize("column", [0, 2, 4])
def test_not_a_number_stays_visible(column):
    logits_pk = np.zeros((1, 5), np.float32)
    logits_pk[0, column] = np.nan
    for true in range(5):
        for ordinal_weight in (0.0, 1.0):
            loss_p, grad_pk = by_kernel(logits_pk, np.uint8([true]), ordinal_weight)
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
        far = by_kernel(far_pk, labels_p, 0.5)
        others = [_malloc(128) for _ in range(10)]  # what else the kernel might take
        _free(behind)
        near = by_kernel(near_pk, labels_p[:1], 0.5)
        for address in (before, *others):
            _free(address)
        np.testing.assert_array_equal(near[0][0], far[0][0])
        np.testing.assert_array_equal(near[1][0], far[1][0])
    for pair in pairs[60:]:
        for address in pair:
            _free(address)
