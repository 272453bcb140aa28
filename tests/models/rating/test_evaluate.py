"""Scores of a table of ratings."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cfuica.errors import DataError
from cfuica.models.co_autoregressive import RatingModel
from tests.runs.small import small_table


def test_scores_are_those_of_the_predictions(model: RatingModel) -> None:
    frame = small_table().frame.head(300)
    scores = model.evaluate(frame)
    error = (model.predict(frame)["prediction"] - frame["rating"]).to_numpy()
    assert scores.n == 300
    assert scores.rmse == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    assert scores.mae == pytest.approx(np.mean(np.abs(error)), rel=1e-5)
    observed = model.predict_proba(frame)[np.arange(300), frame["rating"].cast(pl.Int64) - 1]
    assert scores.nll == pytest.approx(-np.mean(np.log(observed)), rel=1e-5)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"user": [1], "item": [1]}, "no ratings"),
        ({"user": [1], "item": [1], "rating": [9.0]}, "not on the label scale"),
    ],
)
def test_what_cannot_be_scored_is_explained(
    model: RatingModel, frame: dict[str, list[float]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        model.evaluate(frame)


def test_cold_start_users_are_scored_too_unless_they_are_to_be_refused(model: RatingModel) -> None:
    frame = pl.DataFrame({"user": [999, 1], "item": [1, 1], "rating": [3.0, 4.0]})
    assert model.evaluate(frame).n == 2
    with pytest.raises(DataError, match=r"user 999 \(row 1\) is unknown to this model"):
        model.evaluate(frame, unknown="error")


def test_a_rating_off_the_scale_is_named_by_its_pair(model: RatingModel) -> None:
    frame = {"user": [1, 2], "item": [1, 7], "rating": [3.0, 9.0]}
    with pytest.raises(DataError, match="rating 9 of user 2 and item 7 in a frame is not on the"):
        model.evaluate(frame)
