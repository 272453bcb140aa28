"""Vectors whose inner product is the score of a ranking model, as files for other systems.

A vector database or a service without cfuica can rank with them: the score of an item for a user is
the inner product of their vectors. They are of the interactions that the model knows now.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from cfuica.errors import CfuicaError
from cfuica.io import atomic_folder, parquet_bytes
from cfuica.live.interactions import places
from cfuica.models.co_autoregressive import RankingModel
from cfuica.models.recommender import Recommender

VectorFormat = Literal["parquet", "npy"]
# How many users, drawn with this seed, and how many items of each are compared with `recommend`.
CHECKED_USERS, CHECKED_ITEMS, _SEED = 200, 10, 0
# Scores that differ by less, in units of the largest one, are equal up to rounding.
_ROUNDING = 1e-5


def export_vectors(model: Recommender, folder: Path, form: VectorFormat = "parquet") -> int:
    """Write the vectors of all users and items; returns for how many users they were checked.

    A folder with `users.parquet` and `items.parquet` (id, vector), or with `users.npy`, `items.npy`
    (a row each, float32) and the ids of the rows in `users.csv`, `items.csv`. It is replaced as a
    whole. Nothing is written where the vectors do not rank as `recommend` does.
    """
    with model.reading():
        frames = dict(zip(("users", "items"), model.score_vectors(), strict=True))
        checked = check_vectors(model, **frames)
    with atomic_folder(folder) as work:
        for name, frame in frames.items():
            if form == "parquet":
                (work / f"{name}.parquet").write_bytes(parquet_bytes(frame))
            else:
                np.save(work / f"{name}.npy", frame["vector"].to_numpy(), allow_pickle=False)
                frame.drop("vector").write_csv(work / f"{name}.csv")
    return checked


def check_vectors(model: Recommender, users: pl.DataFrame, items: pl.DataFrame) -> int:
    """An error unless the vectors rank the unseen items of some users as `recommend` does; returns
    how many users that were."""
    assert isinstance(model, RankingModel)  # no other has such vectors
    chosen = np.sort(np.random.default_rng(_SEED).permutation(users.height)[:CHECKED_USERS])
    some, state, ids = users[chosen], model.live_model.state, model.live_model.ids
    place_m = places(ids["items"].encode(items["item"]), state.size("items"))
    answers = model.recommend(some["user"], CHECKED_ITEMS).partition_by("user", as_dict=True)
    items_mh = items["vector"].to_numpy().astype(np.float64)
    index = ids["users"].encode(some["user"])
    for user, own, vector in zip(index.tolist(), some["user"], some["vector"], strict=True):
        score_m = items_mh @ vector.to_numpy().astype(np.float64)
        margin = _ROUNDING * (1.0 + np.abs(score_m).max(initial=0.0))
        seen = place_m[state.history("users", user)[0]]
        score_m[seen[seen >= 0]] = -np.inf
        best = np.argsort(-score_m, kind="stable")[:CHECKED_ITEMS]
        best = best[np.isfinite(score_m[best])]
        answer = answers.get((own,))
        found = best[:0] if answer is None else place_m[ids["items"].encode(answer["item"])]
        if len(found) != len(best) or (np.abs(score_m[found] - score_m[best]) > margin).any():
            raise CfuicaError(
                f"The vectors rank other items for user {own!r} than recommend does, so nothing "
                f"was written; this is a bug in cfuica, please report it."
            )
    return some.height
