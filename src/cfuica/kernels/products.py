"""Products of vectors whose bits depend on the two vectors alone."""
# mypy: allow-untyped-defs, no-check-untyped-defs

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def products(vectors_mh, asked_bh, out_mb, start, stop):
    """out[m, b] = vectors[m] . asked[b], unlike that of a library whatever else is asked."""
    for m in range(start, stop):
        for b in range(asked_bh.shape[0]):
            out_mb[m, b] = _product(vectors_mh[m], asked_bh[b])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def paired(first_ph, second_ph, out_p, start, stop):
    """out[p] = first[p] . second[p], with the bits that `products` gives them."""
    for p in range(start, stop):
        out_p[p] = _product(first_ph[p], second_ph[p])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def chosen(vectors_mh, members_bc, asked_bh, out_bc, start, stop):
    """out[b, c] = vectors[members[b, c]] . asked[b], without a copy of the vectors."""
    for b in range(start, stop):
        for c in range(members_bc.shape[1]):
            out_bc[b, c] = _product(vectors_mh[members_bc[b, c]], asked_bh[b])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _product(first_h, second_h):
    total = np.float32(0.0)
    for h in range(len(first_h)):
        total += first_h[h] * second_h[h]
    return total
