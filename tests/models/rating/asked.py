"""What the tests ask a model about."""

from __future__ import annotations

import polars as pl

from tests.runs.small import small_table


def some_pairs() -> pl.DataFrame:
    """40 observed and 40 unobserved pairs, mixed."""
    frame = small_table().frame.select("user", "item")
    grid = pl.DataFrame({"user": range(1, 101)}).join(
        pl.DataFrame({"item": range(1, 61)}), how="cross"
    )
    others = grid.join(frame, on=["user", "item"], how="anti").sort("user", "item")
    both = pl.concat([frame.sample(40, seed=1), others.sample(40, seed=2)])
    return both.sample(fraction=1.0, shuffle=True, seed=3)
