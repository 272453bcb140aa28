"""The contract of the models, `Recommender`, and `load`, which reads a saved model.

`RatingModel` and `RankingModel` take and return external ids; what both do is here. `tasks` lists
the two tasks with their settings, presets and models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import polars as pl

from cfuica.artifact.model_folder import load_artifact, save
from cfuica.data.frames import as_history, as_id_column, like
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.settings import (
    CommonSettings,
    RankingSettings,
    RatingSettings,
    ranking_preset,
    rating_preset,
)

if TYPE_CHECKING:
    from cfuica.artifact.artifact import Artifact
    from cfuica.inference.recommend import ItemScorer
    from cfuica.inference.scores import By
    from cfuica.live.events import History
    from cfuica.live.live_vocabulary import LiveVocabularies
    from cfuica.model.pairs import SideName
S = TypeVar("S", bound="CommonSettings")
K = TypeVar("K", bound="Artifact")
L = TypeVar("L", bound="LiveVocabularies[Any]")

TaskName = Literal["rating", "ranking"]
# What happens with users and items that the model does not know: they are served as cold-start
# ones, which share one row of the parameters, or refused.
Unknown = Literal["serve", "error"]


class Recommender(ABC, Generic[S, K, L]):
    """A model of either task. A fitted model is live: what it observes changes the next prediction
    without training. It is not locked: threads that share one must take turns."""

    task: ClassVar[TaskName]
    least_support: ClassVar[int]  # interactions that an item needs to be recommended, by default
    # Whether the model reads the rating of an interaction, or only that there is one.
    reads_ratings: ClassVar[bool]

    def __init__(self, settings: S) -> None:
        self.settings = settings
        self._artifact: K | None = None
        self._live: L | None = None

    @classmethod
    def from_artifact(cls, settings: S, artifact: K) -> Self:
        """A model that is already fitted, as a model folder holds it."""
        model = cls(settings)
        model._artifact = artifact
        return model

    @property
    def artifact(self) -> K:
        """The fitted model with what it has observed since; an error before `fit` or `load`."""
        if self._artifact is None:
            raise CfuicaError(
                "This model is not fitted yet: call fit(table) or cfuica.load(folder)."
            )
        return self._artifact if self._live is None else self._live.artifact()

    @property
    def live(self) -> L:
        """The model in use; made on first use."""
        if self._live is None:
            self._live = self._in_use(self.artifact)
        return self._live

    @abstractmethod
    def _in_use(self, artifact: K) -> L:
        """The live model of an artifact."""

    def similar_items(
        self, items: Any, n: int = 10, *, min_support: int | None = None, unknown: Unknown = "serve"
    ) -> Any:
        """The n items most like each of these: item, rank, similar, score, title.

        The score is the cosine of the hidden vectors of two items. Items with fewer than
        `min_support` interactions (default 5) are left out.
        """
        return self._similar("items", items, n, min_support, unknown)

    def similar_users(
        self, users: Any, n: int = 10, *, min_support: int | None = None, unknown: Unknown = "serve"
    ) -> Any:
        """The n users most like each of these: user, rank, similar, score."""
        return self._similar("users", users, n, min_support, unknown)

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        return save(self.settings, self.artifact, folder)

    def _history(self, history: Any, unknown: Unknown) -> History:
        """An anonymous user's ad-hoc history; items that the model does not know are left out."""
        from cfuica.live.events import History

        frame = as_history(history, rated=self.reads_ratings)
        index = self._indices("items", frame["item"], unknown)
        labels = self._labels(frame)
        is_stored = index != self.live.ids["items"].unknown_index
        return History(index[is_stored], labels[is_stored])

    @abstractmethod
    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        """(n,) uint8 label of each interaction of a history, as `as_history` gives it."""

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        history: Any = None,
        items: Iterable[Any] | str | int | None = None,
        exclude: Iterable[Any] | str | int | None = None,
        exclude_seen: bool = True,
        by: By | None = None,
        min_support: int | None = None,
        where: Mapping[str, Any] | None = None,
        max_per: Mapping[str, int] | None = None,
        unknown: Unknown = "serve",
    ) -> Any:
        """The top n items for each user: user, rank, item, score, title.

        `users` is an id, several, or a column or frame of them; each is served once, and the result
        is a frame of the same library. An anonymous user is given by a `history` instead: for a
        rating model a frame of item and rating or a list of such pairs, each item once; for a
        ranking model a list or column of items, newest last. The result then has no column user.
        Items of the history that the model does not know are left out.

        The score of a ranking model is the logit of the item as the user's next one, up to a
        constant of the user. That of a rating model is chosen by `by`: "expected" (rating), "lower"
        (the mean of the worst tenth of the predicted distribution) or "blend" (the expected rating
        and the item's support; the default).

        `items` are the candidates (default: all), less those of `exclude`, those with fewer than
        `min_support` interactions (default: 1 for ratings, 0 for rankings), and, with
        `exclude_seen`, those in the user's history. `where` filters by item metadata,
        {"genres": "Comedy"}; `max_per` limits how many items with the same value of a column a user
        gets, {"series": 1}. A user with fewer than n such items gets fewer.
        """
        from cfuica.inference.recommend import Request, recommend

        _check_number(n)
        request = Request(
            n=n,
            exclude_seen=exclude_seen,
            min_support=self.least_support if min_support is None else min_support,
            candidates=None if items is None else self._indices("items", items, unknown),
            exclude=None if exclude is None else self._indices("items", exclude, "serve"),
            where=where,
            max_per=max_per,
        )
        if history is not None:
            if users is not None:
                raise SettingsError(
                    "Users and a history were given; give the one or the other to recommend to."
                )
            target = self._history(history, unknown)
            return like(history, recommend(self.live, target, request, self._scorer(by)))
        ids, index = self._each_once("users", users, unknown)
        return like(users, recommend(self.live, index, request, self._scorer(by), user_ids=ids))

    @abstractmethod
    def _scorer(self, by: By | None) -> ItemScorer:
        """What items are ranked by."""

    def _similar(
        self, axis: SideName, queries: Any, n: int, min_support: int | None, unknown: Unknown
    ) -> Any:
        from cfuica.inference.recommend import check_min_support
        from cfuica.inference.similar import MIN_SUPPORT, similar_table

        _check_number(n)
        min_support = MIN_SUPPORT if min_support is None else min_support
        check_min_support(min_support)
        live = self.live
        ids, index = self._each_once(axis, queries, unknown)
        frame = similar_table(
            live.state,
            axis,
            index,
            n,
            min_support=min_support,
            query_ids=ids,
            ids=live.ids[axis].decode,
            titles=self._titles() if axis == "items" else None,
            in_order=live.ids[axis].present(),
        )
        return like(queries, frame)

    def _titles(self) -> Callable[[np.ndarray], pl.Series] | None:
        """Titles by index, null where there is none."""
        table = self.live.item_metadata
        if table is None or "title" not in table.columns:
            return None
        return lambda index: table["title"].gather(index)

    def _stored_user(self, user: Any) -> int:
        """The index of a user to forget; an error for an unknown one."""
        ids = self.live.ids["users"]
        index = self._index("users", user, "serve")
        if index == ids.unknown_index:
            raise DataError(
                f"The user {user!r} is unknown to this model, so there is nothing to forget: it "
                f"knows {ids.size} users{ids.example}."
            )
        return index

    def _pair(
        self, user: Any, item: Any, history: Any, unknown: Unknown
    ) -> tuple[int | None, int, Any, Any]:
        """The user and item of an explanation, by index and by external id; the user is None for an
        anonymous user."""
        if (user is None) == (history is None):
            raise SettingsError("An explanation is of a user or of a history: give one of them.")
        users, items = self.live.ids["users"], self.live.ids["items"]
        item_index = self._index("items", item, unknown)
        item_id = items.shown(as_id_column("item", item))[0]
        if user is None:
            return None, item_index, None, item_id
        user_index = self._index("users", user, unknown)
        return user_index, item_index, users.shown(as_id_column("user", user))[0], item_id

    def _each_once(
        self, axis: SideName, ids: Any, unknown: Unknown
    ) -> tuple[pl.Series, np.ndarray]:
        """The ids as results show them, each once, and their indices."""
        vocabulary = self.live.ids[axis]
        once = as_id_column(vocabulary.role, ids).unique(maintain_order=True)
        if once.is_empty():
            raise DataError(f"No {vocabulary.role} was given; give at least one id.")
        return vocabulary.shown(once), self._indices(axis, once, unknown)

    def _index(self, axis: SideName, one: Any, unknown: Unknown) -> int:
        """The index of one id."""
        index = self._indices(axis, one, unknown)
        if len(index) != 1:
            raise DataError(f"{len(index)} {axis} were given, but one is asked for.")
        return int(index[0])

    def _indices(self, axis: SideName, ids: Any, unknown: Unknown) -> np.ndarray:
        if unknown not in ("serve", "error"):
            raise SettingsError(f"unknown is {unknown!r}, but it is either 'serve' or 'error'.")
        series = as_id_column(self.live.ids[axis].role, ids)
        return self.live.indices(axis, series, serve_unknown=unknown == "serve")


def _check_number(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SettingsError(f"n is {n!r}, but it is the number of results; give at least 1.")


@dataclass(frozen=True)
class Task:
    """The settings, presets and model of a task."""

    settings: type[CommonSettings]
    preset: Callable[[str], CommonSettings]
    model: type[Any]
    split: str  # The default split of its data.


@cache
def tasks() -> dict[str, Task]:
    """The tasks by name; imported here, because their models are built on this file."""
    from cfuica.models.ranking_model import RankingModel
    from cfuica.models.rating_model import RatingModel

    return {
        RatingSettings.task: Task(RatingSettings, rating_preset, RatingModel, "random"),
        RankingSettings.task: Task(RankingSettings, ranking_preset, RankingModel, "leave-one-out"),
    }


def task_named(name: str) -> Task:
    """The task of this name."""
    if name not in tasks():
        raise SettingsError(f"--task {name} is not known; the tasks are {' and '.join(tasks())}.")
    return tasks()[name]


def load(folder: str | Path) -> Any:
    """The `RatingModel` or `RankingModel` of a model folder, or of a run folder, which has one."""
    settings, artifact = load_artifact(folder)
    return tasks()[settings.task].model.from_artifact(settings, artifact)
