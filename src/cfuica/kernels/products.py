"""Products of vectors whose bits depend on the two vectors alone."""
# mypy: allow-untyped-defs, no-check-untyped-defs

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def products(vectors_mh, asked_bh, out_mb, start, stop):
    """out[m, b] = vectors[m] . asked[b], unlike that of a library whatever else is asked."""
    hidden = vectors_mh.shape[1]
    for m in range(start, stop):
        vector_h = vectors_mh[m]
        for b in range(asked_bh.shape[0]):
            asked_h = asked_bh[b]
            total = np.float32(0.0)
            for h in range(hidden):
                total += vector_h[h] * asked_h[h]
            out_mb[m, b] = total
