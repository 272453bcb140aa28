"""A world with order: whoever did an item does the next one, round and round."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl

from cfuica.data.table import Interactions
from cfuica.models.co_autoregressive import RankingModel
from cfuica.settings import RankingSettings

N_ITEMS, LENGTH = 20, 8
SMALL = RankingSettings(
    hidden_users=8,
    hidden_items=16,
    learned_decay=True,
    batch_users=20,
    learning_rate=0.02,
    l2=0,
    schedule="planned",
    max_steps=120,
    validate_every=40,
    ties="apart",
    drop_interactions=0.1,
    drop_users=0.2,
)


def rows(users: int = 60, seed: int = 0) -> pl.DataFrame:
    """user, item, rating, timestamp: each user walks LENGTH items from somewhere."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, N_ITEMS, users)
    walked = [
        (user, int(start + t) % N_ITEMS, float(1 + (user + t) % 3), 10 * t)
        for user, start in enumerate(starts)
        for t in range(LENGTH)
    ]
    return pl.DataFrame(walked, schema=["user", "item", "rating", "timestamp"], orient="row")


def table(frame: pl.DataFrame) -> Interactions:
    item = pl.Series("item", range(N_ITEMS))
    item_metadata = pl.DataFrame(
        {"item": item, "title": [f"Title {i}" for i in item], "series": item % 4}
    )
    return Interactions.from_frame(frame, items=item_metadata)


def parted(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(all but the last, the last) of each user."""
    last = frame.group_by("user", maintain_order=True).tail(1)
    return frame.join(last, on=["user", "item"], how="anti", maintain_order="left"), last


@cache
def fitted(**changes: object) -> RankingModel:
    """A model of the cyclic world; look, do not touch."""
    whole = rows()
    train, last = parted(whole)
    settings = SMALL.replaced(**changes)
    return RankingModel(settings).fit(table(train), valid=table(last), vocabulary=table(whole))
