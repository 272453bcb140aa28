"""Fitting: what is learned, what is read, and what order is."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cfuica.data.matrix import NO_TIMES
from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError
from cfuica.metrics.ranking_metrics import RankingScores
from cfuica.models.co_autoregressive import RankingModel
from cfuica.settings import ranking_preset
from tests.models.ranking.cyclic import LENGTH, N_ITEMS, SMALL, fitted, parted, rows, table

QUICK = SMALL.replaced(max_steps=3, validate_every=3)


def test_the_order_of_the_world_is_learned(model: RankingModel) -> None:
    assert model.trained is not None
    valid = model.trained.history[-1].valid
    assert isinstance(valid, RankingScores)
    assert valid.hr > 0.9
    top = model.recommend(history=[3, 4, 5], n=1)
    assert top["item"].to_list() == [6]
    assert top["title"].to_list() == ["Title 6"]
    for newest, older in ((3, 14), (14, 3)):
        found = model.recommend(history=[older, newest], n=1)
        assert found["item"].to_list() == [newest + 1], "the newest counts most"


def test_what_validates_is_read_after_training(model: RankingModel) -> None:
    whole = rows()
    line = model.artifact.interactions
    assert line.n_interactions == whole.height
    assert line.items[:LENGTH].tolist() == whole["item"][:LENGTH].to_list()
    nexts = [(item + 1) % N_ITEMS for item in parted(whole)[1]["item"]]
    top = model.recommend(whole["user"].unique(maintain_order=True), 1)["item"]
    assert np.mean(top.to_numpy() == nexts) > 0.8


def test_validation_asks_for_the_last_interaction_of_each_user() -> None:
    whole = rows()
    later = whole.group_by("user", maintain_order=True).tail(3)
    train = whole.join(later, on=["user", "item"], how="anti", maintain_order="left")
    model = RankingModel(QUICK).fit(table(train), valid=table(later[::-1]), vocabulary=table(whole))
    assert model.trained is not None
    valid = model.trained.history[-1].valid
    assert isinstance(valid, RankingScores)
    assert valid.n == 60
    line = model.artifact.interactions
    assert line.items[:LENGTH].tolist() == whole["item"][:LENGTH].to_list()


def test_without_times_the_order_of_the_rows_is_that_of_time() -> None:
    whole = rows().drop("timestamp")
    train, last = parted(whole)
    untimed = RankingModel(SMALL).fit(table(train), valid=table(last), vocabulary=table(whole))
    assert not untimed.artifact.has_times
    assert untimed.notes == (NO_TIMES,)
    timed = fitted()
    assert timed.artifact.has_times
    assert timed.notes == ()
    all_rows = list(range(60))
    assert untimed.recommend(all_rows).equals(timed.recommend(all_rows))


def test_interactions_without_a_rating_are_interactions() -> None:
    frame = rows(20).with_columns(rating=pl.when(pl.col("item") > 3).then("rating"))
    implicit = Interactions.from_frame(frame, empty_rating="keep")
    model = RankingModel(QUICK).fit(implicit)
    assert model.artifact.interactions.n_interactions == frame.height
    unrated = RankingModel(QUICK).fit(frame.drop("rating"))
    assert unrated.recommend(list(range(20))).equals(model.recommend(list(range(20))))


def test_who_and_what_training_did_not_know_has_the_rows_of_cold_start() -> None:
    whole = rows(20)
    train = whole.filter(pl.col("user") != 7, pl.col("item") != 5)
    model = RankingModel(QUICK).fit(table(train), vocabulary=table(whole))
    warm = model.artifact
    users, items = (warm.networks["warm"].sides[axis] for axis in ("users", "items"))
    assert warm.rows["users"][7] == users.shared_row
    others = np.delete(np.arange(20), 7)
    np.testing.assert_array_equal(warm.rows["users"][others], others)
    for table_ in (users.W.array, users.V.array):
        np.testing.assert_allclose(table_[-1], table_[others].mean(0), atol=1e-6)
    done = np.bincount(train["item"], minlength=N_ITEMS)
    ever = np.flatnonzero(done)
    np.testing.assert_allclose(items.W.array[-1], items.W.array[ever].mean(0), atol=1e-6)
    np.testing.assert_array_equal(items.W.array[5], items.W.array[-1])
    np.testing.assert_array_equal(warm.rows["items"], np.arange(N_ITEMS))
    assert not np.array_equal(items.V.array[5], items.V.array[-1])
    rarest = ever[np.argsort(done[ever], kind="stable")][:2]
    np.testing.assert_allclose(items.b.array[-1], items.b.array[rarest].mean(0), atol=1e-6)


def test_without_settings_a_model_has_those_of_the_default_preset() -> None:
    assert RankingModel().settings == ranking_preset("default")


def test_a_model_that_is_not_fitted_says_so() -> None:
    for ask in (lambda m: m.artifact, lambda m: m.recommend(1), lambda m: m.save("x")):
        with pytest.raises(CfuicaError, match="not fitted yet"):
            ask(RankingModel())
