"""The extra layer: what units of a hidden vector say together."""
# mypy: allow-untyped-defs, no-check-untyped-defs

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def deepen(hidden_qh, into_hu, bias_u, back_uh, out_qh, start, stop):
    """out[q] = h + max(h into + bias, 0) back; the bits of a row depend on that row alone."""
    hidden, units = into_hu.shape
    inner_u = np.empty(units, np.float32)
    for q in range(start, stop):
        inner_u[:] = bias_u
        for h in range(hidden):
            _add_times(inner_u, hidden_qh[q, h], into_hu[h])
        out_qh[q] = hidden_qh[q]
        for u in range(units):
            if inner_u[u] > 0:
                _add_times(out_qh[q], inner_u[u], back_uh[u])


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _add_times(sum_h, by, row_h):
    for h in range(len(sum_h)):
        sum_h[h] += by * row_h[h]
