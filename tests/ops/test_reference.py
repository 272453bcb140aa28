"""The definitions: losses worked out by hand from the NOTES' formula, and label sharing."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import reference
from cfuica.ops.reference import ORDINAL_FLOOR, mixed_loss, ordinal_loss, softmax_loss
from tests.model import reference as second_reading

F = 1e-4  # the floor of the published experiments


def loss_of(function, probabilities, label):
    """`function` for logits whose softmax is `probabilities`."""
    logits_pk = torch.tensor([probabilities], dtype=torch.float64).log()
    return float(function(logits_pk, torch.tensor([label])))


def test_the_floor_is_that_of_the_published_experiments():
    assert ORDINAL_FLOOR == 1e-4


@pytest.mark.parametrize("label", [0, 1, 2])
def test_softmax_loss_is_minus_log_p_of_the_label(label):
    probabilities = [0.2, 0.5, 0.3]
    assert loss_of(softmax_loss, probabilities, label) == pytest.approx(-log(probabilities[label]))


def test_ordinal_loss_of_three_equal_labels():
    """Label 1: p1/p1, then p1/(p1+p2+p3) p2/(p2+p3) p3/p3 = 1/6. Label 2: 1/2 * 1/2."""
    third = [1 / 3] * 3
    assert loss_of(ordinal_loss, third, 0) == pytest.approx(log(6))
    assert loss_of(ordinal_loss, third, 1) == pytest.approx(log(4))
    assert loss_of(ordinal_loss, third, 2) == pytest.approx(log(6))


@pytest.mark.parametrize(
    ("label", "product"),
    [
        # on the way up to the label, then on the way down to it, with the floor in every p
        (0, (0.1 + F) / (1 + 5 * F) * (0.2 + F) / (0.9 + 4 * F) * (0.4 + F) / (0.7 + 3 * F)
            * (0.25 + F) / (0.3 + 2 * F)),
        (2, (0.2 + F) / (0.3 + 2 * F) * (0.4 + F) / (0.7 + 3 * F)
            * (0.4 + F) / (0.7 + 3 * F) * (0.25 + F) / (0.3 + 2 * F)),
        (4, (0.2 + F) / (0.3 + 2 * F) * (0.4 + F) / (0.7 + 3 * F) * (0.25 + F) / (0.95 + 4 * F)
            * (0.05 + F) / (1 + 5 * F)),
    ],
)  # fmt: skip
def test_ordinal_loss_of_five_labels_by_hand(label, product):
    probabilities = [0.1, 0.2, 0.4, 0.25, 0.05]
    assert loss_of(ordinal_loss, probabilities, label) == pytest.approx(-log(product), rel=1e-12)


def test_ordinal_loss_of_two_labels_is_the_floored_nll_and_of_one_label_nothing():
    assert loss_of(ordinal_loss, [0.8, 0.2], 0) == pytest.approx(-log((0.8 + F) / (1 + 2 * F)))
    assert loss_of(ordinal_loss, [0.8, 0.2], 1) == pytest.approx(-log((0.2 + F) / (1 + 2 * F)))
    assert loss_of(ordinal_loss, [1.0], 0) == 0.0


def test_ordinal_loss_minds_the_distance_and_softmax_loss_does_not():
    near, far = [0.05, 0.05, 0.05, 0.80, 0.05], [0.80, 0.05, 0.05, 0.05, 0.05]
    assert loss_of(softmax_loss, near, 4) == pytest.approx(loss_of(softmax_loss, far, 4))
    assert loss_of(ordinal_loss, near, 4) < loss_of(ordinal_loss, far, 4) - 1


@settings(max_examples=60, deadline=None)
@given(
    labels=st.integers(1, 10),
    weight=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_mix_equals_the_formula(labels, weight, seed):
    rng = np.random.default_rng(seed)
    logits_pk = rng.normal(0, 3, (4, labels))
    label_p = rng.integers(0, labels, 4)
    loss_p = mixed_loss(torch.from_numpy(logits_pk), torch.from_numpy(label_p), weight)
    loss = second_reading.mixed(weight)
    expected = [loss(row, label) for row, label in zip(logits_pk, label_p, strict=True)]
    np.testing.assert_allclose(loss_p.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_accumulate_differences_and_stored_gradient_belong_together():
    rng = torch.Generator().manual_seed(0)
    stored = torch.rand(4, 5, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    used = reference.accumulate(stored)
    assert torch.allclose(used[:, 2], stored[:, :3].sum(1))
    assert torch.allclose(reference.differences(used), stored)
    grad = torch.rand(4, 5, 3, generator=rng, dtype=torch.float64)
    (by_autograd,) = torch.autograd.grad((used * grad).sum(), stored)
    assert torch.allclose(reference.stored_gradient(grad), by_autograd)
