"""Errors of ratings by user, and of warm and cold users and items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.evaluation.protocols import RunVocabulary
from cfuica.evaluation.rating_errors import RatingErrors, rating_test
from cfuica.models.co_autoregressive import RatingModel
from tests.runs.ranking_run import finished_run, tied_table
from tests.runs.small import TINY, small_table


def test_they_add_up_to_those_of_the_model() -> None:
    data_split = DataSplit.random(small_table(), folds=10, fold=0, valid=0.0, seed=0)
    train = data_split.train.frame.filter(~pl.col("user").is_in([1, 2]))
    train = pl.concat([train, data_split.train.frame.filter(pl.col("user") == 2).head(2)])
    test = data_split.test
    assert test is not None
    model = RatingModel(TINY.replaced(max_steps=2)).fit(train)
    errors, scores = RatingErrors.of_model(test, model), model.evaluate(test)
    expected = {"rmse": scores.rmse, "mae": scores.mae, "nll": scores.nll}
    assert errors.metrics == pytest.approx(expected)
    rows = errors.per_user
    assert rows.columns == ["user", "n", "rmse", "mae", "nll"]
    assert rows["n"].sum() == test.n
    own = test.frame.filter(pl.col("user") == 7)
    alone = model.evaluate(own)
    assert rows.filter(pl.col("user") == 7).row(0)[1:] == pytest.approx(
        (own.height, alone.rmse, alone.mae, alone.nll)
    )
    known = RunVocabulary.of_model(model)
    for cold, users in ((1, [1]), (3, [1, 2])):
        found = errors.warm_and_cold(known, cold)["users"]
        is_cold = pl.col("user").is_in(users)
        for name, frame in (
            ("cold", test.frame.filter(is_cold)),
            ("warm", test.frame.filter(~is_cold)),
        ):
            assert found[name]["n"] == frame.height
            assert found[name]["rmse"] == pytest.approx(model.evaluate(frame).rmse)
    assert errors.warm_and_cold(known, 1)["items"]["cold"] == {"n": 0}


def test_a_test_of_ratings_has_each_users_last_one_alone(tmp_path: Path) -> None:
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    run = finished_run(tmp_path / "run", data_split, task="rating")
    test = rating_test(run)
    assert test.n == 12 < run.read_test().n
    by_date = DataSplit.by_date(tied_table(), test_from=3, valid=0.0)
    run = finished_run(tmp_path / "dated", by_date, task="rating")
    assert rating_test(run).frame.equals(run.read_test().frame)


def test_unknown_users_and_items_are_cold() -> None:
    known = RunVocabulary.of_model(RatingModel(TINY.replaced(max_steps=1)).fit(small_table()))
    test = Interactions.from_frame({"user": [1, 9001], "item": [9001, 1], "rating": [1.0, 2.0]})
    found = RatingErrors.of(test, np.array([2.0, 4.0])).warm_and_cold(known, 1)
    assert found["users"]["cold"] == {"n": 1, "rmse": 2.0, "mae": 2.0}
    assert found["items"]["cold"] == {"n": 1, "rmse": 1.0, "mae": 1.0}
