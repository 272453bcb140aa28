"""Ratings on any scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from cfuica.data.matrix import InteractionMatrix
from cfuica.data.table import Interactions
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import load
from tests.runs.small import TINY, small_table


@pytest.mark.parametrize("values", [np.arange(0.5, 5.5, 0.5), np.array([-1.0, 0.0, 100.0])])
def test_any_scale_is_learned_and_kept_to(values: np.ndarray) -> None:
    frame = small_table().frame.with_columns(
        rating=pl.Series(np.random.default_rng(0).choice(values, 2200))
    )
    model = RatingModel(TINY).fit(frame)
    assert model.artifact.scale.values == tuple(values)
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
    model = RatingModel(TINY.replaced(max_steps=200)).fit(train, vocabulary=frame)
    assert model.artifact.scale.values == thumbs
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
    model = RatingModel(settings).fit(train, valid=valid, vocabulary=frame)
    scale = model.artifact.scale
    assert scale == Interactions.from_frame(train).label_scale(bins=12), "of the training set"
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
    assert model.trained is not None
    assert model.trained.history[-1].valid is not None
    warm = replace(model.artifact, interactions=_matrix(model, train))
    alone = RatingModel.from_artifact(warm).evaluate(valid)
    assert model.trained.history[-1].valid.rmse == pytest.approx(alone.rmse, rel=1e-5)


def _matrix(model: RatingModel, frame: pl.DataFrame) -> InteractionMatrix:
    warm = model.artifact
    table = Interactions.from_frame(frame)
    return table.matrix(users=warm.users, items=warm.items, scale=warm.scale)


def test_a_slider_is_tested_beyond_what_training_saw() -> None:
    frame = slider(500)
    model = RatingModel(TINY.replaced(max_steps=1)).fit(frame)
    test = frame.head(10).with_columns(rating=pl.lit(1000.0))
    assert model.evaluate(test).mae > 980


def test_a_binned_model_comes_back_from_its_folder(tmp_path: Path) -> None:
    frame = slider()
    model = RatingModel(TINY).fit(frame)
    again = load(model.save(tmp_path / "model"))
    assert again.artifact.scale == model.artifact.scale
    assert again.artifact.scale.is_binned
    assert again.predict(frame).equals(model.predict(frame))
    assert again.evaluate(frame) == model.evaluate(frame)


def test_rounding_carries_no_prediction_beyond_the_scale() -> None:
    values = np.array([100, 100.5, 101], np.float32)
    rng = np.random.default_rng(0)
    frame = small_table().frame.with_columns(rating=pl.Series(rng.choice(values, 2200)))
    model = RatingModel(TINY.replaced(max_steps=1)).fit(frame)
    for side in model.artifact.networks["warm"].sides.values():
        side.V.values.zero_()  # distributions in every corner, from the biases alone
        side.b.values.normal_(0, 8, generator=torch.Generator().manual_seed(0))
    pairs = frame.select("user", "item")
    means = model.predict_proba(pairs) @ values
    assert means.min() < 100
    assert means.max() > 101
    assert model.predict(pairs)["prediction"].is_between(100, 101).all()
