"""A model that answers at once and remembers what it was asked, for tests of commands alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import cfuica.models.recommender
from cfuica.artifact import BaseArtifact
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError
from cfuica.inference.explain import Explanation
from cfuica.live.live_model import Catalogue
from cfuica.ops.tables import SideName

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

# Ids that a terminal would make something else of.
ODD = (":heart:", "[bold]x[/bold]", "\x1b[31mred", "tab\there", "ünïcode")


@dataclass(frozen=True)
class Explained:
    """What `explain` gives, as far as a command looks at it."""

    user: str | None = "u"
    item: str = ":heart:"
    title: str | None = "The [i]Title[/i]"
    expected: float = 4.25
    history: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(
            {
                "item": ["a", "b", "c"],
                "title": ["A", None, "C"],
                "rating": [5.0, 3.5, 1.0],
                "change": [0.5, -0.25, 0.125],
            }
        )
    )
    contributions: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(
            {
                "contribution": ["IIC", "UUC"],
                "interactions": [3, 40],
                "expected_without": [4.0, 3.5],
                "change": [0.25, 0.75],
            }
        )
    )
    raters: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(
            {"rating": ["1-2", "5"], "raters": [7, 33], "change": [-0.1, 0.2]}
        )
    )
    distribution: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame({"rating": [1.0, 5.0], "probability": [0.25, 0.75]})
    )
    too_few = Explanation.too_few

    def as_json(self) -> dict[str, Any]:
        return {"expected": self.expected, "history": self.history.to_dicts()}


class Known(Catalogue):
    def support(self, axis: SideName) -> np.ndarray:
        return np.ones(self.ids[axis].n_indices, np.int64)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        return np.empty(0, np.int32), np.empty(0, np.int32)


@dataclass
class StandIn:
    """Knows the users and items of `ids`."""

    predicts_ratings = True
    ranks_by = ("expected", "lower", "blend")
    reads_ratings = True
    types = ()
    ids: tuple[str, ...] = ("a", "b", *ODD)
    top: pl.DataFrame | None = None
    explanation: Explained = Explained()
    saved: Path | None = None
    calls: list[Call] = field(default_factory=list)

    def asked(self) -> Call:
        """The one question."""
        (call,) = self.calls
        return call

    @property
    def users(self) -> Vocabulary:
        return Vocabulary(pl.Series("id", self.ids))

    items = users

    @property
    def catalogue(self) -> Any:
        table = pl.DataFrame({"item": sorted(self.ids)}).with_columns(
            genres=pl.lit(["x", "y"]), year=pl.lit(1999)
        )
        ids = Vocabulary.from_ids(self.users.ids)
        return Known(BaseArtifact(users=ids, items=ids, rows={}, item_metadata=table))

    @property
    def scale(self) -> Any:
        return SimpleNamespace(values=(1.0, 2.5, 1 / 3))

    def recommend(self, users: Any = None, n: int = 10, **options: Any) -> pl.DataFrame:
        self._note("recommend", users, n, options)
        if self.top is not None:
            return self.top
        rows = [
            {"user": user, "rank": rank + 1, "item": self.ids[rank], "score": 4.0 - rank}
            for user in (["nobody"] if users is None else users)
            for rank in range(min(n, len(self.ids)))
        ]
        top = pl.DataFrame(rows).with_columns(title=pl.lit("T"), genres=pl.lit(["x", "y"]))
        return top.drop("user") if users is None else top

    def similar_items(self, items: list[str], n: int = 10, **options: Any) -> pl.DataFrame:
        return self._similar("item", items, n, options)

    def similar_users(self, users: list[str], n: int = 10, **options: Any) -> pl.DataFrame:
        return self._similar("user", users, n, options)

    def _similar(self, axis: str, ids: list[str], n: int, options: Any) -> pl.DataFrame:
        self._note(f"similar_{axis}s", ids, n, options)
        if self.top is not None:
            return self.top
        rows = [
            {axis: one, "rank": rank + 1, "similar": self.ids[rank], "score": 1.0 - rank / 10}
            for one in ids
            for rank in range(min(n, len(self.ids)))
        ]
        return pl.DataFrame(rows)

    def predict(self, pairs: Any, **options: Any) -> pl.DataFrame:
        self._note("predict", pairs.frame["user"].to_list(), pairs.frame["item"].to_list(), options)
        return pairs.frame.with_columns(prediction=3.5)

    def predict_proba(self, pairs: Any, **options: Any) -> np.ndarray:
        self._note("predict_proba", options)
        return np.tile(np.array([0.5, 0.25, 0.25], np.float32), (pairs.n, 1))

    def explain(self, user: str | None, item: str, **options: Any) -> Explained:
        self._note("explain", user, item, options)
        return self.explanation

    def observe(self, events: Any) -> Any:
        self._note("observe", events.frame.rows(), {})
        return SimpleNamespace(added=2, changed=1, removed=1, new_users=1, new_items=0)

    def remove(self, pairs: Any) -> Any:
        self._note("remove", pairs.frame.rows(), {})
        return SimpleNamespace(added=0, changed=0, removed=2, new_users=0, new_items=0)

    def forget(self, user: str) -> int:
        self._note("forget", user, {})
        if user not in self.ids:
            raise DataError(f"The user {user!r} is unknown to this model.")
        return 7

    def save(self, folder: Path) -> Path:
        self.saved = folder
        return folder

    def _note(self, name: str, *arguments: Any) -> None:
        *positional, options = arguments
        self.calls.append((name, tuple(positional), options))
        if options.get("unknown") == "error":
            raise DataError("The user 'zzz' is unknown to this model.")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """What `load` gives, whatever the folder."""
    stand_in = StandIn()
    monkeypatch.setattr(cfuica.models.recommender, "load", lambda _: stand_in)
    return stand_in
