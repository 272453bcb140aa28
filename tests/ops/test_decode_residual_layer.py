"""The extra layer against its definition."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import reference
from cfuica.ops.decode import residual_layer


@settings(max_examples=60, deadline=None)
@given(
    queries=st.integers(1, 9),
    hidden=st.integers(1, 40),
    units=st.integers(1, 40),
    seed=st.integers(0, 999),
)
def test_rows_are_those_of_the_definition_and_know_of_no_other_row(queries, hidden, units, seed):
    rng = np.random.default_rng(seed)
    hidden_qh, into_hu, bias_u, back_uh = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((queries, hidden), (hidden, units), (units,), (units, hidden))
    )
    found_qh = np.empty_like(hidden_qh)
    residual_layer(hidden_qh, into_hu, bias_u, back_uh, found_qh, 0, queries)
    tensors = (torch.from_numpy(each) for each in (hidden_qh, into_hu, bias_u, back_uh))
    np.testing.assert_allclose(found_qh, reference.residual_layer(*tensors), rtol=1e-4, atol=1e-4)
    alone_qh = np.empty_like(hidden_qh)
    for q in range(queries):
        residual_layer(
            hidden_qh[q : q + 1].copy(), into_hu, bias_u, back_uh, alone_qh[q : q + 1], 0, 1
        )
    np.testing.assert_array_equal(found_qh, alone_qh)
