"""Metrics of rating prediction.

Shape suffixes: p is the number of rated pairs, k the number of labels on the rating scale.
Everything is computed in float64, whatever the model predicts in.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cfuica.errors import CfuicaError, DataError

SMALLEST_PROBABILITY = 1e-12
"""A probability below this counts as this: certain and wrong costs 27.6 nats, not infinity."""


@dataclass(frozen=True)
class RatingScores:
    """Scores over ``n`` rated pairs: RMSE and MAE in units of the rating scale, NLL in nats."""

    rmse: float
    mae: float
    nll: float
    n: int

    measure: ClassVar[str] = "RMSE"
    sign: ClassVar[int] = 1

    @property
    def value(self) -> float:
        """What a training is judged by."""
        return self.rmse

    @property
    def named(self) -> dict[str, float]:
        """The scores as people call them."""
        return {"RMSE": self.rmse, "MAE": self.mae, "NLL": self.nll}


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
    probabilities_pk = np.asarray(probabilities_pk, dtype=np.float64)
    labels_p = np.asarray(labels_p)
    values_k = np.asarray(values_k, dtype=np.float64)
    check_distributions(probabilities_pk, labels_p, values_k)

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


def check_distributions(
    probabilities_pk: np.ndarray, labels_p: np.ndarray, values_k: np.ndarray
) -> None:
    """Refuse what cannot be scored: shapes that do not fit, no pairs, rows that do not sum to 1."""
    if labels_p.ndim != 1 or values_k.ndim != 1:
        raise DataError(
            f"Labels have shape {labels_p.shape} and label values {values_k.shape}; "
            "both must be one-dimensional."
        )
    expected = (len(labels_p), len(values_k))
    if probabilities_pk.shape != expected:
        raise DataError(
            f"Probabilities have shape {probabilities_pk.shape}; with {expected[0]} observed "
            f"labels and {expected[1]} label values it must be {expected}."
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


def _check_finite_predictions(predictions: np.ndarray) -> None:
    broken = int(predictions.size - np.isfinite(predictions).sum())
    if broken:
        raise CfuicaError(
            f"{broken} of {predictions.size} predicted numbers are not finite. The training that "
            "made this model has probably diverged; try a lower learning rate."
        )
