"""Baselines of means and biases: global mean, item mean, user and item bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from cfuica.baselines.contract import (
    BaselineSettings,
    Floats,
    Index,
    RatingBaseline,
    Shapes,
    TrainingData,
)


class GlobalMeanSettings(BaselineSettings):
    """There is nothing to set."""

    task: ClassVar[str] = "rating"
    model: ClassVar[str] = "global-mean"


class GlobalMean(RatingBaseline):
    """Predicts the mean of all ratings for every pair."""

    name: ClassVar[str] = "global mean"
    settings_class = GlobalMeanSettings

    def _fit(self, data: TrainingData) -> None:
        self.mean_ = float(data.ratings_p.mean())

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        return np.full(len(users_p), self.mean_)

    def _shapes(self, data: TrainingData) -> Shapes:
        return {"mean": ()}


class ItemMeanSettings(BaselineSettings):
    """Settings of `ItemMean`."""

    task: ClassVar[str] = "rating"
    model: ClassVar[str] = "item-mean"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"damping": ("log", 0.1, 100.0)}

    damping: float = Field(
        0.0, ge=0, description="Imaginary ratings at the global mean that every item starts with."
    )


class ItemMean(RatingBaseline):
    """Predicts the item's mean rating, drawn towards the global mean by ``damping``.

    ``damping`` counts imaginary ratings at the global mean that every item starts with; 0 is the
    plain mean. An item without ratings gets the global mean.
    """

    name: ClassVar[str] = "item mean"
    settings_class = ItemMeanSettings
    settings: ItemMeanSettings

    def _fit(self, data: TrainingData) -> None:
        mean = float(data.ratings_p.mean())
        self.means_i_ = mean + _damped_means(
            data.items_p, data.ratings_p - mean, data.n_items, self.settings.damping
        )

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        return self.means_i_[items_p]

    def _shapes(self, data: TrainingData) -> Shapes:
        return {"means_i": (data.n_items,)}


class BiasSettings(BaselineSettings):
    """Settings of `UserItemBias`."""

    task: ClassVar[str] = "rating"
    model: ClassVar[str] = "bias"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "user_damping": ("log", 0.1, 100.0),
        "item_damping": ("log", 0.1, 100.0),
    }

    user_damping: float = Field(5.0, ge=0, description="L2 penalty on the biases of the users.")
    item_damping: float = Field(5.0, ge=0, description="L2 penalty on the biases of the items.")
    max_sweeps: int = Field(100, ge=1, description="Passes over users and items at most.")
    tolerance: float = Field(
        1e-6, ge=0, description="The largest move of a bias in a sweep that ends the search."
    )


class UserItemBias(RatingBaseline):
    """Predicts mean + bias of the user + bias of the item, inside the range of the ratings.

    The biases minimise the ridge loss

        sum over ratings (r - mean - b_u - b_i)^2 + user_damping * |b_U|^2 + item_damping * |b_I|^2,

    found by alternating the closed form of one side given the other, which is a damped mean of
    what the other side leaves over, until no bias moves by more than ``tolerance`` (in units of
    the rating scale) or after ``max_sweeps``. ``sweeps_`` is how many were made. A user or item
    without ratings has a bias of 0.
    """

    name: ClassVar[str] = "user + item bias"
    settings_class = BiasSettings
    settings: BiasSettings

    def _fit(self, data: TrainingData) -> None:
        settings = self.settings
        users_p, items_p, ratings_p = data.users_p, data.items_p, data.ratings_p
        self.mean_ = float(ratings_p.mean())
        self.range_ = (float(ratings_p.min()), float(ratings_p.max()))
        self.bias_u_, self.bias_i_ = np.zeros(data.n_users), np.zeros(data.n_items)
        centred_p = ratings_p - self.mean_
        for sweep in range(1, settings.max_sweeps + 1):
            left_p = centred_p - self.bias_u_[users_p]
            bias_i = _damped_means(items_p, left_p, data.n_items, settings.item_damping)
            left_p = centred_p - bias_i[items_p]
            bias_u = _damped_means(users_p, left_p, data.n_users, settings.user_damping)
            moved = max(np.abs(bias_i - self.bias_i_).max(), np.abs(bias_u - self.bias_u_).max())
            self.bias_u_, self.bias_i_, self.sweeps_ = bias_u, bias_i, sweep
            if moved <= settings.tolerance:
                break

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        return np.clip(self.mean_ + self.bias_u_[users_p] + self.bias_i_[items_p], *self.range_)

    def _shapes(self, data: TrainingData) -> Shapes:
        return {"mean": (), "range": (2,), "bias_u": (data.n_users,), "bias_i": (data.n_items,)}


def _damped_means(index_p: Index, values_p: Floats, size: int, damping: float) -> Floats:
    """Mean value of each row, drawn towards 0 by ``damping`` imaginary zeros; 0 for empty rows."""
    counts = np.bincount(index_p, minlength=size)
    sums = np.bincount(index_p, weights=values_p, minlength=size)
    # An empty row without damping would be 0 / 0.
    return sums / np.where(counts > 0, counts + damping, 1.0)
