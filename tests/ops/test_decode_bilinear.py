"""The bilinear interaction's kernel, against the torch definition."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops import decode, reference
from tests.ops.shapes import EXAMPLES


@EXAMPLES
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 20)),
    queries=st.integers(0, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_are_the_hidden_vectors_times_the_bilinear_form(shape, queries, seed):
    rng = np.random.default_rng(seed)
    table_hku = rng.normal(size=shape).astype(np.float32)
    hidden, labels, units = shape
    hidden_qh = rng.normal(size=(queries, hidden)).astype(np.float32)
    out_qku = np.full((queries, labels, units), np.nan, np.float32)
    decode.bilinear(hidden_qh, table_hku, out_qku, 0, queries)
    expected_qku = reference.bilinear(
        torch.from_numpy(hidden_qh).double(), torch.from_numpy(table_hku).double()
    )
    np.testing.assert_allclose(out_qku, expected_qku, rtol=1e-4, atol=1e-4)
    # A row has the same bits whatever else is asked, and touches no other.
    again_qku = np.full_like(out_qku, 7.0)
    for q in range(0, queries, 2):
        decode.bilinear(hidden_qh, table_hku, again_qku, q, q + 1)
    assert np.array_equal(again_qku[::2], out_qku[::2])
    assert (again_qku[1::2] == 7.0).all()
