"""The contract of every baseline that predicts ratings, and checks of their settings.

Users and items are integer indices; ``data/`` maps external ids to them. Shape suffix p is the
number of rated pairs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from cfuica.errors import CfuicaError, DataError, SettingsError


class RatingBaseline(ABC):
    """Learns from (user, item, rating) triples and predicts the rating of any pair.

    A subclass gives ``name`` and the two steps ``_fit`` and ``_predict``, which receive arrays
    that have been checked and, to learn from, sorted by user and item. A cold-start user or item is
    no error: the prediction falls back to what is known without it.
    """

    name: ClassVar[str]  # What tables call it.

    _shape: tuple[int, int] | None = None

    def fit(
        self,
        users: npt.ArrayLike,
        items: npt.ArrayLike,
        ratings: npt.ArrayLike,
        *,
        n_users: int,
        n_items: int,
    ) -> Self:
        """Learn from p ratings and return ``self``.

        Args:
            users: (p,), integers from 0 to ``n_users - 1``.
            items: (p,), integers from 0 to ``n_items - 1``.
            ratings: (p,), finite numbers on any scale.
        """
        users_p, items_p = _as_pairs(users, items, (n_users, n_items))
        ratings_p = np.asarray(ratings, dtype=np.float64)
        if ratings_p.shape != users_p.shape:
            raise DataError(
                f"Ratings have shape {ratings_p.shape} and users {users_p.shape}; "
                "there must be one rating for each pair."
            )
        if len(ratings_p) == 0:
            raise DataError(f"{self.name} cannot learn from no ratings; at least one is needed.")
        if not np.isfinite(ratings_p).all():
            raise DataError("Some ratings are not finite numbers; drop these rows before fitting.")
        # One order for all orders, so that sums and ties come out the same to the last bit.
        order_p = np.lexsort((ratings_p, items_p, users_p))
        self._fit(
            users_p[order_p], items_p[order_p], ratings_p[order_p], n_users=n_users, n_items=n_items
        )
        self._shape = (n_users, n_items)
        return self

    def predict(self, users: npt.ArrayLike, items: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Predicted ratings (p,) of p pairs, on the scale of the ratings learned from."""
        if self._shape is None:
            raise CfuicaError(f"{self.name} has not learned anything yet; call fit first.")
        return self._predict(*_as_pairs(users, items, self._shape))

    @abstractmethod
    def _fit(
        self,
        users_p: npt.NDArray[np.intp],
        items_p: npt.NDArray[np.intp],
        ratings_p: npt.NDArray[np.float64],
        *,
        n_users: int,
        n_items: int,
    ) -> None: ...

    @abstractmethod
    def _predict(
        self, users_p: npt.NDArray[np.intp], items_p: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.float64]: ...


def _as_pairs(
    users: npt.ArrayLike, items: npt.ArrayLike, shape: tuple[int, int]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    users_p = _as_index("Users", users, shape[0])
    items_p = _as_index("Items", items, shape[1])
    if users_p.shape != items_p.shape:
        raise DataError(
            f"Users have shape {users_p.shape} and items {items_p.shape}; "
            "a pair is one user and one item, so they must be equally long."
        )
    return users_p, items_p


def _as_index(what: str, values: npt.ArrayLike, size: int) -> npt.NDArray[np.intp]:
    index_p = np.asarray(values)
    if index_p.ndim != 1:
        raise DataError(f"{what} have shape {index_p.shape}; they must be one-dimensional.")
    if len(index_p) == 0:
        return np.empty(0, dtype=np.intp)
    if not np.issubdtype(index_p.dtype, np.integer):
        raise DataError(f"{what} have the type {index_p.dtype}; they must be integers.")
    lowest, highest = int(index_p.min()), int(index_p.max())
    # Checked because numpy would take -1 for the last row without a word.
    if lowest < 0 or highest >= size:
        raise DataError(
            f"{what} run from {lowest} to {highest}; there are {size}, "
            f"so they must lie between 0 and {size - 1}."
        )
    return index_p.astype(np.intp, copy=False)


def not_negative(name: str, value: float) -> float:
    """The value as a float, if it is finite and at least 0."""
    if not (math.isfinite(value) and value >= 0.0):
        raise SettingsError(f"{name} is {value}; it must be a finite number, 0 or larger.")
    return float(value)


def positive(name: str, value: float) -> float:
    """The value as a float, if it is finite and above 0."""
    if not (math.isfinite(value) and value > 0.0):
        raise SettingsError(f"{name} is {value}; it must be a finite number above 0.")
    return float(value)


def at_least(least: int, name: str, value: int) -> int:
    """The value, if it is a whole number of at least `least`."""
    if value % 1 != 0 or value < least:
        raise SettingsError(f"{name} is {value}; it must be a whole number, {least} or larger.")
    return int(value)
