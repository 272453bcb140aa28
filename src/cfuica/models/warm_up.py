"""Compile the kernels of inference, or load them from numba's cache, on a toy model of two users.

Timings and servers call `warm_up` first, so that no request waits for the compiler.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from cfuica.artifact.artifact import CalibratedNetwork, RankingArtifact, RatingArtifact
from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.model.calibration import Calibration
from cfuica.model.network import Network
from cfuica.model.pairs import SIDES
from cfuica.models.ranking_model import RankingModel
from cfuica.models.rating_model import RatingModel
from cfuica.models.recommender import TaskName
from cfuica.settings import RankingSettings, RatingSettings

_USERS, _ITEMS, _LABELS = np.array([0, 1], np.int32), np.array([0, 1], np.int32), np.array([0, 1])


def warm_up(task: TaskName = "rating") -> None:
    """Run every kind of request once on a toy model of this task."""
    if task == "rating":
        _warm_up_ratings()
    else:
        _warm_up_rankings()


def _warm_up_ratings() -> None:
    ids = Vocabulary(pl.Series("id", ["a", "b"]))
    model = RatingModel.from_artifact(
        RatingSettings(hidden_users=1, hidden_items=1),
        RatingArtifact(
            warm=CalibratedNetwork(_network(2), Calibration(temperature=2.0)),
            cold_start=CalibratedNetwork(_network(2, with_bilinear=True)),
            users=ids,
            items=ids,
            scale=LabelScale((0.0, 1.0)),
            interactions=InteractionMatrix.from_triplets(
                _USERS, _ITEMS, _LABELS, n_users=2, n_items=2, n_labels=2
            ),
            rows={axis: np.arange(2, dtype=np.int32) for axis in SIDES},
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
    ids = Vocabulary(pl.Series("id", ["a", "b"]))
    model = RankingModel.from_artifact(
        RankingSettings(hidden_users=1, hidden_items=1),
        RankingArtifact(
            network=_network(1, layer=1),
            users=ids,
            items=ids,
            timeline=Timeline.of(_USERS, _ITEMS, None, n_users=2, n_items=2),
            has_times=False,
            rows={axis: np.arange(2, dtype=np.int32) for axis in SIDES},
        ),
    )
    model.recommend("a")
    model.recommend(history=["a"], exclude_seen=False)
    model.similar_items("a", min_support=1)
    model.explain("a", "b")
    model.observe([("a", "b")])
    model.forget("a")


def _network(labels: int, *, with_bilinear: bool = False, layer: int = 0) -> Network:
    return Network.initial(
        n_users=2,
        n_items=2,
        n_labels=labels,
        hidden={"users": 1, "items": 1},
        with_bilinear=with_bilinear,
        layer_units=layer,
    )
