"""What a prompt or a notebook shows of an object fits a screen and says what it is."""

from __future__ import annotations

import pytest

from cfuica.baselines import ItemMean
from cfuica.data.split_tables import DataSplit
from cfuica.data.vocabulary import Vocabulary
from cfuica.models.co_autoregressive import RankingModel, RatingModel
from cfuica.settings import RANKING_PRESETS, rating_preset
from tests.runs.small import TINY, small_table


def test_every_object_says_what_it_is_in_a_few_lines() -> None:
    table = small_table()
    split = DataSplit.random(table, folds=10, fold=0, valid=0.05, seed=0)
    model = RatingModel(TINY.replaced(max_steps=2))
    assert repr(model) == "RatingModel(not fitted)"
    model.fit(split.train, valid=split.valid, vocabulary=table)
    matrix = table.matrix(users=table.users, items=table.item_ids, scale=table.scale)
    timeline = table.timeline(users=table.users, items=table.item_ids, has_times=True)
    assert split.test is not None
    things = {
        repr(model): "RatingModel(fitted: 100 users, 60 items)",
        repr(RankingModel()): "RankingModel(not fitted)",
        repr(ItemMean()): "ItemMean(not fitted)",
        repr(ItemMean().fit(table)): "ItemMean(fitted: 100 users, 60 items)",
        repr(table): "Interactions(2,200 of 100 users and 60 items; rating; timestamp; item metada",
        repr(table.users): "Vocabulary(100 ids: 1, 2, 3, ..., 100)",
        repr(split): "DataSplit(random: train 1,881, valid 99, test 220 interactions)",
        repr(matrix): "InteractionMatrix(100 users, 60 items, 2,200 interactions, 5 labels)",
        repr(timeline): "Timeline(100 users, 60 items, 2,200 interactions)",
        repr(model.artifact): "Artifact(rating: 100 users, 60 items, 1,980 interactions, networks",
        repr(model.trained): "Trained(1 networks, 2 steps, ",
        repr(model.evaluate(split.test)): "Evaluation(rmse=",
        repr(model.observe([(1, 2, 3)])): "Observed(",
    }
    for found, begins in things.items():
        assert found.startswith(begins)
        assert len(found) <= 240
        assert "\n" not in found


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        ([], "0 ids: "),
        (["a"], "1 ids: 'a'"),
        ([1, 2, 3, 4], "4 ids: 1, 2, 3, 4"),
        ([1, 2, 3, 4, 5], "5 ids: 1, 2, 3, ..., 5"),
    ],
)
def test_a_vocabulary_shows_its_ends(ids: list[object], shown: str) -> None:
    import polars as pl

    assert repr(Vocabulary.from_ids(pl.Series("id", ids))) == f"Vocabulary({shown})"


def test_settings_show_what_differs_from_the_defaults() -> None:
    assert repr(TINY.replaced(hidden_users=9)).startswith("RatingSettings(hidden_users=9, hidden_i")
    assert "beta1" not in repr(rating_preset("default"))
    assert all(len(repr(settings)) < 400 for _, settings in RANKING_PRESETS.values())
