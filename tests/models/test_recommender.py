"""What the base class does for every model, and `load` for every folder; `cfuica.testing` has the
rest of the contract."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import cfuica
from cfuica import baselines
from cfuica.baselines import ItemMean, UserItemBias
from cfuica.errors import CfuicaError, DataError, ModelFileError, SettingsError
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import MODELS, Recommender, kind_named
from tests.cli.harness import done, refused
from tests.runs.small import TINY, small_table


@pytest.fixture(scope="module")
def model() -> RatingModel:
    return RatingModel(TINY).fit(small_table())


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a baseline."""
    folder = tmp_path_factory.mktemp("saved") / "baseline"
    return UserItemBias().fit(small_table()).save(folder)


@pytest.mark.parametrize("by", ["expected", "lower", "blend"])
def test_scores_are_those_of_the_ranking(model: RatingModel, by: str) -> None:
    top = model.recommend(3, 60, by=by, exclude_seen=False)
    assert model.score(3, top["item"], by=by).equals(top.select("user", "item", "score"))


def test_a_score_is_the_expected_rating_without_its_own_interaction(model: RatingModel) -> None:
    seen = small_table().frame.filter(pl.col("user") == 3)
    predicted = model.predict(seen.select("user", "item"))["prediction"]
    scores = model.score(3, seen["item"], by="expected")["score"]
    np.testing.assert_allclose(scores, predicted, rtol=1e-6)


def test_scores_come_in_the_order_and_the_library_of_the_items(model: RatingModel) -> None:
    found = model.score("3", pd.Series([5, 2, 5], index=[7, 8, 9], name="item"))
    assert isinstance(found, pd.DataFrame)
    assert found.index.tolist() == [7, 8, 9]
    assert found["user"].tolist() == [3, 3, 3]
    assert found["item"].tolist() == [5, 2, 5]
    assert found["score"][7] == found["score"][9]


def test_unknown_users_and_items_have_scores_or_are_refused(model: RatingModel) -> None:
    found = model.score(900, [901, 2])
    assert found["item"].to_list() == [901, 2]
    assert found["score"].is_finite().all()
    for user, item in ((900, 2), (3, 901)):
        with pytest.raises(DataError, match="is unknown to this model"):
            model.score(user, item, unknown="error")


def test_scores_are_for_one_user_or_one_history(model: RatingModel) -> None:
    with pytest.raises(SettingsError, match="for a user or for a history: give one"):
        model.score(None, [2])
    with pytest.raises(SettingsError, match="for a user or for a history: give one"):
        model.score(3, [2], history=[(5, 4.0)])
    with pytest.raises(DataError, match="2 users were given, but one"):
        model.score([3, 4], [2])
    assert model.score(None, [2], history=[(5, 4.0)]).columns == ["item", "score"]


def test_every_model_that_is_loaded_by_name_is_there() -> None:
    bases = {"Baseline", "RankingBaseline", "RatingBaseline"}
    named = {
        each.split(":")[1] for name, own in MODELS.items() if name != "cf-uica" for each in own
    }
    assert set(baselines.__all__) - bases == named


@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_settings_have_one_name_and_one_task(name: str) -> None:
    kind = kind_named(name)
    settings = kind.preset("default")
    assert type(settings) is kind.settings
    assert settings.model == name
    assert kind.model.reads_ratings == (settings.task == "rating")
    assert kind.split == ("random" if settings.task == "rating" else "leave-one-out")
    for setting, (how, *values) in settings.space.items():
        assert how in ("log", "uniform", "choice")
        for value in values:
            assert getattr(settings.replaced(**{setting: value}), setting) == value


def test_what_a_baseline_is_not_for_is_said_in_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"^--model bpr is for the task ranking, but --task is"):
        kind_named("bpr", "rating")
    with pytest.raises(SettingsError, match=r"^--model deep is not known; the models are cf-uica,"):
        kind_named("deep")
    with pytest.raises(SettingsError, match=r"^There is no preset 'paper' of the model bpr; the"):
        kind_named("bpr").preset("paper")


def test_a_folder_of_another_class_is_refused(baseline: Path) -> None:
    assert isinstance(cfuica.load(baseline), UserItemBias)
    with pytest.raises(ModelFileError, match="holds a UserItemBias, not a ItemMean; load it with"):
        ItemMean.load(baseline)


def test_a_model_of_others_is_loaded_by_its_own_class(tmp_path: Path) -> None:
    class Theirs(ItemMean):
        """Not in the table of names."""

    folder = Theirs(damping=2.0).fit(small_table()).save(tmp_path / "theirs")
    again = Theirs.load(folder)
    assert isinstance(again, Theirs)
    assert again.settings.damping == 2.0
    with pytest.raises(ModelFileError, match="holds a 'Theirs', which is none of RatingModel"):
        cfuica.load(folder)


def test_metadata_of_items_survives(baseline: Path) -> None:
    again: Recommender = cfuica.load(baseline)
    assert again.users.size == small_table().users.size
    top = again.recommend(3, 2, where={"genres": "Comedy"}, max_per={"title": 1})
    assert top.columns == ["user", "rank", "item", "score", "title"]


def test_commands_serve_a_baseline_or_refuse_in_one_sentence(
    baseline: Path, tmp_path: Path
) -> None:
    small_table().frame.write_csv(tmp_path / "table.csv")
    assert "For user 3" in done("recommend", baseline, "--user", "3", "-n", "2").out
    assert done("predict", baseline, "--pairs", tmp_path / "table.csv").code == 0
    tested = done("evaluate", baseline, "--test", tmp_path / "table.csv", "--json").out
    assert json.loads(tested).keys() == {"rmse", "mae", "n", "seconds"}
    for words, cannot in (
        (("similar", baseline, "--item", "3"), "compare items"),
        (("explain", baseline, "--item", "3", "--user", "3"), "explain its scores"),
        (("observe", baseline, "--events", tmp_path / "table.csv"), "observe interactions"),
        (("forget", baseline, "--user", "3"), "forget a user"),
        (("recommend", baseline, "--history", "3:4"), "serve an ad-hoc history"),
        (
            ("predict", baseline, "--pairs", tmp_path / "table.csv", "--distribution"),
            "predict distributions of ratings",
        ),
    ):
        assert f"UserItemBias cannot {cannot}" in refused(*words)


def test_what_a_model_cannot_do_is_said_in_one_sentence() -> None:
    with pytest.raises(CfuicaError, match=r"^ItemMean cannot compare items; RatingModel and"):
        ItemMean().similar_items(3)
