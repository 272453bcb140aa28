"""Compile (or load from numba's cache) what a model in use runs, on a world of two by two."""

from __future__ import annotations

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix
from cfuica.knowledge import Knowledge, Predictor
from cfuica.model.calibration import Calibration
from cfuica.model.conditional import CoAutoregressive
from cfuica.rating_model import RatingModel
from cfuica.settings import Settings


def warm_up() -> None:
    """So that timing an answer times the answer, of whatever kind."""
    network = CoAutoregressive.initial(
        n_users=2, n_items=2, n_labels=2, hidden={"users": 1, "items": 1}
    )
    ids = IdMap(pl.Series("id", ["a", "b"]))
    model = RatingModel.from_knowledge(
        Settings(hidden_users=1, hidden_items=1),
        Knowledge(
            known=Predictor(network, Calibration(temperature=2.0)),
            strangers=None,
            users=ids,
            items=ids,
            scale=LabelScale((0.0, 1.0)),
            behaviours=BehaviourMatrix.from_triplets(
                np.array([0, 1]),
                np.array([0, 1]),
                np.array([0, 1]),
                n_users=2,
                n_items=2,
                n_labels=2,
            ),
            rows={"users": np.arange(2, dtype=np.int32), "items": np.arange(2, dtype=np.int32)},
        ),
    )
    model.predict_proba({"user": ["a", "a"], "item": ["a", "b"]})
    model.recommend("a")
    model.recommend(history=[("a", 1.0)], by="lower", exclude_seen=False)
    model.similar_items("a", min_support=1)
    model.explain("a", "b")
    model.observe([("a", "b", 1.0)])
    model.observe([("a", "b", None)])
