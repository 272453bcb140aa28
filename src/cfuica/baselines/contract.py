"""The base of every baseline: its settings, what it learns from, and its model folder.

A baseline is a `Recommender` that learns from arrays of indices. One in closed form implements
`_fit`; one that learns in epochs derives from `Iterative` as well (`baselines/iterative.py`). A
`RatingBaseline` predicts ratings (`_predict`), a `RankingBaseline` scores items for users
(`_scores`) and reads no ratings.

Shape suffixes: p interactions or pairs, u users, i items, b users of a block, m all items.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from cfuica.artifact import BaseArtifact, read_base, read_interactions, write
from cfuica.data.frames import as_table
from cfuica.data.item_metadata import item_metadata_of
from cfuica.data.matrix import Csr
from cfuica.errors import CfuicaError, ModelFileError
from cfuica.forks import need_polars
from cfuica.live.live_model import Catalogue
from cfuica.metrics.ranking_metrics import RankingScores, RankingTest, Scores, answer
from cfuica.metrics.rating_metrics import RatingScores, mae, rmse
from cfuica.models.ranking_evaluation import ListScorer
from cfuica.models.recommender import Recommender, Unknown
from cfuica.settings import TrainingSettings

if TYPE_CHECKING:
    from cfuica.data.table import Interactions
    from cfuica.data.vocabulary import Vocabulary
    from cfuica.inference.recommend import By, ItemScorer, Target
    from cfuica.models.ranking_evaluation import RankingEvaluation
    from cfuica.ops.tables import SideName
    from cfuica.training.checkpoint import Checkpointer
    from cfuica.training.trainer import Callback, Trained

Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]
# Why a user or item cannot be compared, as the end of a sentence.
UNRATED = "has no ratings, or the model no factors; fit it to some"


class BaselineSettings(TrainingSettings):
    """Settings of a baseline; a subclass gives its `task`, its `model` and perhaps a `space`."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Interactions to learn from, by index, each pair once, sorted by user and item.

    The last user and the last item stand for all unknown ones, and have no interactions.
    """

    users_p: Index
    items_p: Index
    ratings_p: Floats  # 1 where the model reads none.
    n_users: int
    n_items: int

    @classmethod
    def of(cls, frame: pl.DataFrame, n_users: int, n_items: int) -> TrainingData:
        """From user, item and perhaps rating; of a repeated pair the last counts."""
        if "rating" not in frame.columns:
            frame = frame.with_columns(rating=1.0)
        frame = frame.unique(["user", "item"], keep="last", maintain_order=True)
        # One order for all orders, so that sums and ties come out the same to the last bit.
        frame = frame.sort("user", "item")
        users_p, items_p = (frame[name].to_numpy().astype(np.intp) for name in ("user", "item"))
        ratings_p = frame["rating"].to_numpy().astype(np.float64)
        if not np.isfinite(ratings_p).all():
            raise ValueError("a rating is not a finite number")
        return cls(users_p, items_p, ratings_p, n_users, n_items)

    @property
    def range(self) -> Floats:
        """The least and the largest rating (2,)."""
        return np.array([self.ratings_p.min(), self.ratings_p.max()])

    def counts(self, axis: SideName) -> np.ndarray:
        """(n,) how many interactions each user or item has."""
        is_users = axis == "users"
        index_p, size = (self.users_p, self.n_users) if is_users else (self.items_p, self.n_items)
        return np.bincount(index_p, minlength=size)

    @cached_property
    def histories(self) -> Csr:
        """The items of each user, ascending."""
        offsets = np.searchsorted(self.users_p, np.arange(self.n_users + 1))
        return Csr(offsets.astype(np.int64), self.items_p.astype(np.int32))

    def frame(self, *, rated: bool) -> pl.DataFrame:
        """user, item and perhaps rating."""
        rating = {"rating": self.ratings_p} if rated else {}
        return pl.DataFrame({"user": self.users_p, "item": self.items_p, **rating})


class BaselineCatalogue(Catalogue):
    """The interactions that a baseline knows, by index."""

    def __init__(self, artifact: BaseArtifact, data: TrainingData) -> None:
        super().__init__(artifact)
        self.artifact, self.data = artifact, data

    def support(self, axis: SideName) -> np.ndarray:
        """(n,) how many interactions each user or item has, by index."""
        index_p = self.data.users_p if axis == "users" else self.data.items_p
        return np.bincount(index_p, minlength=self.ids[axis].n_indices)

    def pairs(self) -> tuple[Index, Index]:
        """Users and items (p,) of all interactions, by index."""
        return self.data.users_p, self.data.items_p

    def history(self, user: int) -> tuple[Index, Floats]:
        """The items of a user, and their ratings."""
        own = slice(*self.data.histories.offsets[user : user + 2].tolist())
        return self.data.items_p[own], self.data.ratings_p[own]


class Baseline(Recommender):
    """Learns arrays from interactions by index; a subclass gives `name`, `settings_class` and the
    hooks `_fit` and `_shapes`.

    A cold-start user or item is no error: all of them have the last index, which has no
    interactions to learn from.

    >>> BiasedFactorisation(factors=20).fit(table)
    """

    name: ClassVar[str]  # What tables call it.
    settings_class: ClassVar[type[BaselineSettings]]
    least_support: ClassVar[int] = 1
    # Of `block`: two indices, a score, and as much in between.
    numbers_per_item: ClassVar[int] = 8
    checks: ClassVar[Mapping[str, Any]] = {}  # No calibration, which a report would show.

    settings: BaselineSettings
    trained: Trained | None = None  # The training of a model that was fitted here.
    _catalogue: BaselineCatalogue | None = None

    def __init__(self, settings: BaselineSettings | None = None, **changes: Any) -> None:
        """Of the default settings, or of these, with `changes` by name."""
        self.settings = (settings or self.settings_class()).replaced(**changes)

    def fit(
        self,
        interactions: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        vocabulary: Interactions | Any = None,
        callback: Callback | None = None,
        checkpointer: Checkpointer | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Learn from a table (or a dataframe) of interactions; returns self.

        `valid` is a table to validate on. A baseline in closed form then learns once more, from
        both, and so does a ranking one that learns in epochs (`refit`); one of ratings that learns
        in epochs has both as histories. `vocabulary` is a table with all users and items that the
        model is to know (default: those of `interactions`). `callback`, `checkpointer` and
        `progress` are as in `RatingModel.fit`.
        """
        from cfuica.training.checkpoint import Checkpointer
        from cfuica.training.display import CallbackList, display

        need_polars("Training")
        given = (interactions, interactions if vocabulary is None else vocabulary, valid)
        events = not self.reads_ratings
        table, whole, later = (
            None if each is None else as_table(each, events=events) for each in given
        )
        assert table is not None
        assert whole is not None
        users, items = whole.users, whole.item_ids
        artifact = BaseArtifact(
            users=users,
            items=items,
            rows={"users": np.arange(users.size), "items": np.arange(items.size)},
            item_metadata=item_metadata_of(whole.items, items),
        )
        train = everything = self._data([table], users, items)
        with display(progress, reported=callback is not None) as bar:
            callbacks = CallbackList([bar] if callback is None else [bar, callback])
            validate = None
            if later is not None:
                everything = self._data([table, later], users, items)
                validate = self._validator(later, train, artifact, callbacks)
            learning = Learning(
                train=BaselineCatalogue(artifact, train),
                everything=BaselineCatalogue(artifact, everything),
                validate=validate,
                callback=callbacks,
                checkpointer=checkpointer or Checkpointer(),
            )
            self.trained = self._learn(learning)
        return self

    def _data(
        self, tables: Iterable[Interactions], users: Vocabulary, items: Vocabulary
    ) -> TrainingData:
        frames = []
        for table in tables:
            own = table.rated() if self.reads_ratings else table
            rating = {"rating": own.frame["rating"]} if self.reads_ratings else {}
            index = {"user": own.encoded("user", users), "item": own.encoded("item", items)}
            frames.append(pl.DataFrame({**index, **rating}))
        return TrainingData.of(pl.concat(frames), users.size + 1, items.size + 1)

    def _learn(self, learning: Learning) -> Trained:
        """Learn in closed form: from the train set, to be validated, then from everything."""
        from cfuica.training.trainer import Progress, Trained

        start, scores = time.perf_counter(), None
        learning.callback.started(self.settings)
        if learning.validate is not None:
            self._fit(learning.train.data)
            self._catalogue = learning.train
            scores = learning.validate()
            learning.callback.note(
                "Validated after learning from the train set; the model has then learned from the "
                "validation set, too."
            )
        self._fit(learning.everything.data)
        self._catalogue = learning.everything
        seconds = time.perf_counter() - start
        last = Progress(
            member=0,
            networks=1,
            step=1,
            steps_planned=1,
            loss=None,
            rate=None,
            gradient_norm=None,
            valid=scores,
            best=None if scores is None else scores.value,
            verdict="stop",
            seconds=seconds,
            seconds_in_steps=seconds,
        )
        learning.callback.validated(last)
        return Trained([], self.settings, [last], seconds)

    @property
    def catalogue(self) -> BaselineCatalogue:
        """The interactions that the model knows; an error before `fit` or `load`."""
        if self._catalogue is None:
            raise CfuicaError(
                f"This {type(self).__name__} is not fitted yet: call fit(table) or "
                f"cfuica.load(folder)."
            )
        return self._catalogue

    @property
    def artifact(self) -> BaseArtifact:
        """Users, items, item metadata and model card; an error before `fit` or `load`."""
        return self.catalogue.artifact

    @property
    def parameter_counts(self) -> dict[str, int]:
        """How many numbers were learned."""
        shapes = self._shapes(self.catalogue.data).values()
        return {"warm": sum(int(np.prod(shape)) for shape in shapes)}

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        import torch

        catalogue = self.catalogue
        card = {
            **catalogue.artifact.card,
            "task": self.settings.task,
            "model": type(self).__name__,
            "settings": self.settings.model_dump(),
        }
        learned = {
            name: torch.from_numpy(np.asarray(getattr(self, f"{name}_")))
            for name in self._shapes(catalogue.data)
        }
        artifact = replace(
            catalogue.artifact, retired=catalogue.retired_ids, sequence=catalogue.sequence
        )
        interactions = catalogue.data.frame(rated=self.reads_ratings)
        return write(folder, card, artifact, interactions, {"model": learned})

    @classmethod
    def _restored(cls, folder: Path, card: dict[str, Any]) -> Self:
        from safetensors.numpy import load_file

        model, common = cls(cls.settings_class(**card["settings"])), read_base(folder, card)
        frame = read_interactions(folder, common)[0]
        columns = ["user", "item", *(["rating"] if cls.reads_ratings else [])]
        sizes = common.users.size + 1, common.items.size + 1
        catalogue = BaselineCatalogue(common, TrainingData.of(frame.select(columns), *sizes))
        path = folder / "model.safetensors"
        learned, expected = load_file(path), model._shapes(catalogue.data)
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
        model._catalogue = catalogue
        return model

    def _conditioned_on(self, extra: Interactions) -> Self:
        catalogue, model = self.catalogue, copy(self)
        more = self._data([extra], catalogue.artifact.users, catalogue.artifact.items)
        frame = pl.concat([each.frame(rated=True) for each in (catalogue.data, more)])
        data = TrainingData.of(frame, more.n_users, more.n_items)
        model._catalogue = BaselineCatalogue(catalogue.artifact, data)
        return model

    def _scorer(self, by: By | None) -> ItemScorer:
        return self

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) scores, of which those of these `items` are valid; and the seen items of each."""
        assert isinstance(target, np.ndarray)  # a baseline serves no ad-hoc history
        seen = [self.catalogue.history(user)[0] for user in target.tolist()]
        return self._item_scores(target, items), seen

    @abstractmethod
    def _item_scores(self, users_b: np.ndarray, items: np.ndarray) -> Singles:
        """(B, M) float32 scores, of which those of these `items` are valid."""

    @abstractmethod
    def _validator(
        self, valid: Interactions, train: TrainingData, artifact: BaseArtifact, callback: Callback
    ) -> Callable[[], Scores] | None:
        """A function that validates the model as it is; None where there is nothing to test."""

    def _fit(self, data: TrainingData) -> None:
        """Learn in closed form."""
        raise NotImplementedError(f"{type(self).__name__} lacks _fit")

    @abstractmethod
    def _shapes(self, data: TrainingData) -> Shapes:
        """The arrays that are learned, by their names in the model folder.

        The attributes have the same names with an underscore at the end."""


@dataclass(frozen=True, eq=False)
class Learning:
    """What one training of a baseline learns from and reports to."""

    train: BaselineCatalogue
    everything: BaselineCatalogue  # With the validation set.
    validate: Callable[[], Scores] | None
    callback: Callback
    checkpointer: Checkpointer


class RatingBaseline(Baseline):
    """Learns from ratings on any scale and predicts the rating of any pair (`_predict`), by which
    items are ranked. Where nothing is known of a user or item, a prediction falls back to what is
    known without it."""

    predicts_ratings: ClassVar[bool] = True
    reads_ratings: ClassVar[bool] = True

    def evaluate(self, table: Interactions | Any, *, unknown: Unknown = "serve") -> RatingScores:
        """RMSE and MAE on a table of ratings; interactions without a rating do not count."""
        rated = as_table(table).rated()
        predicted_p = self._predict(*self._pair_indices(rated, unknown))
        return _rating_scores(predicted_p, rated.frame["rating"].to_numpy())

    def _validator(
        self, valid: Interactions, train: TrainingData, artifact: BaseArtifact, callback: Callback
    ) -> Callable[[], Scores] | None:
        data = self._data([valid], artifact.users, artifact.items)
        if not len(data.users_p):
            return None
        return lambda: _rating_scores(self._predict(data.users_p, data.items_p), data.ratings_p)

    def _item_scores(self, users_b: np.ndarray, items: np.ndarray) -> Singles:
        score_bm = np.zeros((len(users_b), self.catalogue.data.n_items), np.float32)
        predicted_p = self._predict(np.repeat(users_b, len(items)), np.tile(items, len(users_b)))
        score_bm[:, items] = predicted_p.reshape(len(users_b), len(items))
        return score_bm

    @abstractmethod
    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        """Predicted ratings (p,) of p pairs, on the scale of the ratings learned from."""


def _rating_scores(predicted_p: Floats, ratings_p: Floats) -> RatingScores:
    n = len(ratings_p)
    return RatingScores(rmse(predicted_p, ratings_p), mae(predicted_p, ratings_p), None, n)


class RankingBaseline(Baseline):
    """Learns from implicit feedback, which pairs there are, and ranks items by `_scores`. An
    unknown item has the user's lowest score."""

    numbers_per_item: ClassVar[int] = 4

    def evaluate(
        self,
        table: Interactions | Any,
        *,
        at: Sequence[int] = (5, 10, 20),
        cold: int | None = None,
        unknown: Unknown = "serve",
    ) -> RankingEvaluation:
        """HR, NDCG and the other ranking metrics on a table of user and item; see
        `evaluate_ranking`."""
        return self.evaluate_ranking(table, at=at, cold=cold, unknown=unknown)

    @property
    def histories(self) -> Csr:
        """The items of each user that the model is conditioned on, by index."""
        return self.catalogue.data.histories

    def _validator(
        self, valid: Interactions, train: TrainingData, artifact: BaseArtifact, callback: Callback
    ) -> Callable[[], Scores] | None:
        from cfuica.training.ranking_task import CUT_OFF, NextItems, validation_scores

        users, items = artifact.users, artifact.items
        later = valid.timeline(users=users, items=items, has_times=valid.has_times)
        last = NextItems.last_of(later).sample(items.size, callback, self.settings.seed)
        n = len(last.users_p)
        if not n:
            return None
        ranking_test = RankingTest.among_unseen(
            "validation",
            last.users_p,
            Csr.of_pairs(np.arange(n), last.items_p, n),
            seen=train.histories.take(last.users_p),
            catalogue_m=np.ones(items.size, np.bool_),
        )

        def validate() -> RankingScores:
            found = answer(ranking_test, ListScorer(self, items.size), (CUT_OFF,))
            return validation_scores(found, getattr(self.settings, "validated_by", "ndcg"))

        return validate

    def _item_scores(self, users_b: np.ndarray, items: np.ndarray) -> Singles:
        score_bm = self._scores(users_b)
        # Nothing is known of unknown items, not even that users passed them over.
        score_bm[:, -1] = score_bm[:, :-1].min(1)
        return score_bm

    @abstractmethod
    def _scores(self, users_b: np.ndarray) -> Singles:
        """(B, M) float32 scores of all items. Those of a user must not depend on the other users
        of the block, not even in the last bits."""
