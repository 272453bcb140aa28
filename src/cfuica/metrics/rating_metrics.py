"""Metrics of rating prediction: RMSE, MAE, NLL and the calibration of distributions.

Calibration: of all labels with a predicted probability of 0.3, 30% should be observed; and where a
variance of 0.8 is predicted, the squared errors of the expected rating should average 0.8.

Shape suffixes: p rated pairs, k labels of the rating scale, b bins. Everything is computed in
float64, whatever the model predicts in.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from cfuica.errors import CfuicaError, DataError

# The floor of a probability in the NLL: certain and wrong counts 27.6 nats, not infinity.
SMALLEST_PROBABILITY = 1e-12


@dataclass(frozen=True)
class RatingScores:
    """Scores over ``n`` rated pairs: RMSE and MAE in units of the rating scale, NLL in nats.

    A model without distributions has no NLL."""

    rmse: float
    mae: float
    nll: float | None
    n: int

    measure: ClassVar[str] = "RMSE"
    sign: ClassVar[int] = 1

    @property
    def value(self) -> float:
        """The score that training is judged by."""
        return self.rmse

    @property
    def named(self) -> dict[str, float]:
        """The scores by their usual names."""
        nll = {} if self.nll is None else {"NLL": self.nll}
        return {"RMSE": self.rmse, "MAE": self.mae, **nll}


def rmse(predictions: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Root of the mean squared error of ``predictions`` (p) against ``truth`` (p)."""
    predictions_p, truth_p = _as_pairs(predictions, truth)
    return float(np.sqrt(np.mean(np.square(predictions_p - truth_p))))


def mae(predictions: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Mean absolute error of ``predictions`` (p) against ``truth`` (p)."""
    predictions_p, truth_p = _as_pairs(predictions, truth)
    return float(np.mean(np.abs(predictions_p - truth_p)))


def rating_scores(
    probabilities_pk: np.ndarray,
    labels_p: np.ndarray,
    values_k: np.ndarray,
    ratings_p: np.ndarray,
) -> RatingScores:
    """Score predicted rating distributions against what was observed.

    Args:
        probabilities_pk: (p, k), row i is the predicted distribution over labels of pair i.
        labels_p: (p,), the observed label of each pair, an integer from 0 to k - 1.
        values_k: (k,), the rating each label stands for, e.g. 1, 2, 3, 4, 5.
        ratings_p: (p,), the observed ratings, which are `values_k[labels_p]` unless the labels are
            bins.

    The predicted rating is the expected value of the distribution (the paper's equation for
    prediction), the one number with the lowest expected squared error. NLL is the mean of
    -log p(observed label).
    """
    probabilities_pk, labels_p, values_k = _distributions(probabilities_pk, labels_p, values_k)
    predictions_p = probabilities_pk @ values_k
    observed_p = np.take_along_axis(probabilities_pk, labels_p[:, None].astype(np.intp), axis=1)
    return RatingScores(
        rmse=rmse(predictions_p, ratings_p),
        mae=mae(predictions_p, ratings_p),
        nll=float(-np.mean(np.log(np.clip(observed_p, SMALLEST_PROBABILITY, 1.0)))),
        n=len(labels_p),
    )


def _as_pairs(predictions: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    predictions_p = np.asarray(predictions, dtype=np.float64)
    truth_p = np.asarray(truth, dtype=np.float64)
    if predictions_p.ndim != 1 or predictions_p.shape != truth_p.shape:
        # Broadcasting would silently compare every prediction with every rating.
        raise DataError(
            f"Predictions have shape {predictions_p.shape} and true ratings {truth_p.shape}; "
            "both must be one-dimensional and equally long."
        )
    if len(predictions_p) == 0:
        raise DataError("There is nothing to score: no ratings were given.")
    if not np.isfinite(truth_p).all():
        raise DataError("Some true ratings are not finite numbers; drop these rows before scoring.")
    _check_finite_predictions(predictions_p)
    return predictions_p, truth_p


def _distributions(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, values: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays (p, k), (p,) and (k,), of which only labels are integers.

    What cannot be scored is refused: shapes that do not fit, no pairs, rows that do not sum to 1.
    """
    probabilities_pk = np.asarray(probabilities, dtype=np.float64)
    labels_p, values_k = np.asarray(labels), np.asarray(values, dtype=np.float64)
    expected = (len(labels_p), len(values_k))
    if labels_p.ndim != 1 or values_k.ndim != 1 or probabilities_pk.shape != expected:
        raise DataError(
            f"Probabilities have shape {probabilities_pk.shape}, labels {labels_p.shape} and label "
            f"values {values_k.shape}; the latter two must be one-dimensional, and with their "
            f"lengths the first must be {expected}."
        )
    if len(labels_p) == 0:
        raise DataError("There is nothing to score: no ratings were given.")
    if not np.issubdtype(labels_p.dtype, np.integer):
        raise DataError(
            f"Labels have the type {labels_p.dtype}; they must be integers, "
            "positions in the list of label values and not ratings."
        )
    lowest, highest = int(labels_p.min()), int(labels_p.max())
    if lowest < 0 or highest >= len(values_k):
        raise DataError(
            f"Labels run from {lowest} to {highest}; with {len(values_k)} label values "
            f"they must lie between 0 and {len(values_k) - 1}."
        )
    _check_finite_predictions(probabilities_pk)
    sums_p = probabilities_pk.sum(axis=1)
    # float32 softmaxes miss 1 by 1e-6; logits passed by mistake miss it by far.
    if probabilities_pk.min() < 0.0 or np.abs(sums_p - 1.0).max() > 1e-3:
        raise CfuicaError(
            "The predicted probabilities are not distributions: each row must be non-negative and "
            f"sum to 1, but sums run from {sums_p.min():.6g} to {sums_p.max():.6g} and the "
            f"smallest entry is {probabilities_pk.min():.6g}. Were logits passed?"
        )
    return probabilities_pk, labels_p, values_k


def _check_finite_predictions(predictions: np.ndarray) -> None:
    broken = int(predictions.size - np.isfinite(predictions).sum())
    if broken:
        raise CfuicaError(
            f"{broken} of {predictions.size} predicted numbers are not finite. The training that "
            "made this model has probably diverged; try a lower learning rate."
        )


RELIABILITY_BINS = 15
SPREAD_BINS = 10


@dataclass(frozen=True)
class Bins:
    """The mean prediction and the mean observation of each nonempty bin."""

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


class Reliability(Bins):
    """Predicted probabilities against observed frequencies, in bins of equal width."""

    @property
    def error(self) -> float:
        """The expected calibration error: sum over bins of n_b / n * |observed_b - predicted_b|."""
        gaps_b = np.abs(self.observed_b - self.predicted_b)
        return float(np.average(gaps_b, weights=self.counts_b))


class Spread(Bins):
    """Predicted variances against squared errors, in bins of equally many pairs."""

    @property
    def predicted_variance(self) -> float:
        """The mean over pairs."""
        return float(np.average(self.predicted_b, weights=self.counts_b))

    @property
    def squared_error(self) -> float:
        """The mean over pairs."""
        return float(np.average(self.observed_b, weights=self.counts_b))

    @property
    def ratio(self) -> float:
        """Mean squared error / mean predicted variance: above 1 overconfident, below 1 too
        cautious; no number where all variances are 0."""
        variance = self.predicted_variance
        return self.squared_error / variance if variance > 0.0 else float("nan")


@dataclass(frozen=True)
class CalibrationScores:
    """The calibration of ``n`` predicted distributions."""

    top_label_error: float  # Expected calibration error of the most likely label, the usual ECE.
    # Mean over labels of the expected calibration error of that label's probability.
    class_wise_error: float
    reliability: Reliability  # Over all (pair, label) cells.
    spread: Spread
    n: int


def calibration_scores(
    probabilities_pk: np.ndarray,
    labels_p: np.ndarray,
    values_k: np.ndarray,
    ratings_p: np.ndarray,
) -> CalibrationScores:
    """All scores of calibration; the arguments are those of `rating_scores`."""
    probabilities_pk, labels_p, values_k = _distributions(probabilities_pk, labels_p, values_k)
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
    is_label_pk = np.arange(probabilities_pk.shape[1]) == labels_p[:, None]
    return _reliability(probabilities_pk.ravel(), is_label_pk.ravel(), bins)


def top_label_error(
    probabilities_pk: np.ndarray, labels_p: np.ndarray, bins: int = RELIABILITY_BINS
) -> float:
    """The expected calibration error as usually defined (Guo et al., 2017).

    The confidence of a pair is the probability of its most likely label (of equals the lowest);
    it is right where that is the observed label. In `bins` bins of equal width of the confidence:
    the mean over pairs of |share of right ones - mean confidence| of their bin.
    """
    is_right_p = probabilities_pk.argmax(axis=1) == labels_p
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
    expected_p = probabilities_pk @ values_k
    # Around the mean, not E[v²] - E[v]²: values may be far from 0.
    variance_p = (probabilities_pk * (values_k - expected_p[:, None]) ** 2).sum(axis=1)
    square_p = (ratings_p - expected_p) ** 2
    inner_edges = np.quantile(variance_p, np.arange(1, bins) / bins)
    bin_of_p = np.searchsorted(inner_edges, variance_p, side="right")
    return Spread.of(bin_of_p, variance_p, square_p, bins)


def _reliability(predicted: np.ndarray, came_true: np.ndarray, bins: int) -> Reliability:
    if len(predicted) == 0:
        raise DataError("There is nothing to score: no ratings were given.")
    # Float32 rounding may leave a probability a little above 1.
    bin_of = np.clip((predicted * bins).astype(np.intp), 0, bins - 1)
    return Reliability.of(bin_of, predicted, came_true.astype(np.float64), bins)


@dataclass(frozen=True)
class Evaluation(RatingScores):
    """Scores, and the calibration of the predicted distributions."""

    nll: float
    calibration: CalibrationScores = field(compare=False, repr=False)


def evaluation(
    probabilities_pk: np.ndarray,
    labels_p: np.ndarray,
    values_k: np.ndarray,
    ratings_p: np.ndarray,
) -> Evaluation:
    """All metrics of predicted distributions; the arguments are those of `rating_scores`."""
    pairs = (probabilities_pk, labels_p, values_k, ratings_p)
    return Evaluation(**asdict(rating_scores(*pairs)), calibration=calibration_scores(*pairs))
