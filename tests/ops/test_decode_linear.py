"""The product of a layer: torch's in training, one whose rows stand alone in inference."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops.decode import linear
from tests.ops.shapes import EXAMPLES


@EXAMPLES
@given(
    queries=st.integers(0, 9),
    hidden=st.integers(1, 40),
    units=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_the_matrix_product_and_rows_do_not_depend_on_each_other(
    queries, hidden, units, seed
):
    rng = np.random.default_rng(seed)
    hidden_qh, weight_hu, plus_u = (
        torch.from_numpy(rng.normal(size=shape).astype(np.float32))
        for shape in ((queries, hidden), (hidden, units), units)
    )
    expected = hidden_qh.double() @ weight_hu.double() + plus_u
    with torch.no_grad():
        found = linear(hidden_qh, weight_hu, plus_u)
        alone = [linear(row[None], weight_hu, plus_u)[0] for row in hidden_qh]
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(*rows) for rows in zip(found, alone, strict=True))
    torch.testing.assert_close(
        linear(hidden_qh, weight_hu, plus_u).double(), expected, rtol=1e-4, atol=1e-4
    )


def test_in_training_it_has_gradients():
    hidden_qh, weight_hu = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    linear(hidden_qh, weight_hu, hidden_qh).sum().backward()
    torch.testing.assert_close(hidden_qh.grad, 1 + weight_hu.detach().sum(1).expand(3, 3))
