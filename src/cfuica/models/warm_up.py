"""Compile (or load from numba's cache) what a model in use runs, on a world of two by two."""

from __future__ import annotations

import numpy as np
import polars as pl

from cfuica.artifact.artifact import Knowledge, Predictor, RankingKnowledge
from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix, Timeline
from cfuica.model.calibration import Calibration
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import AXES
from cfuica.models.ranking_model import RankingModel
from cfuica.models.rating_model import RatingModel
from cfuica.models.recommender import Task
from cfuica.settings import RankingSettings, Settings

_USERS, _ITEMS, _LABELS = np.array([0, 1], np.int32), np.array([0, 1], np.int32), np.array([0, 1])


def warm_up(task: Task = "rating") -> None:
    """So that timing an answer of a model of this task times the answer, of whatever kind."""
    if task == "rating":
        _warm_up_ratings()
    else:
        _warm_up_rankings()


def _warm_up_ratings() -> None:
    ids = IdMap(pl.Series("id", ["a", "b"]))
    model = RatingModel.from_knowledge(
        Settings(hidden_users=1, hidden_items=1),
        Knowledge(
            known=Predictor(_network(2), Calibration(temperature=2.0)),
            strangers=Predictor(_network(2, bridged=True)),
            users=ids,
            items=ids,
            scale=LabelScale((0.0, 1.0)),
            behaviours=BehaviourMatrix.from_triplets(
                _USERS, _ITEMS, _LABELS, n_users=2, n_items=2, n_labels=2
            ),
            rows={axis: np.arange(2, dtype=np.int32) for axis in AXES},
        ),
    )
    model.predict_proba({"user": ["a", "a"], "item": ["a", "b"]})
    model.recommend("a")
    model.recommend(history=[("a", 1.0)], by="lower", exclude_seen=False)
    model.similar_items("a", min_support=1)
    model.explain("a", "b")
    model.explain(None, "b", history=[("a", 1.0)])
    model.observe([("a", "b", 1.0)])
    model.observe([("a", "b", None)])


def _warm_up_rankings() -> None:
    ids = IdMap(pl.Series("id", ["a", "b"]))
    model = RankingModel.from_knowledge(
        RankingSettings(hidden_users=1, hidden_items=1),
        RankingKnowledge(
            network=_network(1, layer=1),
            users=ids,
            items=ids,
            timeline=Timeline.of(_USERS, _ITEMS, None, n_users=2, n_items=2),
            has_times=False,
            rows={axis: np.arange(2, dtype=np.int32) for axis in AXES},
        ),
    )
    model.recommend("a")
    model.recommend(history=["a"], exclude_seen=False)
    model.similar_items("a", min_support=1)
    model.explain("a", "b")
    model.observe([("a", "b")])
    model.forget("a")


def _network(labels: int, *, bridged: bool = False, layer: int = 0) -> CoAutoregressive:
    return CoAutoregressive.initial(
        n_users=2,
        n_items=2,
        n_labels=labels,
        hidden={"users": 1, "items": 1},
        bridged=bridged,
        layer_units=layer,
    )
