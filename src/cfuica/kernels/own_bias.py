"""How far a history is from what was predicted of it."""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE
from cfuica.kernels.encode import activate
from cfuica.kernels.live import STEP, _steps


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def residuals(
    rows_rh, bias_h, sums_rh, removed_r, gain_r, entries_n, labels_n, decoder_nkh, base_nk,
    place_k, activation, surplus_r, variance_r, start, stop,
):  # fmt: skip
    """For each of R versions of a history of n behaviours, over those that are in it: the sum of
    what was given less what was expected, and the sum of the predicted variances.

    Each behaviour is predicted from the others. Version r is without behaviour removed[r] (-1:
    whole), `sums_rh` are its float64 sums, and gain[r] that of a sum of one behaviour less.
    entries (n) are rows of W, decoder_nkh and base_nk what a hidden vector is decoded with, place_k
    the labels' places from -1 to 1.
    """
    n, labels, hidden = decoder_nkh.shape
    single_h = np.empty(hidden, np.float32)
    values_h = np.empty(hidden, np.float32)
    p_k = np.empty(labels, np.float32)
    for r in range(start, stop):
        sums_h = sums_rh[r]
        gain = np.float64(gain_r[r])
        surplus = 0.0
        variance = 0.0
        for i in range(n):
            if i == removed_r[r]:
                continue
            row_h = rows_rh[entries_n[i]]
            for h in range(hidden):
                rest = sums_h[h] - _steps(row_h[h]) * STEP
                single_h[h] = np.float32(bias_h[h] + gain * (rest - bias_h[h]))
            activate(single_h, values_h, activation)
            highest = np.float32(-np.inf)
            for k in range(labels):
                column_h = decoder_nkh[i, k]
                total = base_nk[i, k]
                for h in range(hidden):
                    total += values_h[h] * column_h[h]
                p_k[k] = total
                highest = max(highest, total)
            total = np.float32(0.0)
            mean = np.float32(0.0)
            square = np.float32(0.0)
            for k in range(labels):
                p = np.exp(p_k[k] - highest)
                total += p
                mean += p * place_k[k]
                square += p * place_k[k] * place_k[k]
            mean /= total
            surplus += place_k[labels_n[i]] - mean
            variance += square / total - mean * mean
        surplus_r[r] = surplus
        variance_r[r] = variance
