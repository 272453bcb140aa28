"""The model as its users meet it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.table import BehaviourTable
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.learning.trainer import SEEDS_APART
from cfuica.model_folder import load
from cfuica.presets import preset
from cfuica.rating_model import RatingModel
from tests.runs.small import TINY, small_table


@pytest.fixture(scope="module")
def model() -> RatingModel:
    """Fitted to the small world, integer ids and titles; look, do not touch."""
    return RatingModel(TINY).fit(small_table())


def some_pairs() -> pl.DataFrame:
    """40 observed and 40 unobserved pairs, mixed."""
    frame = small_table().frame.select("user", "item")
    grid = pl.DataFrame({"user": range(1, 101)}).join(
        pl.DataFrame({"item": range(1, 61)}), how="cross"
    )
    others = grid.join(frame, on=["user", "item"], how="anti").sort("user", "item")
    both = pl.concat([frame.sample(40, seed=1), others.sample(40, seed=2)])
    return both.sample(fraction=1.0, shuffle=True, seed=3)


# Fitting.


def test_fit_returns_the_model_itself() -> None:
    model = RatingModel(TINY.replaced(max_steps=1))
    assert model.fit(small_table()) is model


def test_the_default_settings_are_the_default_preset() -> None:
    assert RatingModel().settings == preset("default")


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.predict(some_pairs()),
        lambda model: model.predict_proba(some_pairs()),
        lambda model: model.evaluate(small_table()),
        lambda model: model.recommend([1]),
        lambda model: model.save("never-written"),
    ],
)
def test_a_model_that_is_not_fitted_says_so(ask: Callable[[RatingModel], object]) -> None:
    with pytest.raises(CfuicaError, match=r"not fitted yet: call fit\(table\)"):
        ask(RatingModel(TINY))
    assert not Path("never-written").exists()


@pytest.mark.parametrize("library", ["polars", "lazy", "pandas", "pyarrow", "dict", "table"])
def test_any_kind_of_frame_gives_the_same_model_and_predictions(
    model: RatingModel, library: str
) -> None:
    convert: dict[str, Callable[[pl.DataFrame], Any]] = {
        "polars": lambda frame: frame,
        "lazy": lambda frame: frame.lazy(),
        "pandas": lambda frame: frame.to_pandas(),
        "pyarrow": lambda frame: frame.to_arrow(),
        "dict": lambda frame: frame.to_dict(as_series=False),
        "table": BehaviourTable.from_frame,
    }
    ratings, pairs = (
        convert[library](frame)
        for frame in (small_table().frame.select("user", "item", "rating"), some_pairs())
    )
    fitted = RatingModel(TINY).fit(ratings)
    assert fitted.predict(pairs).equals(model.predict(some_pairs()))


def test_validation_may_be_a_frame_and_is_read_when_predicting() -> None:
    frame = small_table().frame
    train, valid = frame.head(2000), frame.tail(200)
    model = RatingModel(TINY).fit(train, valid=valid.to_pandas(), spans=frame)
    assert model.fitted is not None
    assert model.fitted.history[-1].valid is not None
    assert model.knowledge.behaviours.n_behaviours == frame.height


def test_validation_that_overlaps_training_is_refused_before_the_work() -> None:
    frame = small_table().frame
    endless = TINY.replaced(max_steps=10**9)
    with pytest.raises(DataError, match=r"repeat a \(user, item\) pair"):
        RatingModel(endless).fit(frame, valid=frame.head(5))


def test_training_beyond_the_span_is_refused() -> None:
    frame = small_table().frame
    with pytest.raises(DataError, match="unknown user"):
        RatingModel(TINY).fit(frame, spans=frame.filter(pl.col("user") > 1))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pl.DataFrame({"user": [1, 2], "item": [1, 2]}), "no ratings"),
        (pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [3.0, 3.0]}), "only the rating 3"),
        (pl.DataFrame({"user": [1], "rating": [3.0]}), "no column 'item'"),
        (pl.DataFrame({"user": [1], "item": [1], "rating": [float("nan")]}), "finite number"),
        (pl.DataFrame({"user": [], "item": [], "rating": []}), "no rows"),
        ("ratings.csv", "a polars, pandas or pyarrow table was expected"),
    ],
)
def test_what_cannot_be_fitted_is_explained(frame: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        RatingModel(TINY).fit(frame)


# Predicting.


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
    known = model.knowledge
    users, items, labels = known.behaviours.triplets()
    for row in (0, 1000, len(users) - 1):
        kept = np.arange(len(users)) != row
        without = BehaviourMatrix.from_triplets(
            users[kept], items[kept], labels[kept], n_users=100, n_items=60, n_labels=5
        )
        forgetful = RatingModel.from_knowledge(TINY, replace(known, behaviours=without))
        pair = pl.DataFrame(
            {"user": known.users.decode(users[[row]]), "item": known.items.decode(items[[row]])}
        )
        expected = forgetful.predict_proba(pair)
        np.testing.assert_allclose(model.predict_proba(pair), expected, rtol=1e-5)


def test_the_label_of_a_pair_cannot_leak_into_its_prediction(model: RatingModel) -> None:
    known = model.knowledge
    users, items, labels = known.behaviours.triplets()
    changed = labels.copy()
    changed[0] = (changed[0] + 2) % 5
    matrix = BehaviourMatrix.from_triplets(
        users, items, changed, n_users=100, n_items=60, n_labels=5
    )
    other = RatingModel.from_knowledge(TINY, replace(known, behaviours=matrix))
    pair = pl.DataFrame({"user": known.users.decode([0]), "item": known.items.decode(items[:1])})
    neighbour = pl.DataFrame(
        {"user": known.users.decode([0]), "item": known.items.decode(items[1:2])}
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
    assert predicted["prediction"].equals(model.predict(pairs)["prediction"])


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
        ({"user": [1], "item": [1.5]}, "holds the id 1.5"),
        ({"user": [1], "item": [None]}, "must be an id"),
        ({"user": [1]}, "no column 'item'"),
        ({"user": [], "item": []}, "no rows"),
        ({"user": [1, 2], "item": [1]}, "could not be converted"),
    ],
)
def test_pairs_that_cannot_be_predicted_are_explained(
    model: RatingModel, pairs: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(pairs)


@pytest.mark.parametrize("values", [np.arange(0.5, 5.5, 0.5), np.array([-1.0, 0.0, 100.0])])
def test_any_scale_is_learned_and_kept_to(values: np.ndarray) -> None:
    frame = small_table().frame.with_columns(
        rating=pl.Series(np.random.default_rng(0).choice(values, 2200))
    )
    model = RatingModel(TINY).fit(frame)
    assert model.knowledge.scale.values == tuple(values)
    predictions = model.predict(frame)["prediction"]
    assert predictions.is_between(values[0], values[-1]).all()
    assert model.evaluate(frame).n == 2200


@pytest.mark.parametrize("thumbs", [(0, 1), (-1, 1)])
def test_thumbs_are_learned(thumbs: tuple[int, int]) -> None:
    frame = small_table().frame.with_columns(
        rating=pl.when(pl.col("rating") > 3).then(thumbs[1]).otherwise(thumbs[0])
    )
    split = np.random.default_rng(0).permutation(2200)
    train, test = frame[split[:1900]], frame[split[1900:]]
    model = RatingModel(TINY.replaced(max_steps=200)).fit(train, spans=frame)
    assert model.knowledge.scale.values == thumbs
    assert model.predict(test)["prediction"].is_between(*thumbs).all()
    assert model.evaluate(test).rmse < 0.97 * float(test["rating"].std(ddof=0))  # type: ignore[arg-type]


def slider(n: int = 2200) -> pl.DataFrame:
    """The small world on a slider from -10 to 10 with two decimals."""
    frame = small_table().frame.head(n)
    noise = np.random.default_rng(0).uniform(-2, 2, n)
    moved = (frame["rating"] - 3) * 4 + noise
    return frame.with_columns(rating=moved.clip(-10, 10).round(2))


def test_a_slider_is_binned_learned_and_scored_on_its_own_scale() -> None:
    frame = slider()
    assert frame["rating"].n_unique() > 500
    split = np.random.default_rng(0).permutation(2200)
    train, valid, test = (frame[part] for part in np.split(split, [1700, 1900]))
    settings = TINY.replaced(max_steps=200, bins=12)
    model = RatingModel(settings).fit(train, valid=valid, spans=frame)
    scale = model.knowledge.scale
    assert scale == BehaviourTable.from_frame(train).label_scale(bins=12), "of the training part"
    assert scale.size == 12
    shares = np.bincount(scale.encode(train["rating"])) / train.height
    # As even as the ratings at the ends of the slider allow.
    ends = [float((train["rating"] == end).mean()) for end in (-10, 10)]  # type: ignore[arg-type]
    assert shares.max() <= 1 / 12 + max(0.02, *ends)
    predicted = model.predict(test)["prediction"]
    assert predicted.is_between(-10, 10).all()
    error = (predicted - test["rating"]).to_numpy()
    scores = model.evaluate(test)
    assert scores.rmse == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    assert scores.mae == pytest.approx(np.mean(np.abs(error)), rel=1e-5)
    assert scores.rmse < 0.95 * float(test["rating"].std(ddof=0))  # type: ignore[arg-type]
    # Validation is scored alike, though on what was known then.
    assert model.fitted is not None
    assert model.fitted.history[-1].valid is not None
    known = replace(model.knowledge, behaviours=_matrix(model, train))
    alone = RatingModel.from_knowledge(settings, known).evaluate(valid)
    assert model.fitted.history[-1].valid.rmse == pytest.approx(alone.rmse, rel=1e-5)


def _matrix(model: RatingModel, frame: pl.DataFrame) -> BehaviourMatrix:
    known = model.knowledge
    table = BehaviourTable.from_frame(frame)
    return table.matrix(users=known.users, items=known.items, scale=known.scale)


def test_a_slider_is_tested_beyond_what_training_saw() -> None:
    frame = slider(500)
    model = RatingModel(TINY.replaced(max_steps=1)).fit(frame)
    test = frame.head(10).with_columns(rating=pl.lit(1000.0))
    assert model.evaluate(test).mae > 980


def test_a_binned_model_comes_back_from_its_folder(tmp_path: Path) -> None:
    frame = slider()
    model = RatingModel(TINY).fit(frame)
    again = load(model.save(tmp_path / "model"))
    assert again.knowledge.scale == model.knowledge.scale
    assert again.knowledge.scale.is_binned
    assert again.predict(frame).equals(model.predict(frame))
    assert again.evaluate(frame) == model.evaluate(frame)


def test_behaviours_without_a_rating_lend_their_ids_and_are_not_learned_from() -> None:
    frame = small_table().frame.select("user", "item", "rating")
    extra = pl.DataFrame({"user": [777, 1], "item": [1, 888], "rating": [0.0, 0.0]})
    table = BehaviourTable.from_frame(pl.concat([frame, extra]), no_rating=(0.0,))
    known = RatingModel(TINY).fit(table).knowledge
    assert (known.users.size, known.items.size) == (101, 61)
    assert known.scale.values == (1, 2, 3, 4, 5)
    assert known.behaviours.n_behaviours == frame.height
    model = RatingModel.from_knowledge(TINY, known)
    assert model.predict(extra).height == 2
    assert model.evaluate(table).n == frame.height
    dropped = BehaviourTable.from_frame(
        pl.concat([frame, extra]), no_rating=(0.0,), no_rating_means="drop"
    )
    assert (
        RatingModel(TINY)
        .fit(dropped)
        .predict(frame)
        .equals(RatingModel(TINY).fit(frame).predict(frame))
    )


@pytest.mark.parametrize("few", ["user", "item"])
def test_one_user_or_one_item_is_trained_on_or_refused_clearly(few: str) -> None:
    frame = pl.DataFrame({"user": range(6), "item": range(6), "rating": [1, 2, 3, 4, 5, 1]})
    frame = frame.with_columns(pl.lit(1).alias(few))
    with pytest.raises(CfuicaError, match="at least 2 users and 2 items"):
        RatingModel(TINY).fit(frame)
    model = RatingModel(TINY.replaced(estimator="strict")).fit(frame)
    assert model.predict(frame)["prediction"].is_between(1, 5).all()


def test_rounding_carries_no_prediction_beyond_the_scale() -> None:
    values = np.array([100, 100.5, 101], np.float32)
    rng = np.random.default_rng(0)
    frame = small_table().frame.with_columns(rating=pl.Series(rng.choice(values, 2200)))
    model = RatingModel(TINY.replaced(max_steps=1)).fit(frame)
    for side in model.knowledge.network.sides.values():
        side.decoder_nkh.zero_()  # distributions in every corner, from the biases alone
        side.decoder_bias_nk.normal_(0, 8, generator=torch.Generator().manual_seed(0))
    pairs = frame.select("user", "item")
    means = model.predict_proba(pairs) @ values
    assert means.min() < 100
    assert means.max() > 101
    assert model.predict(pairs)["prediction"].is_between(100, 101).all()


@pytest.mark.parametrize("sides", ["users", "items"])
def test_one_sided_models_are_first_class_citizens(sides: str, tmp_path: Path) -> None:
    model = RatingModel(TINY.replaced(sides=sides)).fit(small_table())
    assert set(model.knowledge.network.sides) == {sides}
    assert model.recommend([1], 3).height == 3
    again = load(model.save(tmp_path / "model"))
    assert again.predict(some_pairs()).equals(model.predict(some_pairs()))


def test_training_teaches_something() -> None:
    split = np.random.default_rng(0).permutation(2200)
    frame = small_table().frame[split]
    train, test = frame.head(1900), frame.tail(300)
    trained = RatingModel(TINY.replaced(max_steps=200)).fit(train, spans=frame)
    spread = float(test["rating"].std(ddof=0))  # type: ignore[arg-type]
    assert trained.evaluate(test).rmse < 0.95 * spread


# Several members.


def test_members_join_by_the_geometric_mean_of_their_distributions(tmp_path: Path) -> None:
    table, pairs = small_table(), some_pairs()
    joined = RatingModel(TINY.replaced(members=2)).fit(table)
    apart = [
        RatingModel(TINY.replaced(seed=seed)).fit(table).predict_proba(pairs)
        for seed in (TINY.seed, TINY.seed + SEEDS_APART)
    ]
    assert np.abs(apart[0] - apart[1]).max() > 0.01
    product_pk = np.sqrt(apart[0].astype(np.float64) * apart[1])
    expected_pk = product_pk / product_pk.sum(1, keepdims=True)
    np.testing.assert_allclose(joined.predict_proba(pairs), expected_pk, rtol=1e-4)
    again = load(joined.save(tmp_path / "model"))
    assert again.settings.members == 2
    np.testing.assert_array_equal(again.predict_proba(pairs), joined.predict_proba(pairs))


# Recommending.


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


# Evaluating.


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
        ({"user": [999], "item": [1], "rating": [3.0]}, "unknown user, the first one 999"),
    ],
)
def test_what_cannot_be_scored_is_explained(
    model: RatingModel, frame: dict[str, list[float]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        model.evaluate(frame)
