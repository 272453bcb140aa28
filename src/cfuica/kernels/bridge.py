"""The bridge: what one side's hidden vectors ask of the other side's."""

from __future__ import annotations

from numba import njit

from cfuica.kernels.compiled import VECTORISE

# Rows of the bridge that are read for every query before the next ones: they stay in the cache.
_ROWS = 16


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def bridge(hidden_qh, bridge_ghku, out_qku, start, stop):
    """out[q, k] = the sum over h of hidden[q, h] * bridge[h, k], block g by block g.

    Block g reads the hidden units g * H .. (g + 1) * H and writes the units g * U .. (g + 1) * U.
    """
    blocks, hidden, labels, units = bridge_ghku.shape
    out_qku[start:stop] = 0.0
    for g in range(blocks):
        for low in range(0, hidden, _ROWS):
            high = min(low + _ROWS, hidden)
            for q in range(start, stop):
                for k in range(labels):
                    out_u = out_qku[q, k, g * units : (g + 1) * units]
                    h = low
                    while h + 1 < high:  # two rows share each load and store of the output
                        first = hidden_qh[q, g * hidden + h]
                        second = hidden_qh[q, g * hidden + h + 1]
                        first_u = bridge_ghku[g, h, k]
                        second_u = bridge_ghku[g, h + 1, k]
                        for u in range(units):
                            out_u[u] += first * first_u[u] + second * second_u[u]
                        h += 2
                    if h < high:
                        first = hidden_qh[q, g * hidden + h]
                        first_u = bridge_ghku[g, h, k]
                        for u in range(units):
                            out_u[u] += first * first_u[u]
