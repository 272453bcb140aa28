from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.baselines.cases import pairs_between
from cfuica.ops import reference
from cfuica.ops.decode import weighted_sums


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 6)] * 4),
    n_pairs=st.integers(0, 25),
    seed=st.integers(0, 1000),
)
def test_sums_and_gradients_are_those_of_the_definition(shape, n_pairs, seed) -> None:
    n_queries, n_rows, n_labels, units = shape
    rng = np.random.default_rng(seed)
    queries_p, rows_p = rng.integers(0, n_queries, n_pairs), rng.integers(0, n_rows, n_pairs)
    pairs = pairs_between(queries_p, rows_p, n_queries, n_rows)
    weights_pk = rng.normal(size=(n_pairs, n_labels)).astype(np.float32)
    start = rng.normal(size=(n_rows, n_labels, units)).astype(np.float32)
    readers_qh = torch.from_numpy(rng.normal(size=(n_queries, units)))
    single = torch.from_numpy(start).requires_grad_()
    double = torch.from_numpy(start).double().requires_grad_()
    found_qh = weighted_sums(single, pairs, weights_pk)
    expected_qh = reference.weighted_sums(
        double,
        torch.from_numpy(rows_p),
        torch.from_numpy(weights_pk).double(),
        torch.from_numpy(queries_p),
        n_queries,
    )
    np.testing.assert_allclose(found_qh.detach(), expected_qh.detach(), atol=1e-4)
    (found_qh * readers_qh.float()).sum().backward()
    (expected_qh * readers_qh).sum().backward()
    assert single.grad is not None
    assert double.grad is not None
    np.testing.assert_allclose(single.grad, double.grad, atol=1e-4)


def test_the_sums_are_taken_over_pairs_one_by_one() -> None:
    pairs = pairs_between(np.array([0, 0, 1]), np.array([1, 1, 0]), 3, 2)
    rows_gkh = torch.tensor([[[1.0]], [[10.0]]])
    sums_qh = weighted_sums(rows_gkh, pairs, np.array([[2.0], [3.0], [4.0]], np.float32))
    assert sums_qh.flatten().tolist() == pytest.approx([50.0, 4.0, 0.0])
