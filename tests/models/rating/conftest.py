"""Models that these tests share."""

from __future__ import annotations

import copy

import numpy as np
import polars as pl
import pytest

from cfuica.data.table import Interactions
from cfuica.models.co_autoregressive import RatingModel
from tests.runs.small import TINY, small_table


@pytest.fixture(scope="session")
def model() -> RatingModel:
    """Fitted to the small world, integer ids and titles; look, do not touch."""
    return RatingModel(TINY).fit(small_table())


@pytest.fixture(scope="session")
def with_cold() -> RatingModel:
    """The same with a cold-start network, corrected distributions and more columns about the
    items; the users 91 to 100 are not trained on. Look, do not touch."""
    world = small_table()
    assert world.items is not None
    item = world.items["item"]
    item_metadata = world.items.with_columns(series=item % 7, year=1990 + item % 5)
    frame = world.frame.filter(pl.col("user") <= 90)[np.random.default_rng(0).permutation(1900)]
    train, valid, vocabulary = (
        Interactions.from_frame(part, items=item_metadata)
        for part in (frame.head(1300), frame.tail(frame.height - 1300), frame)
    )
    settings = TINY.replaced(cold_start_units=6, length_normalisation=0.5, max_steps=60)
    fitted = RatingModel(settings).fit(train, valid=valid, vocabulary=vocabulary)
    assert set(fitted.artifact.networks) == {"warm", "cold_start"}
    for calibration in fitted.artifact.calibrations.values():
        assert not calibration.is_identity
    return fitted


@pytest.fixture
def live(with_cold: RatingModel) -> RatingModel:
    """The same to do anything to."""
    warm = copy.deepcopy(with_cold.artifact)
    return RatingModel.from_artifact(warm)
