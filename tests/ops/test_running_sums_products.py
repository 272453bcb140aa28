"""Products of vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops.running_sums import chosen, products
from cfuica.ops.runtime import paired, run_rows


def product(vectors_mh, query_bh):
    out_mb = np.full((len(vectors_mh), len(query_bh)), np.nan, np.float32)
    run_rows(products, len(vectors_mh), vectors_mh, query_bh, out_mb)
    return out_mb


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 70)),
    seed=st.integers(0, 2**16),
)
def test_they_are_those_of_a_matrix_and_depend_on_two_vectors_alone(shape, seed):
    m, b, h = shape
    rng = np.random.default_rng(seed)
    vectors_mh, query_bh = (rng.normal(size=(n, h)).astype(np.float32) for n in (m, b))
    out_mb = product(vectors_mh, query_bh)
    np.testing.assert_allclose(out_mb, vectors_mh @ query_bh.T, rtol=1e-4, atol=1e-4)
    order = rng.permutation(m)
    for at in range(b):
        alone_m1 = product(vectors_mh[order], query_bh[at : at + 1])
        np.testing.assert_array_equal(alone_m1[:, 0], out_mb[order, at])


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 5), st.integers(1, 70)),
    seed=st.integers(0, 2**16),
)
def test_pairs_and_chosen_ones_have_the_same_bits(shape, seed):
    indices, asked, hidden = shape
    rng = np.random.default_rng(seed)
    vectors_mh = rng.normal(size=(indices, hidden)).astype(np.float32)
    query_bh = rng.normal(size=(asked, hidden)).astype(np.float32)
    out_mb = np.empty((indices, asked), np.float32)
    products(vectors_mh, query_bh, out_mb, 0, indices)
    first, second = rng.integers(0, indices, 9), rng.integers(0, asked, 9)
    out_p = np.empty(9, np.float32)
    paired(vectors_mh[first], query_bh[second], out_p, 0, 9)
    np.testing.assert_array_equal(out_p, out_mb[first, second])
    paired(query_bh[second], vectors_mh[first], out_p, 0, 9)
    np.testing.assert_array_equal(out_p, out_mb[first, second])
    indices_bc = rng.integers(0, indices, (asked, 3))
    out_bc = np.empty((asked, 3), np.float32)
    chosen(vectors_mh, indices_bc, query_bh, out_bc, 0, asked)
    np.testing.assert_array_equal(out_bc, out_mb[indices_bc, np.arange(asked)[:, None]])
