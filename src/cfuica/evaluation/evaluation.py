"""All that is measured on a table of ratings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np

from cfuica.evaluation.calibration import CalibrationScores, calibration_scores
from cfuica.evaluation.metrics import RatingScores, rating_scores


@dataclass(frozen=True)
class Evaluation(RatingScores):
    """Scores, and whether the predicted distributions mean what they say."""

    calibration: CalibrationScores = field(compare=False, repr=False)


def evaluation(
    probabilities_pk: np.ndarray,
    labels_p: np.ndarray,
    values_k: np.ndarray,
    ratings_p: np.ndarray,
) -> Evaluation:
    """The arguments are those of `metrics.rating_scores`."""
    asked = (probabilities_pk, labels_p, values_k, ratings_p)
    return Evaluation(**asdict(rating_scores(*asked)), calibration=calibration_scores(*asked))
