"""Baselines of means and biases: global mean, item mean, user and item bias."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cfuica.baselines.contract import Floats, Index, RatingBaseline, at_least, not_negative


class GlobalMean(RatingBaseline):
    """Predicts the mean of all ratings for every pair."""

    name: ClassVar[str] = "global mean"

    def _fit(
        self, users_p: Index, items_p: Index, ratings_p: Floats, *, n_users: int, n_items: int
    ) -> None:
        self.mean_ = float(ratings_p.mean())

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        return np.full(len(users_p), self.mean_)

    def _shapes(self, *, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        return {"mean": ()}


class ItemMean(RatingBaseline):
    """Predicts the item's mean rating, drawn towards the global mean by ``damping``.

    ``damping`` counts imaginary ratings at the global mean that every item starts with; 0 is the
    plain mean. An item without ratings gets the global mean.
    """

    name: ClassVar[str] = "item mean"

    def __init__(self, damping: float = 0.0) -> None:
        self.damping = not_negative("damping", damping)

    def _fit(
        self, users_p: Index, items_p: Index, ratings_p: Floats, *, n_users: int, n_items: int
    ) -> None:
        mean = float(ratings_p.mean())
        self.means_i_ = mean + _damped_means(items_p, ratings_p - mean, n_items, self.damping)

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        return self.means_i_[items_p]

    def _shapes(self, *, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        return {"means_i": (n_items,)}


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

    def __init__(
        self,
        user_damping: float = 5.0,
        item_damping: float = 5.0,
        *,
        max_sweeps: int = 100,
        tolerance: float = 1e-6,
    ) -> None:
        self.user_damping = not_negative("user_damping", user_damping)
        self.item_damping = not_negative("item_damping", item_damping)
        self.max_sweeps = at_least(1, "max_sweeps", max_sweeps)
        self.tolerance = tolerance

    def _fit(
        self, users_p: Index, items_p: Index, ratings_p: Floats, *, n_users: int, n_items: int
    ) -> None:
        self.mean_ = float(ratings_p.mean())
        self.range_ = (float(ratings_p.min()), float(ratings_p.max()))
        self.bias_u_, self.bias_i_ = np.zeros(n_users), np.zeros(n_items)
        centred_p = ratings_p - self.mean_
        for sweep in range(1, self.max_sweeps + 1):
            bias_i = _damped_means(
                items_p, centred_p - self.bias_u_[users_p], n_items, self.item_damping
            )
            bias_u = _damped_means(users_p, centred_p - bias_i[items_p], n_users, self.user_damping)
            moved = max(np.abs(bias_i - self.bias_i_).max(), np.abs(bias_u - self.bias_u_).max())
            self.bias_u_, self.bias_i_, self.sweeps_ = bias_u, bias_i, sweep
            if moved <= self.tolerance:
                break

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        return np.clip(self.mean_ + self.bias_u_[users_p] + self.bias_i_[items_p], *self.range_)

    def _shapes(self, *, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        return {"mean": (), "range": (2,), "bias_u": (n_users,), "bias_i": (n_items,)}


def _damped_means(index_p: Index, values_p: Floats, size: int, damping: float) -> Floats:
    """Mean value of each row, drawn towards 0 by ``damping`` imaginary zeros; 0 for empty rows."""
    counts = np.bincount(index_p, minlength=size)
    sums = np.bincount(index_p, weights=values_p, minlength=size)
    # An empty row without damping would be 0 / 0.
    return sums / np.where(counts > 0, counts + damping, 1.0)
