"""From activations or distributions over K labels to one number per pair."""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.kernels.compiled import VECTORISE


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def expected(activation_bmk, values_k, out_bm, start, stop):
    """out = the mean of `values_k` (ascending) under the softmax of Eqn. (7). (B, M)."""
    members, labels = activation_bmk.shape[1:]
    lowest = values_k[0]
    highest = values_k[labels - 1]
    for b in range(start, stop):
        for m in range(members):
            largest = activation_bmk[b, m, 0]
            for k in range(1, labels):
                largest = max(largest, activation_bmk[b, m, k])
            total = np.float32(0.0)
            above = np.float32(0.0)
            for k in range(labels):
                weight = np.exp(activation_bmk[b, m, k] - largest)
                total += weight
                above += weight * (values_k[k] - lowest)
            # Rounding must not carry it beyond the end of the scale.
            mean = lowest + above / total
            out_bm[b, m] = highest if mean > highest else mean


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def worst(probability_bmk, values_k, share, out_bm, start, stop):
    """out = the mean of `values_k` (ascending) over the lowest `share` of each distribution."""
    members, labels = probability_bmk.shape[1:]
    lowest = values_k[0]
    highest = values_k[labels - 1]
    for b in range(start, stop):
        for m in range(members):
            left = share
            above = np.float32(0.0)
            for k in range(labels):
                part = min(left, probability_bmk[b, m, k])
                above += part * (values_k[k] - lowest)
                left -= part
            # Probabilities that sum to a little less than 1 may leave a share of 1 unfilled.
            mean = lowest + above / (share - left)
            out_bm[b, m] = highest if mean > highest else mean
