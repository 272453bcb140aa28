"""Predictions of pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cfuica.data.matrix import InteractionMatrix
from cfuica.errors import DataError, SettingsError
from cfuica.models.co_autoregressive import RatingModel
from tests.models.rating.asked import some_pairs
from tests.runs.small import TINY, small_table


def test_predictions_keep_order_and_ids(model: RatingModel) -> None:
    pairs = some_pairs()
    predicted = model.predict(pairs)
    assert predicted.columns == ["user", "item", "prediction"]
    assert predicted.select("user", "item").equals(pairs)
    order = np.random.default_rng(0).permutation(pairs.height)
    shuffled = model.predict(pairs[order])
    np.testing.assert_allclose(
        shuffled["prediction"].to_numpy(), predicted["prediction"].to_numpy()[order], rtol=1e-5
    )


def test_a_pair_may_be_asked_twice(model: RatingModel) -> None:
    pairs = pl.DataFrame({"user": [1, 2, 1, 1], "item": [2, 3, 2, 2]})
    predicted = model.predict(pairs)
    assert predicted.select("user", "item").equals(pairs)
    assert predicted["prediction"].gather([0, 2, 3]).n_unique() == 1
    assert model.predict_proba(pairs).shape == (4, 5)


@pytest.mark.parametrize(
    "pairs", [[(1, 2), (999, 3)], [("1", "2"), ["999", "3"]], ((1, 2), (999, 3))]
)
def test_pairs_may_be_a_list(model: RatingModel, pairs: Any) -> None:
    frame = pl.DataFrame({"user": [1, 999], "item": [2, 3]})
    assert model.predict(pairs)["prediction"].equals(model.predict(frame)["prediction"])
    np.testing.assert_array_equal(model.predict_proba(pairs), model.predict_proba(frame))


@pytest.mark.parametrize("pairs", [(1, 2), ["ab"], [(1, 2), (1,)], [(1, 2), None]])
def test_what_is_no_list_of_pairs_is_explained(model: RatingModel, pairs: Any) -> None:
    with pytest.raises(
        DataError, match=r"^The pair .* is not of the form \(user, item\); give all"
    ):
        model.predict(pairs)


def test_ratings_that_are_still_missing_do_not_stand_in_the_way(model: RatingModel) -> None:
    pairs = pl.DataFrame({"user": [1, 2], "item": [2, 3], "rating": [None, float("nan")]})
    assert model.predict(pairs).height == 2


def test_distributions_are_distributions_and_predictions_their_means(model: RatingModel) -> None:
    p_pk = model.predict_proba(some_pairs())
    assert p_pk.dtype == np.float32
    assert p_pk.min() > 0
    np.testing.assert_allclose(p_pk.sum(1), 1, rtol=1e-5)
    expected = p_pk @ np.arange(1, 6)
    np.testing.assert_allclose(model.predict(some_pairs())["prediction"], expected, rtol=1e-5)


def test_an_observed_pair_is_predicted_as_if_it_were_not_there(model: RatingModel) -> None:
    warm = model.artifact
    users, items, labels = warm.interactions.triplets()
    for row in (0, 1000, len(users) - 1):
        kept = np.arange(len(users)) != row
        without = InteractionMatrix.from_triplets(
            users[kept], items[kept], labels[kept], n_users=100, n_items=60, n_labels=5
        )
        forgetful = RatingModel.from_artifact(replace(warm, interactions=without))
        pair = pl.DataFrame(
            {"user": warm.users.decode(users[[row]]), "item": warm.items.decode(items[[row]])}
        )
        expected = forgetful.predict_proba(pair)
        np.testing.assert_allclose(model.predict_proba(pair), expected, rtol=1e-5)


def test_the_label_of_a_pair_cannot_leak_into_its_prediction(model: RatingModel) -> None:
    warm = model.artifact
    users, items, labels = warm.interactions.triplets()
    changed = labels.copy()
    changed[0] = (changed[0] + 2) % 5
    matrix = InteractionMatrix.from_triplets(
        users, items, changed, n_users=100, n_items=60, n_labels=5
    )
    other = RatingModel.from_artifact(replace(warm, interactions=matrix))
    pair = pl.DataFrame({"user": warm.users.decode([0]), "item": warm.items.decode(items[:1])})
    neighbour = pl.DataFrame(
        {"user": warm.users.decode([0]), "item": warm.items.decode(items[1:2])}
    )
    assert other.predict(pair).equals(model.predict(pair))
    assert not other.predict(neighbour).equals(model.predict(neighbour))


def with_text_ids(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        user=pl.format("ü{}", pl.col("user").cast(pl.String).str.zfill(3)),
        item=pl.format("i, {}", pl.col("item").cast(pl.String).str.zfill(3)),
    )


def test_text_ids_give_what_integer_ids_give(model: RatingModel) -> None:
    texts = RatingModel(TINY).fit(with_text_ids(small_table().frame))
    pairs = some_pairs()
    predicted = texts.predict(with_text_ids(pairs))
    assert predicted.select("user", "item").equals(with_text_ids(pairs))
    assert predicted["prediction"].equals(model.predict(pairs)["prediction"])
    top = texts.recommend(["ü007"], 3)
    numbers = model.recommend([7], 3)
    assert top["item"].to_list() == [f"i, {item:03d}" for item in numbers["item"]]


def test_integers_may_be_asked_for_as_text_and_in_any_width(model: RatingModel) -> None:
    pairs = some_pairs()
    expected = model.predict(pairs)["prediction"]
    for ids in (pl.String, pl.Int32, pl.UInt8, pl.Float64):
        predicted = model.predict(pairs.cast(ids))
        assert predicted["prediction"].equals(expected)


def test_pandas_categories_are_ids(model: RatingModel) -> None:
    pairs = some_pairs()
    given = pd.DataFrame({name: pairs[name].cast(pl.String).to_list() for name in pairs.columns})
    predicted = model.predict(given.astype("category"))
    assert predicted["prediction"].to_list() == model.predict(pairs)["prediction"].to_list()


def test_a_pandas_index_is_kept(model: RatingModel) -> None:
    pairs = pd.DataFrame({"user": [1, 2, 3], "item": [4, 5, 6]}, index=[7, 5, 9])
    pairs["prediction"] = model.predict(pairs)["prediction"]
    plain = model.predict(pairs.reset_index(drop=True))["prediction"]
    assert pairs["prediction"].to_list() == plain.to_list()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            {"user": [1, 999], "item": [1, 1]},
            r"user 999 \(row 2\) is unknown to this model: it kno",
        ),
        ({"user": [1, 0, 999], "item": [1, 1, 1]}, r"user 0 \(row 2\) .*, like 1 more of 3"),
        ({"user": [1], "item": ["x"]}, r"item 'x' \(row 1\)"),
        ({"user": [1], "item": [-1]}, "item -1"),
    ],
)
def test_unknown_ids_are_refused_where_that_is_asked_for(
    model: RatingModel, pairs: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(pairs, unknown="error")
    with pytest.raises(DataError, match=message):
        model.predict_proba(pairs, unknown="error")
    assert model.predict(pairs)["prediction"].is_between(1, 5).all()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"user": [1], "item": [1.5]}, "holds the id 1.5"),
        ({"user": [1], "item": [None]}, "must be an id"),
        ({"user": [1]}, "no column 'item'"),
        ({"user": [1, 2], "item": [1]}, "could not be converted"),
    ],
)
def test_pairs_that_cannot_be_predicted_are_explained(
    model: RatingModel, pairs: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(pairs)


def test_what_becomes_of_the_unknown_is_one_of_two(model: RatingModel) -> None:
    with pytest.raises(SettingsError, match="unknown is 'drop', but it is either 'serve' or"):
        model.predict(some_pairs(), unknown="drop")  # type: ignore[arg-type]
