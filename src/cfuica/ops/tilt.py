"""Calibration of distributions with their means kept: temperature, bias and exponential tilt."""

from __future__ import annotations

import numpy as np
from numba import njit

# Means are compared by log((1 + mean) / (1 - mean)), which distinguishes means that differ by less
# than a rounding near an end of the scale. An error of this size is less than 3e-7 of the scale.
_TOLERANCE = 1e-6
# A distribution with less than this share away from one end of the scale is left as it is.
_SATURATED = 1e-280
# Newton takes two or three steps; a bisection from anywhere takes less than this.
_MOST_STEPS = 200


@njit(nogil=True, cache=True, error_model="numpy")
def calibrate(logits_pk, inverse_temperature, bias_k, place_k, out_pk, start, stop):
    """out[p, k] ∝ exp(logits[p, k] * inverse_temperature + bias[k] + tilt[p] * place[k]).

    tilt[p] is such that the mean of `place` stays what it is under the softmax of the logits.
    `place_k` runs from -1 to 1. Rows whose mean is numerically at an end of the scale stay the
    softmax of their logits.
    """
    labels = logits_pk.shape[1]
    weight_k = np.empty(labels)
    exponent_k = np.empty(labels)
    for p in range(start, stop):
        highest = np.float64(logits_pk[p, 0])
        for k in range(1, labels):
            highest = max(highest, np.float64(logits_pk[p, k]))
        for k in range(labels):
            exponent_k[k] = logits_pk[p, k] - highest
        above, below, _ = _weigh(exponent_k, 0.0, place_k, weight_k)
        if above > _SATURATED and below > _SATURATED:
            target = np.log(above / below)
            tilt = _first_tilt(exponent_k, inverse_temperature, bias_k, place_k, weight_k)
            for k in range(labels):
                exponent_k[k] = exponent_k[k] * inverse_temperature + bias_k[k]
            found = _tilt(exponent_k, target, tilt, place_k, weight_k)
            if not found:
                for k in range(labels):
                    exponent_k[k] = logits_pk[p, k] - highest
                _weigh(exponent_k, 0.0, place_k, weight_k)
        total = 0.0
        for k in range(labels):
            total += weight_k[k]
        for k in range(labels):
            out_pk[p, k] = weight_k[k] / total


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh(exponent_k, tilt, place_k, weight_k):
    """Weights exp(exponent + tilt * place), the largest 1.

    Returns their sums times 1 + place, times 1 - place, and times 1 - place².
    """
    labels = len(exponent_k)
    highest = exponent_k[0] + tilt * place_k[0]
    for k in range(1, labels):
        highest = max(highest, exponent_k[k] + tilt * place_k[k])
    above, below, inside = 0.0, 0.0, 0.0
    for k in range(labels):
        place = place_k[k]
        weight = np.exp(exponent_k[k] + tilt * place - highest)
        weight_k[k] = weight
        above += weight * (1.0 + place)
        below += weight * (1.0 - place)
        inside += weight * (1.0 - place) * (1.0 + place)
    return above, below, inside


@njit(nogil=True, cache=True, error_model="numpy")
def _first_tilt(exponent_k, inverse_temperature, bias_k, place_k, weight_k):
    """To first order, the tilt that undoes what the change of exponents does to the mean."""
    total, mean, mean_change = 0.0, 0.0, 0.0
    for k in range(len(exponent_k)):
        change = exponent_k[k] * (inverse_temperature - 1.0) + bias_k[k]
        total += weight_k[k]
        mean += weight_k[k] * place_k[k]
        mean_change += weight_k[k] * change
    mean /= total
    mean_change /= total
    variance, covariance = 0.0, 0.0
    for k in range(len(exponent_k)):
        change = exponent_k[k] * (inverse_temperature - 1.0) + bias_k[k]
        variance += weight_k[k] * (place_k[k] - mean) ** 2
        covariance += weight_k[k] * (place_k[k] - mean) * (change - mean_change)
    return -covariance / variance if variance > 1e-6 * total else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _tilt(exponent_k, target, tilt, place_k, weight_k):
    """Fill `weight_k` with weights whose mean has the log-odds `target`; whether that succeeded.

    Newton's method, with bisection where a step would leave the bracket or does not help. The
    log-odds rise with the tilt, by no more than 2 for each 1.
    """
    low, high = -np.inf, np.inf
    reach = 4.0
    before = np.inf
    for _ in range(_MOST_STEPS):
        above, below, inside = _weigh(exponent_k, tilt, place_k, weight_k)
        if above > _SATURATED and below > _SATURATED:
            missing = target - np.log(above / below)
            if abs(missing) <= _TOLERANCE:
                return True
            # Variance / (1 - mean²), in a form that loses no digits near the ends.
            grad = 2.0 - (above + below) * inside / (above * below)
            step = missing / grad if grad > 0.0 else np.inf * missing
        else:
            missing = np.inf if above <= _SATURATED else -np.inf
            step = missing
        if missing > 0.0:
            low = tilt
        elif missing < 0.0:
            high = tilt
        else:
            return False  # not a number
        if np.isinf(low) or np.isinf(high):
            if abs(step) > reach:
                step = reach if missing > 0.0 else -reach
                reach *= 2.0
            tilt += step
        elif abs(missing) > 0.5 * before or not (low < tilt + step < high):
            tilt = 0.5 * (low + high)
        else:
            tilt += step
        before = abs(missing)
    return False
