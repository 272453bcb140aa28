"""Products of vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.kernels.products import products
from cfuica.kernels.threads import run_rows


def product(vectors_mh, asked_bh):
    out_mb = np.full((len(vectors_mh), len(asked_bh)), np.nan, np.float32)
    run_rows(products, len(vectors_mh), vectors_mh, asked_bh, out_mb)
    return out_mb


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 70)),
    seed=st.integers(0, 2**16),
)
def test_they_are_those_of_a_matrix_and_depend_on_two_vectors_alone(shape, seed):
    m, b, h = shape
    rng = np.random.default_rng(seed)
    vectors_mh, asked_bh = (rng.normal(size=(n, h)).astype(np.float32) for n in (m, b))
    out_mb = product(vectors_mh, asked_bh)
    np.testing.assert_allclose(out_mb, vectors_mh @ asked_bh.T, rtol=1e-4, atol=1e-4)
    order = rng.permutation(m)
    for at in range(b):
        alone_m1 = product(vectors_mh[order], asked_bh[at : at + 1])
        np.testing.assert_array_equal(alone_m1[:, 0], out_mb[order, at])
