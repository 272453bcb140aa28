"""Training ends with a correction of the distributions and a check of it."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.data.table import Interactions
from cfuica.models.co_autoregressive import RatingModel
from tests.runs.small import TINY, small_table


def fitted(valid_rows: int, cold_start: int = 0) -> tuple[RatingModel, Interactions]:
    frame = small_table().frame[np.random.default_rng(0).permutation(2200)]
    train, valid = (
        Interactions.from_frame(part)
        for part in (frame.head(frame.height - valid_rows), frame.tail(valid_rows))
    )
    settings = TINY.replaced(cold_start_units=cold_start, max_steps=40)
    return RatingModel(settings).fit(train, valid=valid, vocabulary=frame), valid


def test_every_network_is_checked_before_and_after_its_correction() -> None:
    model, valid = fitted(800, cold_start=6)
    assert list(model.checks) == ["warm", "cold_start"]
    for checks in model.checks.values():
        assert list(checks) == ["before", "after"]
        before, after = checks.values()
        assert before.n == after.n == valid.n
        # The ordinal cost makes them too narrow; and the mean stays.
        assert abs(np.log(after.spread.ratio)) < abs(np.log(before.spread.ratio))
        assert after.spread.squared_error == pytest.approx(before.spread.squared_error, rel=1e-4)


def test_too_few_pairs_to_correct_by_are_checked_as_they_are() -> None:
    model, valid = fitted(99)
    (scores,) = model.checks["warm"].values()
    assert list(model.checks["warm"]) == ["uncalibrated"]
    assert scores.n == valid.n


def test_without_validation_nothing_is_checked() -> None:
    model = RatingModel(TINY).fit(small_table())
    assert model.checks == {"warm": {}}
