"""What the benchmarks about cold-start users and items and about later events share.

Options, models that are trained once and kept, the bias baseline on the same rows, differences
with their standard errors, tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import cfuica
from cfuica.baselines.means import UserItemBias
from cfuica.cli.options import changed
from cfuica.data.datasets import resolve
from cfuica.data.splits import hashes, uniforms
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.metrics.rating_metrics import rmse
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import Recommender
from cfuica.ops.tables import SideName
from cfuica.runs.callbacks import progress_callback
from cfuica.settings import RatingSettings, rating_preset
from cfuica.sizing import DataSize

VALID_SHARE = 0.05
DAMPINGS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
# One word per purpose keeps the draws unrelated, to those of `data.splits` too.
_ORDER, _VALID = 0xE1, 0xE2


def parser_of(about: str) -> argparse.ArgumentParser:
    """The options that both benchmarks have."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("data", help="name, file or folder of the ratings")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=0, help="of the parts and of training")
    parser.add_argument("--keep", type=Path, help="folder for the models; found ones are loaded")
    parser.add_argument("--json", type=Path, help="all figures")
    return parser


def settings_of(given: argparse.Namespace) -> RatingSettings:
    """The preset with the command line's changes."""
    return changed(rating_preset(given.preset), given.changes, given.seed)


@dataclass(frozen=True, eq=False)
class Ratings:
    """The n ratings of a table, by index."""

    table: Interactions
    seed: int

    @classmethod
    def of(cls, data: str, seed: int) -> Ratings:
        return cls(resolve(data).rated(), seed)

    @cached_property
    def users(self) -> np.ndarray:
        """(n,) indices from 0, all in use; so are those of `items`."""
        return _indices(self.table, "user")

    @cached_property
    def items(self) -> np.ndarray:
        return _indices(self.table, "item")

    @cached_property
    def values(self) -> np.ndarray:
        """(n,) the ratings."""
        return self.table.frame["rating"].to_numpy()

    @cached_property
    def order(self) -> np.ndarray:
        """(n,) words that put rows into a random order, always the same for a seed."""
        return hashes(self.table.n, self.seed, _ORDER)

    @cached_property
    def validates(self) -> np.ndarray:
        """(n,) which rows validate where they are not for a test."""
        return uniforms(self.table.n, self.seed, _VALID) < VALID_SHARE

    def axis(self, axis: SideName) -> np.ndarray:
        """(n,) indices of users or of items."""
        return self.users if axis == "users" else self.items

    def trained(
        self, name: str, given: argparse.Namespace, rows: np.ndarray, *, cold_start: bool = True
    ) -> tuple[RatingModel, float | None]:
        """The model of some rows and the seconds that training took; None where it was kept.

        A run without `cold_start` results needs no cold-start network.
        """
        settings, vocabulary = settings_of(given), self.table.take(rows)
        if not cold_start:
            settings = settings.replaced(cold_start_units=0)
        valid = self.validates[rows]
        labels = vocabulary.label_scale(bins=settings.bins).size
        counts = (vocabulary.users.size, vocabulary.item_ids.size, int((~valid).sum()), labels)
        settings = settings.settled(DataSize(*counts))
        folder = None if given.keep is None else given.keep / name
        if folder is not None and (folder / "model.json").is_file():
            return _cached(folder, settings, vocabulary), None
        model = RatingModel(settings)
        with progress_callback(Console(stderr=True)) as callback:
            model.fit(
                self.table.take(rows[~valid]),
                valid=self.table.take(rows[valid]),
                vocabulary=vocabulary,
                callback=callback,
            )
        if folder is not None:
            model.save(folder)
        assert model.trained is not None
        return model, model.trained.seconds

    def predicted(self, model: Recommender, rows: np.ndarray) -> np.ndarray:
        """(P,) expected ratings of these rows."""
        return model.predict(self.table.take(rows))["prediction"].to_numpy()

    def bias(self, rows: np.ndarray) -> UserItemBias:
        """The baseline of user and item biases, fitted to these rows."""
        # A thousandth of a star is below what is printed.
        vocabulary = replace(self.table, item_space=None)  # by the indices of `users` and `items`
        return UserItemBias(tolerance=1e-3).fit(self.table.take(rows), vocabulary=vocabulary)


@dataclass
class LiveBias:
    """The baseline with biases of users (or items) that follow events; the other ones stay.

    Short histories need another damping than long ones, so it predicts with several; which one is
    best is decided in hindsight, in the baseline's favour.
    """

    ratings: Ratings
    axis: SideName
    bias: UserItemBias
    sums: np.ndarray
    """What the ratings are above the mean and the other axis' bias."""
    counts: np.ndarray

    @classmethod
    def begin(
        cls, ratings: Ratings, axis: SideName, bias: UserItemBias, rows: np.ndarray
    ) -> LiveBias:
        """With these rows; of a bias that was fitted to whatever else is known."""
        size = len(bias.bias_u_ if axis == "users" else bias.bias_i_)
        following = cls(ratings, axis, bias, np.zeros(size), np.zeros(size))
        following.observe(rows)
        return following

    def observe(self, rows: np.ndarray) -> None:
        """Take these rows in as well."""
        index = self.ratings.axis(self.axis)[rows]
        np.add.at(self.sums, index, self.ratings.values[rows] - self._others(rows))
        np.add.at(self.counts, index, 1)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """(dampings, P) predictions of these rows."""
        index = self.ratings.axis(self.axis)[rows]
        counts_dp = self.counts[index] + np.array(DAMPINGS)[:, None]
        predicted_dp = self._others(rows) + self.sums[index] / counts_dp
        return np.clip(predicted_dp, *self.bias.range_)

    def _others(self, rows: np.ndarray) -> np.ndarray:
        """(P,) the mean and the bias of the axis that stays."""
        if self.axis == "users":
            return self.bias.mean_ + self.bias.bias_i_[self.ratings.items[rows]]
        return self.bias.mean_ + self.bias.bias_u_[self.ratings.users[rows]]


def best_in_hindsight(predicted_dp: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(P,) those of the predictions with the lowest RMSE."""
    return min(predicted_dp, key=lambda one: rmse(one, truth))


def fresh(model: RatingModel) -> RatingModel:
    """The model as it was trained, to observe with; the other one does not notice."""
    return RatingModel.from_artifact(model.artifact)


@dataclass(frozen=True)
class Difference:
    """RMSE of one prediction less that of another of the same ratings, and its standard error."""

    rmse: float
    error: float

    @classmethod
    def of(cls, one: np.ndarray, other: np.ndarray, truth: np.ndarray) -> Difference:
        """Paired over ratings; the error by the delta method (d sqrt(x) = dx / 2 sqrt(x))."""
        first, second = rmse(one, truth), rmse(other, truth)
        halves = ((one - truth) ** 2 / (first or 1.0) - (other - truth) ** 2 / (second or 1.0)) / 2
        return cls(first - second, float(halves.std() / np.sqrt(len(truth))))

    def __str__(self) -> str:
        return f"{self.rmse:+.4f} ± {self.error:.4f}"


def shown(value: Any) -> str:
    """A cell of a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_table(records: Sequence[dict[str, Any]]) -> None:
    """A line per record under the names of its figures."""
    rows = [list(records[0]), *([shown(value) for value in one.values()] for one in records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip(), flush=True)


def write_json(given: argparse.Namespace, **results: Any) -> None:
    """All figures and the settings they come from, where a file was asked for."""
    if given.json is None:
        return
    about = {
        "cfuica": cfuica.__version__,
        "given": {name: value for name, value in vars(given).items() if name != "json"},
        "settings": settings_of(given).model_dump(),
    }
    text = json.dumps({**about, **results}, indent=2, default=_plain)
    given.json.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    return vars(value) if isinstance(value, Difference) else str(value)


def _indices(table: Interactions, role: str) -> np.ndarray:
    ids = table.frame[role]
    return Vocabulary.from_ids(ids).encode(ids)


def _cached(folder: Path, settings: RatingSettings, rows: Interactions) -> RatingModel:
    model = cfuica.load(folder)
    maps = {"users": rows.users, "items": rows.item_ids, "scale": model.artifact.scale}
    if (
        model.settings != settings
        or rows.matrix(**maps).sha256() != model.artifact.interactions.sha256()
    ):
        raise SystemExit(f"{folder} has other settings or other data; give another --keep.")
    return model
