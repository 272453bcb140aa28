"""Whether predicted distributions mean what they say.

Of all cells that were given a probability of 0.3, 30% should come true; and where a variance of
0.8 is predicted, the squared errors of the expected rating should average 0.8.

Shape suffixes: p pairs, k labels, b bins. Everything is computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cfuica.errors import DataError
from cfuica.evaluation.metrics import check_distributions

RELIABILITY_BINS = 15
SPREAD_BINS = 10


@dataclass(frozen=True)
class Bins:
    """What was predicted and what was observed on average, in each bin that holds anything."""

    predicted_b: np.ndarray
    observed_b: np.ndarray
    counts_b: np.ndarray

    @classmethod
    def of(cls, bin_of: np.ndarray, predicted: np.ndarray, observed: np.ndarray, bins: int) -> Self:
        """Means by bin number (0 to bins - 1) of equally long arrays."""
        counts_b = np.bincount(bin_of, minlength=bins)
        filled_b = counts_b > 0
        counts_b = counts_b[filled_b]

        def means(values: np.ndarray) -> np.ndarray:
            sums_b: np.ndarray = np.bincount(bin_of, weights=values, minlength=bins)[filled_b]
            return sums_b / counts_b

        return cls(means(predicted), means(observed), counts_b)

    def as_json(self) -> list[dict[str, Any]]:
        """One object per bin, ascending."""
        return [
            {"predicted": float(predicted), "observed": float(observed), "n": int(count)}
            for predicted, observed, count in zip(
                self.predicted_b, self.observed_b, self.counts_b, strict=True
            )
        ]


class Reliability(Bins):
    """Predicted probabilities against observed frequencies, in bins of equal width."""

    @property
    def error(self) -> float:
        """The expected calibration error: sum over bins of n_b / n * |observed_b - predicted_b|."""
        gaps_b = np.abs(self.observed_b - self.predicted_b)
        return float(np.average(gaps_b, weights=self.counts_b))


@dataclass(frozen=True)
class Spread:
    """Predicted variances against squared errors, in bins of equally many pairs."""

    bins: Bins

    @property
    def predicted_variance(self) -> float:
        """The mean over pairs."""
        return float(np.average(self.bins.predicted_b, weights=self.bins.counts_b))

    @property
    def squared_error(self) -> float:
        """The mean over pairs."""
        return float(np.average(self.bins.observed_b, weights=self.bins.counts_b))

    @property
    def ratio(self) -> float:
        """Mean squared error / mean predicted variance: above 1 overconfident, below 1 too
        cautious; no number where all variances are 0."""
        variance = self.predicted_variance
        return self.squared_error / variance if variance > 0.0 else float("nan")

    def as_json(self) -> dict[str, Any]:
        """`ratio` is null where all variances are 0."""
        ratio = self.ratio if np.isfinite(self.ratio) else None
        return {"ratio": ratio, "bins": self.bins.as_json()}


@dataclass(frozen=True)
class CalibrationScores:
    """How far ``n`` predicted distributions can be believed."""

    top_label_error: float
    """Expected calibration error of the most likely label, the usual ECE."""
    class_wise_error: float
    """Mean over labels of the expected calibration error of that label's probability."""
    reliability: Reliability
    """Over all (pair, label) cells."""
    spread: Spread
    n: int

    def as_json(self) -> dict[str, Any]:
        """Numbers and lists of numbers only."""
        return {
            "ece_top_label": self.top_label_error,
            "ece_class_wise": self.class_wise_error,
            "reliability": self.reliability.as_json(),
            "spread": self.spread.as_json(),
            "n": self.n,
        }


def calibration_scores(
    probabilities_pk: np.ndarray,
    labels_p: np.ndarray,
    values_k: np.ndarray,
    ratings_p: np.ndarray,
) -> CalibrationScores:
    """All of them; the arguments are those of `metrics.rating_scores`."""
    check_distributions(np.asarray(probabilities_pk), np.asarray(labels_p), np.asarray(values_k))
    return CalibrationScores(
        top_label_error=top_label_error(probabilities_pk, labels_p),
        class_wise_error=class_wise_error(probabilities_pk, labels_p),
        reliability=reliability(probabilities_pk, labels_p),
        spread=spread(probabilities_pk, values_k, ratings_p),
        n=len(labels_p),
    )


def reliability(
    probabilities_pk: np.ndarray, labels_p: np.ndarray, bins: int = RELIABILITY_BINS
) -> Reliability:
    """Over all (pair, label) cells: p(label) against how often it is the observed label.

    Cell by cell in bins [i / bins, (i + 1) / bins) of the predicted probability, 1 in the last.
    """
    probabilities_pk = np.asarray(probabilities_pk, dtype=np.float64)
    is_label_pk = np.arange(probabilities_pk.shape[1]) == np.asarray(labels_p)[:, None]
    return _reliability(probabilities_pk.ravel(), is_label_pk.ravel(), bins)


def top_label_error(
    probabilities_pk: np.ndarray, labels_p: np.ndarray, bins: int = RELIABILITY_BINS
) -> float:
    """The expected calibration error as usually defined (Guo et al., 2017).

    The confidence of a pair is the probability of its most likely label (of equals the lowest);
    it is right where that is the observed label. In `bins` bins of equal width of the confidence:
    the mean over pairs of |share of right ones - mean confidence| of their bin.
    """
    probabilities_pk = np.asarray(probabilities_pk, dtype=np.float64)
    is_right_p = probabilities_pk.argmax(axis=1) == np.asarray(labels_p)
    return _reliability(probabilities_pk.max(axis=1), is_right_p, bins).error


def class_wise_error(
    probabilities_pk: np.ndarray, labels_p: np.ndarray, bins: int = RELIABILITY_BINS
) -> float:
    """The mean over labels k of the expected calibration error of p(k).

    For one label: in `bins` bins of equal width of p(k), the mean over all pairs of
    |share of pairs with label k - mean p(k)| of their bin. Unlike the error of the most likely
    label it sees the whole distribution; but it is a mean over labels that are mostly unlikely,
    so it is a smaller number.
    """
    probabilities_pk = np.asarray(probabilities_pk, dtype=np.float64)
    labels_p = np.asarray(labels_p)
    errors_k = [
        _reliability(probability_p, labels_p == label, bins).error
        for label, probability_p in enumerate(probabilities_pk.T)
    ]
    return float(np.mean(errors_k))


def spread(
    probabilities_pk: np.ndarray,
    values_k: np.ndarray,
    ratings_p: np.ndarray,
    bins: int = SPREAD_BINS,
) -> Spread:
    """Predicted variance against the squared error of the expected rating.

    In bins of equally many pairs by predicted variance, as far as ties allow. On a binned scale
    the predicted variance is that between labels, and leaves out that within them.
    """
    probabilities_pk = np.asarray(probabilities_pk, dtype=np.float64)
    values_k = np.asarray(values_k, dtype=np.float64)
    expected_p = probabilities_pk @ values_k
    # Around the mean, not E[v²] - E[v]²: values may be far from 0.
    variance_p = (probabilities_pk * (values_k - expected_p[:, None]) ** 2).sum(axis=1)
    square_p = (np.asarray(ratings_p, dtype=np.float64) - expected_p) ** 2
    inner_edges = np.quantile(variance_p, np.arange(1, bins) / bins)
    bin_of_p = np.searchsorted(inner_edges, variance_p, side="right")
    return Spread(Bins.of(bin_of_p, variance_p, square_p, bins))


def _reliability(predicted: np.ndarray, came_true: np.ndarray, bins: int) -> Reliability:
    if len(predicted) == 0:
        raise DataError("There is nothing to score: no ratings were given.")
    # Float32 rounding may leave a probability a little above 1.
    bin_of = np.clip((predicted * bins).astype(np.intp), 0, bins - 1)
    return Reliability.of(bin_of, predicted, came_true.astype(np.float64), bins)
