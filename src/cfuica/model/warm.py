"""Compile (or load from numba's cache) what prediction runs, on a matrix of two by two."""

from __future__ import annotations

import numpy as np

from cfuica.data.matrix import BehaviourMatrix
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.prediction import probabilities


def warm_up() -> None:
    """So that timing a prediction times the prediction."""
    matrix = BehaviourMatrix.from_triplets(
        np.array([0, 1]), np.array([0, 1]), np.array([0, 1]), n_users=2, n_items=2, n_labels=2
    )
    model = CoAutoregressive.initial(
        n_users=2, n_items=2, n_labels=2, hidden={"users": 1, "items": 1}
    )
    probabilities(model, matrix, np.array([0]), np.array([0]))
