"""Calibration of predicted rating distributions that leaves every expected rating as it is.

The ordinal loss makes distributions too narrow. Temperature scaling widens all of them alike, but
the wide ones are most too narrow, so both ends of the scale may gain weight as well. Either would
shift the mean of a skewed distribution. An exponential tilt restores the mean of each pair, and
with it the RMSE and the order of recommendations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cfuica.model.network import softmax
from cfuica.ops import tilt
from cfuica.ops.runtime import run_rows

# Two numbers from fewer pairs than this would be noise.
FEWEST_PAIRS = 100
# More cells than this (a million pairs of four labels) only take time; pairs are then thinned out.
MOST_CELLS = 4_000_000
# Bounds of (1/T, w): T from 1/20 to 20, the odds of the ends against the middle up to e^20.
_LOWEST, _HIGHEST = np.array([1 / 20, -20.0]), np.array([20.0, 20.0])
_NEUTRAL = np.array([1.0, 0.0])
# The prior holds the fit to the uncalibrated distributions as strongly as so many pairs would. It
# decides only where the data do not, as with two labels, whose mean is all there is.
_PRIOR_PAIRS = 1.0
_MOST_STEPS = 50


@dataclass(frozen=True)
class Calibration:
    """p_k ∝ exp(a_k / T + w z_k² + λ z_k), where z_k in [-1, 1] is label k's place on the scale.

    a are the logits of Eqn. (7). λ is chosen for each pair such that its mean rating stays that of
    softmax(a).
    """

    temperature: float = 1.0  # T > 0; above 1 flattens the distribution.
    # w: by how much the log-weight of both ends grows against that of the middle of the scale.
    widening: float = 0.0

    @classmethod
    def fit(cls, logits_pk: np.ndarray, labels_p: np.ndarray, values_k: np.ndarray) -> Calibration:
        """The calibration with the lowest NLL on P held-out pairs.

        With fewer than `FEWEST_PAIRS` pairs it is the identity. `logits_pk` (P, K) matters up to a
        constant per pair, so log-probabilities will do. `values_k` (K) are the labels' ratings.
        """
        if len(labels_p) < FEWEST_PAIRS:
            return cls()
        every = math.ceil(logits_pk.size / MOST_CELLS)
        problem = _Fit.of(logits_pk[::every], labels_p[::every], values_k)
        inverse_temperature, widening = problem.solve()
        return cls(float(1.0 / inverse_temperature), float(widening))

    @property
    def is_identity(self) -> bool:
        """Whether the distributions stay the softmax of the logits."""
        return self == Calibration()

    def distributions(self, logits_pk: np.ndarray, values_k: np.ndarray) -> np.ndarray:
        """The calibrated distribution of each pair, (P, K) float32.

        `values_k` (K) are the ratings that the labels stand for, ascending.
        """
        if self.is_identity:
            return softmax(logits_pk)
        place_k = _places(values_k)
        return _distributions(
            logits_pk, 1.0 / self.temperature, self.widening * place_k**2, place_k
        )


def _places(values_k: np.ndarray) -> np.ndarray:
    """z (K,) float64 from -1 to 1; all 0 where all values are equal."""
    values_k = np.asarray(values_k, dtype=np.float64)
    span = values_k[-1] - values_k[0]
    if span == 0.0:
        return np.zeros(len(values_k))
    place_k: np.ndarray = np.clip(2.0 * ((values_k - values_k[0]) / span) - 1.0, -1.0, 1.0)
    return place_k


def _distributions(
    logits_pk: np.ndarray, inverse_temperature: float, bias_k: np.ndarray, place_k: np.ndarray
) -> np.ndarray:
    logits_pk = np.ascontiguousarray(logits_pk, dtype=np.float32)
    out_pk = np.empty_like(logits_pk)
    run_rows(
        tilt.calibrate,
        len(logits_pk),
        logits_pk,
        inverse_temperature,
        bias_k,
        place_k,
        out_pk,
    )
    return out_pk


@dataclass(frozen=True)
class _Fit:
    """The NLL as a function of θ = (1/T, w), and its minimum.

    Given λ this is an exponential family with the statistics s = (a, z²). λ depends on θ such that
    the mean stays, which makes the gradient of log p_y that of a family with s less its regression
    on z: the gradient of the NLL is E[r] - r_y with r = s - z Cov(s, z) / Var(z), and the mean
    covariance of r (positive where anything can change) serves as the curvature.
    """

    logits_pk: np.ndarray
    labels_p: np.ndarray
    place_k: np.ndarray

    @classmethod
    def of(cls, logits_pk: np.ndarray, labels_p: np.ndarray, values_k: np.ndarray) -> _Fit:
        # Logits near 0 lose nothing in float32.
        shifted_pk = logits_pk - logits_pk.max(axis=1, keepdims=True)
        return cls(
            shifted_pk.astype(np.float32), labels_p.astype(np.intp)[:, None], _places(values_k)
        )

    def solve(self) -> np.ndarray:
        """θ by Fisher scoring inside the bounds; a step is halved until it lowers the loss."""
        theta = _NEUTRAL
        p_pk, loss = self._loss(theta)
        for _ in range(_MOST_STEPS):
            grad, curvature = self._gradient_and_curvature(theta, p_pk)
            direction = -np.linalg.solve(curvature, grad)
            scale = 1.0
            while True:
                trial = np.clip(theta + scale * direction, _LOWEST, _HIGHEST)
                step = float(np.abs(trial - theta).max())
                if step < 1e-5:
                    return theta
                trial_pk, trial_loss = self._loss(trial)
                if trial_loss < loss:
                    break
                scale /= 2.0
            theta, p_pk, loss = trial, trial_pk, trial_loss
        return theta

    def _loss(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """Distributions (P, K), and their NLL plus the prior's penalty."""
        p_pk = _distributions(self.logits_pk, theta[0], theta[1] * self.place_k**2, self.place_k)
        observed_p = np.take_along_axis(p_pk, self.labels_p, axis=1)
        smallest = np.finfo(np.float32).tiny
        nll = -np.mean(np.log(np.maximum(observed_p, smallest)), dtype=np.float64)
        prior = _PRIOR_PAIRS / len(self.labels_p)
        return p_pk, float(nll + 0.5 * prior * np.square(theta - _NEUTRAL).sum())

    def _gradient_and_curvature(
        self, theta: np.ndarray, p_pk: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradient (2,) and curvature (2, 2) of the loss."""
        p_pk = p_pk.astype(np.float64)
        z_pk = self.place_k - (p_pk @ self.place_k)[:, None]
        variance_p = (p_pk * z_pk**2).sum(axis=1)
        rest = []
        for statistic_pk in (self.logits_pk.astype(np.float64), self.place_k[None] ** 2):
            centred_pk = statistic_pk - (p_pk * statistic_pk).sum(axis=1, keepdims=True)
            covariance_p = (p_pk * z_pk * centred_pk).sum(axis=1)
            ratio_p = np.divide(
                covariance_p, variance_p, out=np.zeros_like(variance_p), where=variance_p > 1e-9
            )
            rest.append(centred_pk - ratio_p[:, None] * z_pk)
        grad = [-np.take_along_axis(one_pk, self.labels_p, axis=1).mean() for one_pk in rest]
        curvature = [
            [(p_pk * one_pk * other_pk).sum(axis=1).mean() for other_pk in rest] for one_pk in rest
        ]
        prior = _PRIOR_PAIRS / len(self.labels_p)
        return np.array(grad) + prior * (theta - _NEUTRAL), np.array(curvature) + prior * np.eye(2)
