"""The bridge: what one side's hidden vectors ask of the other side's."""

from __future__ import annotations

from numba import njit

from cfuica.kernels.compiled import VECTORISE

# Rows of the bridge that are read for every query before the next ones: they stay in the cache.
_ROWS = 16


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def bridge(hidden_qh, bridge_hku, out_qku, start, stop):
    """out[q, k] = the sum over h of hidden[q, h] * bridge[h, k]."""
    hidden, labels, units = bridge_hku.shape
    out_qku[start:stop] = 0.0
    for low in range(0, hidden, _ROWS):
        high = min(low + _ROWS, hidden)
        for q in range(start, stop):
            for k in range(labels):
                out_u = out_qku[q, k]
                h = low
                while h + 1 < high:  # two rows share each load and store of the output
                    first = hidden_qh[q, h]
                    second = hidden_qh[q, h + 1]
                    first_u = bridge_hku[h, k]
                    second_u = bridge_hku[h + 1, k]
                    for u in range(units):
                        out_u[u] += first * first_u[u] + second * second_u[u]
                    h += 2
                if h < high:
                    first = hidden_qh[q, h]
                    first_u = bridge_hku[h, k]
                    for u in range(units):
                        out_u[u] += first * first_u[u]
