"""What can be fitted, and what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError, DataError
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import load
from cfuica.settings import rating_preset
from cfuica.training.rating_task import SEEDS_APART
from cfuica.training.trainer import Callback
from tests.models.rating.asked import some_pairs
from tests.runs.small import TINY, small_table


def test_fit_returns_the_model_itself() -> None:
    model = RatingModel(TINY.replaced(max_steps=1))
    assert model.fit(small_table()) is model


def test_the_default_settings_are_the_default_preset() -> None:
    assert RatingModel().settings == rating_preset("default")


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
        "table": Interactions.from_frame,
    }
    ratings, pairs = (
        convert[library](frame)
        for frame in (small_table().frame.select("user", "item", "rating"), some_pairs())
    )
    predicted = RatingModel(TINY).fit(ratings).predict(pairs)
    expected = {"pandas": pd.DataFrame, "pyarrow": pa.Table}.get(library, pl.DataFrame)
    assert isinstance(predicted, expected)
    assert pl.DataFrame(predicted).equals(model.predict(some_pairs()))


def test_validation_may_be_a_frame_and_is_read_when_predicting() -> None:
    frame = small_table().frame
    train, valid = frame.head(2000), frame.tail(200)
    model = RatingModel(TINY).fit(train, valid=valid.to_pandas(), vocabulary=frame)
    assert model.trained is not None
    assert model.trained.history[-1].valid is not None
    assert model.artifact.interactions.n_interactions == frame.height


def test_validation_that_overlaps_training_is_refused_before_the_work() -> None:
    frame = small_table().frame
    endless = TINY.replaced(max_steps=10**9)
    with pytest.raises(DataError, match=r"repeat a \(user, item\) pair"):
        RatingModel(endless).fit(frame, valid=frame.head(5))


def test_training_beyond_the_span_is_refused() -> None:
    frame = small_table().frame
    with pytest.raises(DataError, match="unknown user"):
        RatingModel(TINY).fit(frame, vocabulary=frame.filter(pl.col("user") > 1))


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


def test_interactions_without_a_rating_lend_their_ids_and_are_not_learned_from() -> None:
    frame = small_table().frame.select("user", "item", "rating")
    extra = pl.DataFrame({"user": [777, 1], "item": [1, 888], "rating": [0.0, 0.0]})
    table = Interactions.from_frame(pl.concat([frame, extra]), no_rating=(0.0,))
    warm = RatingModel(TINY).fit(table).artifact
    assert (warm.users.size, warm.items.size) == (101, 61)
    assert warm.scale.values == (1, 2, 3, 4, 5)
    assert warm.interactions.n_interactions == frame.height
    model = RatingModel.from_artifact(warm)
    assert model.predict(extra).height == 2
    assert model.evaluate(table).n == frame.height
    dropped = Interactions.from_frame(
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


@pytest.mark.parametrize("sides", ["users", "items"])
def test_one_sided_models_are_first_class_citizens(sides: str, tmp_path: Path) -> None:
    model = RatingModel(TINY.replaced(sides=sides)).fit(small_table())
    assert set(model.artifact.networks["warm"].sides) == {sides}
    assert model.recommend([1], 3).height == 3
    again = load(model.save(tmp_path / "model"))
    assert again.predict(some_pairs()).equals(model.predict(some_pairs()))


def test_training_teaches_something() -> None:
    split = np.random.default_rng(0).permutation(2200)
    frame = small_table().frame[split]
    train, test = frame.head(1900), frame.tail(300)
    trained = RatingModel(TINY.replaced(max_steps=200)).fit(train, vocabulary=frame)
    spread = float(test["rating"].std(ddof=0))  # type: ignore[arg-type]
    assert trained.evaluate(test).rmse < 0.95 * spread


def test_members_join_by_the_geometric_mean_of_their_distributions(tmp_path: Path) -> None:
    table, pairs = small_table(), some_pairs()
    joined = RatingModel(TINY.replaced(ensemble_size=2)).fit(table)
    apart = [
        RatingModel(TINY.replaced(seed=seed)).fit(table).predict_proba(pairs)
        for seed in (TINY.seed, TINY.seed + SEEDS_APART)
    ]
    assert np.abs(apart[0] - apart[1]).max() > 0.01
    product_pk = np.sqrt(apart[0].astype(np.float64) * apart[1])
    expected_pk = product_pk / product_pk.sum(1, keepdims=True)
    np.testing.assert_allclose(joined.predict_proba(pairs), expected_pk, rtol=1e-4)
    again = load(joined.save(tmp_path / "model"))
    assert again.settings.ensemble_size == 2
    np.testing.assert_array_equal(again.predict_proba(pairs), joined.predict_proba(pairs))


def test_each_network_is_corrected_by_pairs_that_it_answers_about() -> None:
    world = small_table()
    whole = world.frame[np.random.default_rng(0).permutation(world.n)]
    cold = whole.filter(pl.col("user") > 90)
    warm = whole.filter(pl.col("user") <= 90)
    train, later = warm.head(1300), warm.tail(warm.height - 1300)
    later = later.join(train, on="item", how="semi").join(train, on="user", how="semi")
    settings = TINY.replaced(cold_start_units=6, max_steps=60, schedule="planned")

    def fitted(valid: pl.DataFrame) -> RatingModel:
        return RatingModel(settings).fit(train, valid=valid, vocabulary=world)

    without, having = fitted(later), fitted(pl.concat([later, cold]))
    assert not without.artifact.calibrations["warm"].is_identity
    assert having.artifact.calibrations["warm"] == without.artifact.calibrations["warm"]


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "options", "is_shown"),
    [
        (_Terminal, {}, True),
        (_Terminal, {"progress": False}, False),
        (_Terminal, {"callback": Callback()}, False),
        (_Terminal, {"callback": Callback(), "progress": True}, True),
        (StringIO, {}, False),
        (StringIO, {"progress": True}, True),
    ],
)
def test_fit_shows_a_bar_on_a_terminal_or_where_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch,
    stream: type[StringIO],
    options: dict[str, Any],
    is_shown: bool,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    RatingModel(TINY.replaced(max_steps=1)).fit(small_table(), **options)
    assert ("1 steps" in sys.stderr.getvalue()) == is_shown
