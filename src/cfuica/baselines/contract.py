"""The base of every baseline that predicts ratings, and checks of their settings.

A baseline is a `Recommender` that learns from arrays of indices. Shape suffix p is the number of
rated pairs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from cfuica.artifact import BaseArtifact, read_base, read_interactions, write
from cfuica.data.frames import as_table
from cfuica.data.item_metadata import item_metadata_of
from cfuica.errors import CfuicaError, ModelFileError, SettingsError
from cfuica.forks import need_polars
from cfuica.live.live_model import Catalogue
from cfuica.models.recommender import Recommender

if TYPE_CHECKING:
    from cfuica.data.table import Interactions
    from cfuica.inference.recommend import By, ItemScorer, Target
    from cfuica.ops.tables import SideName

Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
# Why a user or item cannot be compared, as the end of a sentence.
UNRATED = "has no ratings, or the model no factors; fit it to some"


class RatedCatalogue(Catalogue):
    """The ratings that a baseline has learned from, by index."""

    def __init__(self, artifact: BaseArtifact, ratings: pl.DataFrame) -> None:
        super().__init__(artifact)
        self.artifact = artifact
        # One order for all orders, so that sums and ties come out the same to the last bit.
        ratings = ratings.sort("user", "item")
        self.users_p: Index = ratings["user"].to_numpy().astype(np.intp)
        self.items_p: Index = ratings["item"].to_numpy().astype(np.intp)
        self.ratings_p: Floats = ratings["rating"].to_numpy().astype(np.float64)
        if not np.isfinite(self.ratings_p).all():
            raise ValueError("a rating is not a finite number")

    @property
    def shape(self) -> dict[str, int]:
        """How many users and items there are, with the unknown ones, which come last."""
        return {f"n_{axis}": ids.n_indices for axis, ids in self.ids.items()}

    def support(self, axis: SideName) -> np.ndarray:
        """(n,) how many ratings each user or item has, by index."""
        index_p = self.users_p if axis == "users" else self.items_p
        return np.bincount(index_p, minlength=self.ids[axis].n_indices)

    def pairs(self) -> tuple[Index, Index]:
        """Users and items (p,) of all ratings, by index."""
        return self.users_p, self.items_p

    def history(self, user: int) -> tuple[Index, Floats]:
        """The items that a user has rated, and the ratings."""
        own = slice(*np.searchsorted(self.users_p, (user, user + 1)))
        return self.items_p[own], self.ratings_p[own]


class RatingBaseline(Recommender):
    """Learns from ratings on any scale and predicts the rating of any pair.

    A subclass gives ``name`` and the hooks ``_fit``, ``_predict`` and ``_shapes``. A cold-start
    user or item is no error: all of them have the last index, which has no ratings to learn from,
    and the prediction falls back to what is known without it. Items are ranked by predicted rating.
    """

    name: ClassVar[str]  # What tables call it.
    predicts_ratings: ClassVar[bool] = True
    reads_ratings: ClassVar[bool] = True
    least_support: ClassVar[int] = 1
    # Of `block`: two indices, a prediction, and as much in between.
    numbers_per_item: ClassVar[int] = 8

    _catalogue: RatedCatalogue | None = None

    def fit(
        self,
        interactions: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        vocabulary: Interactions | Any = None,
    ) -> Self:
        """Learn from a table (or a dataframe) of ratings; returns self.

        A baseline is not validated: it learns from `valid` as well. `vocabulary` is a table with
        all users and items that the model is to know (default: those of `interactions`).
        """
        need_polars("Training")
        table = as_table(interactions)
        whole = table if vocabulary is None else as_table(vocabulary)
        users, items = whole.users, whole.item_ids
        tables = [table] if valid is None else [table, as_table(valid)]
        ratings = pl.concat(
            pl.DataFrame(
                {
                    "user": each.encoded("user", users),
                    "item": each.encoded("item", items),
                    "rating": each.frame["rating"],
                }
            )
            for each in (one.rated() for one in tables)
        )
        artifact = BaseArtifact(
            users=users,
            items=items,
            rows={"users": np.arange(users.size), "items": np.arange(items.size)},
            item_metadata=item_metadata_of(whole.items, items),
        )
        ratings = ratings.unique(["user", "item"], keep="last", maintain_order=True)
        found = RatedCatalogue(artifact, ratings)
        self._fit(found.users_p, found.items_p, found.ratings_p, **found.shape)
        self._catalogue = found
        return self

    @property
    def catalogue(self) -> RatedCatalogue:
        """The ratings that the model has learned from; an error before `fit` or `load`."""
        if self._catalogue is None:
            raise CfuicaError(
                f"This {type(self).__name__} is not fitted yet: call fit(table) or "
                f"cfuica.load(folder)."
            )
        return self._catalogue

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        import torch

        fitted = self.catalogue
        card = {
            **fitted.artifact.card,
            "model": type(self).__name__,
            "settings": {name: getattr(self, name) for name in signature(type(self)).parameters},
        }
        ratings = {"user": fitted.users_p, "item": fitted.items_p, "rating": fitted.ratings_p}
        learned = {
            name: torch.from_numpy(np.asarray(getattr(self, f"{name}_")))
            for name in self._shapes(**fitted.shape)
        }
        artifact = replace(fitted.artifact, retired=fitted.retired_ids, sequence=fitted.sequence)
        return write(folder, card, artifact, pl.DataFrame(ratings), {"model": learned})

    @classmethod
    def _restored(cls, folder: Path, card: dict[str, Any]) -> Self:
        from safetensors.numpy import load_file

        model, common = cls(**card["settings"]), read_base(folder, card)
        fitted = RatedCatalogue(common, read_interactions(folder, common)[0])
        path = folder / "model.safetensors"
        learned, expected = load_file(path), model._shapes(**fitted.shape)
        found = {name: array.shape for name, array in learned.items()}
        if found != expected:
            raise ModelFileError(
                f"{path}: found arrays of shapes {found}, expected {expected}; copy the folder "
                f"again."
            )
        for name, array in learned.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ModelFileError(f"{path}: {name} is not all finite numbers; fit it again.")
            setattr(model, f"{name}_", array)
        model._catalogue = fitted
        return model

    def _scorer(self, by: By | None) -> ItemScorer:
        return self

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) predicted ratings, of which those of these `items` are valid; and the seen items
        of each."""
        assert isinstance(target, np.ndarray)  # a baseline serves no ad-hoc history
        fitted = self.catalogue
        score_bm = np.zeros((len(target), fitted.shape["n_items"]), np.float32)
        predicted_p = self._predict(np.repeat(target, len(items)), np.tile(items, len(target)))
        score_bm[:, items] = predicted_p.reshape(len(target), len(items))
        return score_bm, [fitted.history(user)[0] for user in target.tolist()]

    @abstractmethod
    def _fit(
        self, users_p: Index, items_p: Index, ratings_p: Floats, *, n_users: int, n_items: int
    ) -> None:
        """Learn from p ratings, sorted by user and item."""

    @abstractmethod
    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        """Predicted ratings (p,) of p pairs, on the scale of the ratings learned from."""

    @abstractmethod
    def _shapes(self, *, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        """The arrays that were learned, by their names in the model folder.

        The attributes have the same names with an underscore at the end."""


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
