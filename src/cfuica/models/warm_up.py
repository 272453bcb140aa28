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
from cfuica.models.co_autoregressive import TaskName
from cfuica.models.recommender import tasks
from cfuica.ops.tables import SIDES


def warm_up(task: TaskName = "rating") -> None:
    """Run every kind of request once on a toy model of this task."""
    kind, is_rated = tasks()[task], task == "rating"
    layers = {"cold_start_units": 1, "bilinear_rate": 1} if is_rated else {"residual_units": 1}
    settings: Any = kind.settings(**{"hidden_users": 1, "hidden_items": 1, **layers})
    ids, index = Vocabulary(pl.Series("id", ["a", "b"])), np.arange(2, dtype=np.int32)
    sizes: dict[str, Any] = {"n_users": 2, "n_items": 2}
    rows = dict.fromkeys(SIDES, 3)
    own: dict[str, Any] = {
        "networks": {"warm": Network.of(settings, rows, 2 if is_rated else 1)},
        "interactions": Timeline.of(index, index, None, **sizes),
        "has_times": False,
    }
    # Loading checks the interactions of either task as a matrix.
    matrix = InteractionMatrix.from_triplets(index, index, index, n_labels=2, **sizes)
    history: list[Any] = ["a"]
    if is_rated:
        own["networks"]["cold_start"] = Network.of(settings, rows, 2, cold_start=True)
        own["interactions"] = matrix
        own |= {"scale": LabelScale((0.0, 1.0)), "calibrations": {"warm": Calibration(2.0)}}
        history = [("a", 1.0)]
    model = kind.model.from_artifact(
        Artifact(users=ids, items=ids, rows=dict.fromkeys(SIDES, index), settings=settings, **own)
    )
    if is_rated:
        model.predict_proba({"user": ["a", "a"], "item": ["a", "b"]})
    model.recommend("a")
    model.recommend(history=history, by="lower" if is_rated else None, exclude_seen=False)
    model.similar_items("a", min_support=1)
    model.explain("a", "b")
    model.explain(None, "b", history=history)
    model.observe([("a", "b", 1.0)])
    model.remove([("a", "b")])
    model.forget("a")
