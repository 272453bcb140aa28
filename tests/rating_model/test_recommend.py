"""The best items for users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError, SettingsError
from cfuica.model_folder import load
from cfuica.rating_model import RatingModel
from tests.runs.small import TINY, small_table


def test_recommendations_are_the_best_of_what_was_not_seen(model: RatingModel) -> None:
    top = model.recommend([3, 5], 4, min_support=1)
    assert top.columns == ["user", "rank", "item", "score", "title"]
    assert top["user"].to_list() == [3] * 4 + [5] * 4
    assert top["rank"].to_list() == [1, 2, 3, 4] * 2
    frame = small_table().frame
    for user in (3, 5):
        seen = set(frame.filter(pl.col("user") == user)["item"])
        rated = set(frame["item"])
        unseen = pl.DataFrame({"item": sorted(rated - seen)}).with_columns(user=user)
        best = model.predict(unseen).sort("prediction", descending=True).head(4)
        mine = top.filter(pl.col("user") == user)
        assert mine["item"].to_list() == best["item"].to_list()
        np.testing.assert_allclose(mine["score"], best["prediction"], rtol=1e-6)


def test_titles_stand_beside_their_items(model: RatingModel) -> None:
    items = small_table().items
    assert items is not None
    titles = dict(items.select("item", "title").iter_rows())
    for row in model.recommend([3], 60).iter_rows(named=True):
        assert row["title"] == titles[row["item"]]


def test_seen_items_are_recommended_when_wanted(model: RatingModel) -> None:
    every = model.recommend([3], 1000, exclude_seen=False, min_support=1)
    rated = small_table().frame["item"].n_unique()
    assert every.height == rated


def test_candidates_can_be_named(model: RatingModel) -> None:
    top = model.recommend([3], 1000, items=[9, 4, 4, 8], exclude_seen=False, min_support=1)
    assert sorted(top["item"]) == [4, 8, 9]
    assert model.recommend([3], items=iter(["4"]), exclude_seen=False)["item"].to_list() == [4]
    with pytest.raises(DataError, match="item 999"):
        model.recommend([3], items=[999])


def test_items_that_few_rated_are_left_out(model: RatingModel) -> None:
    counts = small_table().frame["item"].value_counts()
    enough = set(counts.filter(pl.col("count") >= 30)["item"])
    assert 0 < len(enough) < 60
    every = model.recommend([3], 1000, exclude_seen=False, min_support=30)
    assert set(every["item"]) == enough
    assert model.recommend([3], min_support=10**6).is_empty()


@pytest.mark.parametrize("user", [3, "3", np.int64(3), [3], (3,), np.array([3]), pl.Series([3])])
def test_one_user_may_be_given_in_any_form(model: RatingModel, user: Any) -> None:
    assert model.recommend(user, 2).equals(model.recommend([3], 2))


@pytest.mark.parametrize(
    ("users", "n", "message"),
    [
        ([], 10, "No user was given"),
        ([3, "three"], 10, "several types"),
        (["42x"], 10, "user '42x'"),
        ([None], 10, "user None"),
        ([3], 0, "n is 0"),
        ([3], -1, "n is -1"),
    ],
)
def test_what_cannot_be_recommended_is_explained(
    model: RatingModel, users: list[Any], n: int, message: str
) -> None:
    with pytest.raises((DataError, SettingsError), match=message):
        model.recommend(users, n)


def test_titles_meet_their_items_by_text_and_the_first_one_counts(tmp_path: Path) -> None:
    about = {"item": ["2", "2", "1", "unheard of"], "title": ["Two", "Second", "One", "None"]}
    table = BehaviourTable.from_frame(small_table().frame, items=pl.DataFrame(about))
    model = RatingModel(TINY.replaced(max_steps=1)).fit(table)
    for one in (model, load(model.save(tmp_path / "model"))):
        top = one.recommend([3], 60, exclude_seen=False, min_support=1)
        assert top.height == small_table().frame["item"].n_unique()
        titles = dict(top.select("item", "title").iter_rows())
        assert (titles[1], titles[2], titles[3]) == ("One", "Two", None)
