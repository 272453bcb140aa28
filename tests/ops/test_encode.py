"""Sums over contexts and f of them: compiled against the reference, and f to float32's accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops.encode import activate, bag_sums
from cfuica.ops.tables import Bags, RowTable
from tests.ops.compare import equals_reference
from tests.ops.shapes import ACTIVATIONS, EXAMPLES, problems


@EXAMPLES
@given(problem=problems(), share=st.booleans(), normalised=st.booleans())
def test_bag_sums_equal_the_reference(problem, share, normalised):
    norm_q = problem.norm_q if normalised else None
    equals_reference(
        lambda table: bag_sums(table, problem.bags, norm_q), [problem.table_nkh], share=share
    )


def test_bag_sums_by_hand():
    table = RowTable(torch.arange(12.0).reshape(2, 3, 2))
    bags = Bags(np.array([0, 0, 1, 4], np.int64), np.array([5, 0, 5, 2], np.int32))
    found = bag_sums(table, bags, np.array([7.0, 1.0, 0.5], np.float32))
    assert found.tolist() == [[0, 0], [10, 11], [0.5 * (0 + 10 + 4), 0.5 * (1 + 11 + 5)]]


@EXAMPLES
@given(problem=problems(), activation=st.sampled_from(ACTIVATIONS))
def test_activate_equals_the_reference(problem, activation):
    equals_reference(
        lambda sums_qh, bias_h: activate(sums_qh, bias_h, activation),
        inputs=[problem.hidden_qh, problem.bias_h],
    )


def values_of(x, activation):
    """f(x), of c alone."""
    bias_h = torch.from_numpy(np.asarray(x, np.float32))
    return activate(torch.zeros(1, len(bias_h)), bias_h, activation).numpy()[0]


def test_rational_tanh_is_as_accurate_as_float32_allows():
    x = np.concatenate([np.linspace(-30, 30, 240_001), np.linspace(-0.01, 0.01, 20_001)])
    x = x.astype(np.float32)
    y, truth = values_of(x, "tanh").astype(np.float64), np.tanh(x.astype(np.float64))
    ulp = float(np.finfo(np.float32).eps)
    assert np.abs(y - truth).max() <= 2 * ulp
    nonzero = x != 0
    assert np.abs(y[nonzero] / truth[nonzero] - 1).max() <= 3 * ulp
    assert np.abs(y).max() <= 1.0
    assert np.array_equal(values_of(-x, "tanh"), -values_of(x, "tanh"))


def test_sigmoid_and_relu_are_accurate():
    x = np.linspace(-60, 60, 240_001).astype(np.float32)
    sigmoid = values_of(x, "sigmoid")
    truth = 1.0 / (1.0 + np.exp(-x.astype(np.float64)))
    assert np.abs(sigmoid - truth).max() <= 2 * float(np.finfo(np.float32).eps)
    assert sigmoid.min() >= 0.0
    assert sigmoid.max() <= 1.0
    assert np.array_equal(values_of(x, "relu"), np.maximum(x, 0))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_infinite_sums_saturate(activation):
    low, high = values_of([-np.inf, np.inf], activation)
    expected = {"tanh": (-1, 1), "sigmoid": (0, 1), "relu": (0, np.inf)}[activation]
    assert (low, high) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_not_a_number_stays_visible(activation):
    """The trainer recognises a divergence by it."""
    x = np.zeros(19, np.float32)
    x[[0, 7, 18]] = np.nan
    assert np.array_equal(np.isnan(values_of(x, activation)), np.isnan(x))
