"""What corrects a trained model's distributions, and how far they can be believed with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.rated import RatedPairs
from cfuica.evaluation.calibration import CalibrationScores, calibration_scores
from cfuica.knowledge import Predictor
from cfuica.learning.rating import Fitted
from cfuica.live.state import LiveState
from cfuica.model.calibration import Calibration
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.pairs import SideName


@dataclass(frozen=True)
class Corrected:
    """A network with its correction."""

    predictor: Predictor
    checks: Mapping[str, CalibrationScores] = field(default_factory=dict)
    """Of the validation part, "before" and "after" the correction or, where there is none,
    "uncorrected"; empty where there was nothing to validate on."""


def corrected_networks(
    fitted: Fitted, matrix: BehaviourMatrix, valid: RatedPairs | None, values_k: np.ndarray
) -> dict[str, Corrected]:
    """The networks by name, "known" and perhaps "strangers".

    Their distributions are corrected by what they predict for the validation part from the training
    part: each for pairs such as it answers about, so that the strangers' network knows none of the
    users.
    """

    def corrected(
        network: CoAutoregressive, rows: dict[SideName, np.ndarray], answers_p: np.ndarray
    ) -> Corrected:
        if valid is None or not answers_p.any():
            return Corrected(Predictor(network))
        state = LiveState.of(network, matrix, rows)
        activation_pk = state.pair_activations(valid.users_p[answers_p], valid.items_p[answers_p])
        labels_p, ratings_p = valid.labels_p[answers_p], valid.ratings_p[answers_p]
        none, found = Calibration(), Calibration.fit(activation_pk, labels_p, values_k)
        states = {"uncorrected": none} if found == none else {"before": none, "after": found}
        checks = {
            name: calibration_scores(
                one.distributions(activation_pk, values_k), labels_p, values_k, ratings_p
            )
            for name, one in states.items()
        }
        return Corrected(Predictor(network, found), checks)

    rows = fitted.rows
    every_p = np.ones(0 if valid is None else valid.n, np.bool_)
    if fitted.strangers is None:
        return {"known": corrected(fitted.model, rows, every_p)}
    known_p = every_p.copy()
    if valid is not None:
        asked: dict[SideName, np.ndarray] = {"users": valid.users_p, "items": valid.items_p}
        for axis, side in fitted.model.sides.items():
            known_p &= rows[axis][asked[axis]] != side.shared_row
    nobody = {**rows, "users": np.full_like(rows["users"], len(rows["users"]))}
    return {
        "known": corrected(fitted.model, rows, known_p),
        "strangers": corrected(fitted.strangers, nobody, every_p),
    }
