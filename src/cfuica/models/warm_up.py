"""Compile the kernels of inference, or load them from numba's cache, on a toy model of two users.

Timings and servers call `warm_up` first, so that no request waits for the compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from cfuica.artifact import Artifact
from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.model.calibration import Calibration
from cfuica.model.network import Network
from cfuica.models.co_autoregressive import RankingModel, RatingModel, TaskName
from cfuica.ops.tables import SIDES, SideName
from cfuica.settings import RankingSettings, RatingSettings

_ROWS: dict[SideName, int] = {"users": 3, "items": 3}
_USERS, _ITEMS, _LABELS = np.array([0, 1], np.int32), np.array([0, 1], np.int32), np.array([0, 1])


def warm_up(task: TaskName = "rating") -> None:
    """Run every kind of request once on a toy model of this task."""
    {"rating": _warm_up_ratings, "ranking": _warm_up_rankings}[task]()


def _warm_up_ratings() -> None:
    settings = RatingSettings(hidden_users=1, hidden_items=1, cold_start_units=1, bilinear_rate=1)
    model = RatingModel.from_artifact(
        Artifact(
            **_common(),
            settings=settings,
            networks={
                "warm": Network.of(settings, _ROWS, 2),
                "cold_start": Network.of(settings, _ROWS, 2, cold_start=True),
            },
            calibrations={"warm": Calibration(temperature=2.0)},
            scale=LabelScale((0.0, 1.0)),
            interactions=InteractionMatrix.from_triplets(
                _USERS, _ITEMS, _LABELS, n_users=2, n_items=2, n_labels=2
            ),
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
    settings = RankingSettings(hidden_users=1, hidden_items=1, residual_units=1)
    model = RankingModel.from_artifact(
        Artifact(
            **_common(),
            settings=settings,
            networks={"warm": Network.of(settings, _ROWS, 1)},
            interactions=Timeline.of(_USERS, _ITEMS, None, n_users=2, n_items=2),
            has_times=False,
        ),
    )
    model.recommend("a")
    model.recommend(history=["a"], exclude_seen=False)
    model.similar_items("a", min_support=1)
    model.explain("a", "b")
    model.observe([("a", "b")])
    model.forget("a")


def _common() -> dict[str, Any]:
    ids = Vocabulary(pl.Series("id", ["a", "b"]))
    return {
        "users": ids,
        "items": ids,
        "rows": {axis: np.arange(2, dtype=np.int32) for axis in SIDES},
    }
