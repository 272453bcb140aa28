"""`Recommender`, the contract of every model and baseline, and `load`, which reads a saved one.

A recommender takes and returns external ids. The public methods are here, once; a model implements
the hooks below them. `MODELS` names every model, `kind_named` gives its settings and presets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
import polars as pl

from cfuica.artifact import read
from cfuica.data.frames import as_exclusions, as_id_column, as_pairs, like
from cfuica.data.matrix import Csr
from cfuica.errors import CfuicaError, DataError, ModelFileError, SettingsError
from cfuica.settings import (
    CommonSettings,
    RankingSettings,
    RatingSettings,
    TrainingSettings,
    ranking_preset,
    rating_preset,
)

if TYPE_CHECKING:
    from cfuica.data.table import Interactions
    from cfuica.data.vocabulary import Vocabulary
    from cfuica.inference.explain import BaseExplanation
    from cfuica.inference.filters import Where
    from cfuica.inference.recommend import By, ItemScorer
    from cfuica.inference.similar import Similarity
    from cfuica.live.interactions import History, Observed
    from cfuica.live.live_model import Catalogue
    from cfuica.metrics.ranking_metrics import Scorer
    from cfuica.models.ranking_evaluation import RankingEvaluation
    from cfuica.ops.tables import SideName

# What happens with users and items that the model does not know: they are served as cold-start
# ones, or refused.
Unknown = Literal["serve", "error"]
_NETWORKS = "RatingModel and RankingModel can"
F = TypeVar("F", bound=Callable[..., Any])


def in_turn(method: F) -> F:
    """Let one thread at a time run this method of a model, or another one that is marked so."""

    @wraps(method)
    def alone(self: Recommender, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **options)

    return cast("F", alone)


class Recommender(ABC):
    """A model that is fitted to interactions and recommends items, by external ids.

    The flags say what else it can do; a method that they exclude raises a CfuicaError. A subclass
    implements `fit`, `save`, `catalogue`, `_scorer` and `_restored`, and the hooks and methods of
    its flags. `cfuica.testing.check_recommender` holds it to the contract.
    """

    predicts_ratings: ClassVar[bool] = False  # `predict`
    predicts_distributions: ClassVar[bool] = False  # `predict_proba`
    cold_users: ClassVar[bool] = False  # A `history` in place of a user: the first click counts.
    live: ClassVar[bool] = False  # `observe`, `remove`, `forget`
    explains: ClassVar[bool] = False  # `explain`
    finds_similar: ClassVar[tuple[SideName, ...]] = ()  # `similar_items`, `similar_users`
    ranks_by: ClassVar[tuple[str, ...]] = ()  # The values of `by`; none where there is one score.
    reads_ratings: ClassVar[bool] = False  # Whether an interaction needs a rating.
    least_support: ClassVar[int] = 0  # Interactions of an item that is recommended, by default.

    # A live model has one of its own. The answers of others change nothing, and need none.
    _lock: AbstractContextManager[Any] = nullcontext()

    def __repr__(self) -> str:
        try:
            state = f"fitted: {self.users.size:,} users, {self.items.size:,} items"
        except CfuicaError:
            state = "not fitted"
        return f"{type(self).__name__}({state})"

    @abstractmethod
    def fit(
        self,
        interactions: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        vocabulary: Interactions | Any = None,
    ) -> Self:
        """Learn from a table (or a dataframe) of interactions; returns self.

        Recommendations are conditioned on the interactions of `valid` too. `vocabulary` is a table
        with all users and items that the model is to know (default: those of `interactions`).
        """

    @abstractmethod
    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model that `save` of this class wrote; `cfuica.load` finds the class itself."""
        return read(folder, cls._own)

    @property
    @abstractmethod
    def catalogue(self) -> Catalogue:
        """Users, items and item metadata as they are now; an error before `fit` or `load`."""

    @property
    @in_turn
    def users(self) -> Vocabulary:
        """The user ids that the model knows, sorted."""
        return self.catalogue.vocabulary("users")

    @property
    @in_turn
    def items(self) -> Vocabulary:
        """The item ids that the model knows, sorted."""
        return self.catalogue.vocabulary("items")

    @property
    def types(self) -> tuple[str, ...]:
        """The types of events that a ranking model was fitted to, weakest first."""
        return ()

    @property
    def sequence(self) -> int:
        """How many changes the model knows: calls of `observe`, `remove`, `forget` and `retire`
        since it was fitted; a saved model goes on counting."""
        return self.catalogue.sequence

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Answers that know the same changes: no other thread changes the model meanwhile. Gives
        their number, the model's `sequence`.

        >>> with model.reading() as sequence:
        ...     top, why = model.recommend("ann"), model.explain("ann", "oil")
        """
        with self._lock:
            yield self.sequence

    @in_turn
    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        history: Any = None,
        items: Iterable[Any] | str | int | None = None,
        exclude: Any = None,
        exclude_seen: bool | str | Iterable[str] = True,
        by: By | None = None,
        min_support: int | None = None,
        where: Where | None = None,
        max_per: Mapping[str, int] | None = None,
        unknown: Unknown = "serve",
    ) -> Any:
        """The top n items for each user: user, rank, item, score, title.

        `users` is an id, several, or a column or frame of them; each is served once, and the result
        is a frame of the same library. An anonymous user is given by a `history` instead: for a
        rating model a frame of item and rating or a list of such pairs, each item once; for a
        ranking model a list or column of items, newest last. The result then has no column user.
        Items of the history that the model does not know are left out; an empty history is that of
        a user of whom nothing is known. No users give an empty frame.

        The score of a ranking model is the logit of the item as the user's next one, up to a
        constant of the user; that of a baseline is the predicted rating. That of a rating model is
        chosen by `by`: "expected" (rating), "lower" (the mean of the worst tenth of the predicted
        distribution) or "blend" (the expected rating and the item's support; the default).

        `items` are the candidates (default: all), less retired ones, those of `exclude`, those with
        fewer than `min_support` interactions (default: `least_support`), and, with `exclude_seen`,
        those in the user's history, or only those of some types of events ("purchase", or several).
        `exclude` are items, or the items of each user: a mapping of users to items, or a frame of
        user and item. `where` filters by item metadata: {"genres": "Comedy"}, several values as a
        list, or a polars expression, `pl.col("price") < 10`. `max_per` limits how many items with
        the same value of a column a user gets, {"series": 1}. A user with fewer than n such items
        gets fewer.
        """
        from cfuica.inference.recommend import Request, recommend

        _check_number(n)
        scorer, ids = self._scorer_by(by), None
        target: np.ndarray | History
        if history is None:
            ids, target = self._each_once("users", users, unknown)
        elif users is not None:
            raise SettingsError(
                "Users and a history were given; give the one or the other to recommend to."
            )
        else:
            target = self._history(history, unknown)
        for_all, for_each = self._excluded(exclude, ids)
        request = Request(
            n=n,
            exclude_seen=exclude_seen is not False,
            seen_types=None if isinstance(exclude_seen, bool) else self._types(exclude_seen),
            min_support=self.least_support if min_support is None else min_support,
            candidates=None if items is None else self._indices("items", items, unknown),
            exclude=for_all,
            exclude_own=for_each,
            where=where,
            max_per=max_per,
        )
        top = recommend(self.catalogue, target, request, scorer, user_ids=ids)
        return like(users if history is None else history, top)

    @in_turn
    def score(
        self,
        user: Any,
        items: Any,
        *,
        history: Any = None,
        by: By | None = None,
        unknown: Unknown = "serve",
    ) -> Any:
        """The scores of items for one user: user, item, score, in the order of `items`.

        They are what `recommend` ranks by. A seen item has the score that it has with
        `exclude_seen=False`: where the model can leave an interaction out, without its own. For an
        anonymous user, give a `history` (see `recommend`) and None for the user; the result then
        has no column user.
        """
        if (user is None) == (history is None):
            raise SettingsError("Scores are for a user or for a history: give one of them.")
        scorer, ids = self._scorer_by(by), as_id_column("item", items)
        index = self._indices("items", ids, unknown)
        if user is None:
            target: Any = self._history(history, unknown)
        else:
            target = np.array([self._index("users", user, unknown)], np.int32)
        score_bm, _ = scorer.block(target, np.unique(index), seen_too=True)
        score = score_bm[0, index].astype(np.float64)
        frame = pl.DataFrame({"item": self.catalogue.ids["items"].shown(ids), "score": score})
        if user is not None:
            own = self.catalogue.ids["users"].shown(as_id_column("user", user))
            frame = frame.insert_column(0, own.new_from_index(0, frame.height).alias("user"))
        return like(items, frame, same_rows=True)

    @in_turn
    def predict(self, pairs: Interactions | Any, *, unknown: Unknown = "serve") -> Any:
        """The expected rating of each pair: user, item, prediction, in the order given.

        `pairs` is a table or frame of user and item, or a list of (user, item); what comes back is
        a frame of the same library.
        """
        if not self.predicts_ratings:
            raise self._cannot("predict ratings", "RatingModel and baselines of ratings can")
        table = as_pairs(pairs)
        expected = self._predict(*self._pair_indices(table, unknown))
        columns = [table.frame[name] for name in ("user", "item")]
        if not table.n:  # the ids have no type of their own
            own = self.catalogue.ids.values()
            columns = [ids.shown(column) for ids, column in zip(own, columns, strict=True)]
        frame = pl.DataFrame([*columns, pl.Series("prediction", expected)])
        return like(pairs, frame, same_rows=True)

    def predict_proba(self, pairs: Interactions | Any, *, unknown: Unknown = "serve") -> np.ndarray:
        """(P, K) predicted distributions; of `RatingModel` only."""
        raise self._cannot("predict distributions of ratings", "RatingModel can")

    def evaluate(self, table: Interactions | Any, *, unknown: Unknown = "serve") -> Any:
        """Metrics on a test set: of a `RatingModel` those of the predicted distributions, of a
        baseline of ratings RMSE and MAE, of a ranking those of `evaluate_ranking`."""
        raise self._cannot("predict distributions of ratings", "RatingModel can")

    @in_turn
    def evaluate_ranking(
        self,
        test: Interactions | Any,
        *,
        at: Sequence[int] = (5, 10, 20),
        by: By | None = None,
        cold: int | None = None,
        unknown: Unknown = "serve",
    ) -> RankingEvaluation:
        """HR, NDCG and the other ranking metrics on a table of user and item.

        The items of each user's test interactions, whatever their ratings, are ranked among all
        items that the user has not had, by what `recommend` ranks by (`by`). `at` are the cut-offs.
        `cold=n` also gives the metrics of users and items with fewer than n interactions, and of
        the others. A test item that the model does not know ranks last.
        """
        from cfuica.models.ranking_evaluation import evaluate_ranking

        return evaluate_ranking(self, test, at=at, by=by, cold=cold, unknown=unknown)

    @property
    @in_turn
    def seen(self) -> Csr:
        """A row per user: the items of the interactions that the model is conditioned on, both in
        the order of `users` and `items`."""
        n_users, n_items = self.users.size, self.items.size
        users, items = self.catalogue.pairs()
        own = (users < n_users) & (items < n_items)
        return Csr.of_pairs(users[own], items[own], n_users)

    def scorer(self, extra: Interactions | None = None, *, by: By | None = None) -> Scorer:
        """Scores of all items for all users, both in the order of `users` and `items`, conditioned
        on the model's interactions and `extra`; the model itself stays as it is."""
        from cfuica.models.ranking_evaluation import ListScorer

        model = self if extra is None else self._conditioned_on(extra)
        return ListScorer(model._scorer_by(by), self.items.size)

    def item_vectors(self, items: Any = None, *, unknown: Unknown = "error") -> pl.DataFrame:
        """The vectors that `similar_items` compares: item, vector; of all items, or of these.

        The score of two items is the cosine of their vectors less the mean of all vectors. It is
        null where nothing is known of an item, which has no interactions.
        """
        return self._vectors("items", items, unknown)

    def user_vectors(self, users: Any = None, *, unknown: Unknown = "error") -> pl.DataFrame:
        """The vectors that `similar_users` compares: user, vector; of all users, or of these."""
        return self._vectors("users", users, unknown)

    def score_vectors(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Vectors of all users and of all items that are not retired, whose inner product is the
        score: (user, vector), (item, vector); of `RankingModel` only."""
        if not self.predicts_ratings:
            raise self._cannot("give vectors whose inner product is the score", "RankingModel can")
        raise self._cannot(
            "give vectors whose inner product is the score: an expected rating is no inner "
            "product, but the mean of a distribution over the ratings",
            "a RankingModel can; recommend to all users ahead (cfuica recommend --all-users), or "
            "train with --task ranking",
        )

    def similar_items(
        self, items: Any, n: int = 10, *, min_support: int | None = None, unknown: Unknown = "serve"
    ) -> Any:
        """The n items most like each of these: item, rank, similar, score, title.

        Items with fewer than `min_support` interactions (default 5) are left out. The score is the
        cosine of the vectors of two items that the model computes with, less their mean; that of
        `ItemNeighbours` is its similarity.
        """
        return self._similar("items", items, n, min_support, unknown)

    def similar_users(
        self, users: Any, n: int = 10, *, min_support: int | None = None, unknown: Unknown = "serve"
    ) -> Any:
        """The n users most like each of these: user, rank, similar, score."""
        return self._similar("users", users, n, min_support, unknown)

    def explain(
        self, user: Any, item: Any, *, history: Any = None, unknown: Unknown = "serve"
    ) -> BaseExplanation:
        """Explain a score by the interactions that it was computed from."""
        raise self._cannot("explain its scores")

    def observe(self, events: Any) -> Observed:
        """Add interactions; the next recommendation is conditioned on them."""
        raise self._cannot("observe interactions without being fitted again")

    def update_items(self, items: Any, *, source: str = "the items frame") -> str | None:
        """Add item metadata, or new values of it."""
        raise self._cannot("take item metadata without being fitted again")

    def remove(self, pairs: Any) -> Observed:
        """Remove interactions, given as pairs of user and item."""
        raise self._cannot("remove interactions without being fitted again")

    def forget(self, user: Any) -> int:
        """Remove a user; returns how many interactions were removed."""
        raise self._cannot("forget a user without being fitted again")

    @in_turn
    def retire(self, items: Any, *, retired: bool = True) -> int:
        """Retire items: they are never recommended or listed as similar to others again, also where
        they are observed again. Their interactions stay, and count for everything else. With
        `retired=False` they are taken back. Returns of how many items that is a change.
        """
        return self.catalogue.retire(self._indices("items", items, "error"), retired=retired)

    @classmethod
    def _own(cls, folder: Path, card: dict[str, Any]) -> Self:
        if card["model"] != cls.__name__:
            raise ModelFileError(
                f"{folder} holds a {card['model']}, not a {cls.__name__}; load it with "
                f"cfuica.load(folder)."
            )
        return cls._restored(folder, card)

    @classmethod
    @abstractmethod
    def _restored(cls, folder: Path, card: dict[str, Any]) -> Self:
        """The model of a folder whose files are whole."""

    @abstractmethod
    def _scorer(self, by: By | None) -> ItemScorer:
        """What items are ranked by."""

    def _list_scorer(self, by: By | None) -> Scorer:
        """Scores of all items for all users, by index, as evaluations read them."""
        from cfuica.models.ranking_evaluation import ListScorer

        return ListScorer(self._scorer_by(by), self.catalogue.ids["items"].n_indices)

    def _conditioned_on(self, extra: Interactions) -> Self:
        """A copy that has observed these interactions; for a class that is `live`."""
        raise self._cannot("observe interactions without being fitted again")

    def _history(self, history: Any, unknown: Unknown) -> History:
        """An anonymous user's ad-hoc history; items that the model does not know are left out."""
        raise self._cannot("serve an ad-hoc history")

    def _predict(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) expected ratings of pairs, by index; for a class with `predicts_ratings`."""
        raise NotImplementedError(f"{type(self).__name__} predicts ratings and lacks _predict")

    def _similarity(self, axis: SideName) -> Similarity:
        """What the users or items are compared by; for a class with `finds_similar`."""
        raise NotImplementedError(f"{type(self).__name__} compares {axis} and lacks _similarity")

    def _types(self, names: str | Iterable[str]) -> np.ndarray:
        """The numbers of types of events."""
        wanted = [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if name not in self.types:
                remedy = f"those of this model are {', '.join(self.types)}; give some of these"
                if not self.types:
                    remedy = f"this {type(self).__name__} knows none; give True or False"
                raise SettingsError(f"exclude_seen is the type of event {name!r}, but {remedy}.")
        return np.array([self.types.index(name) for name in wanted], np.uint8)

    def _cannot(self, what: str, who_can: str = _NETWORKS) -> CfuicaError:
        return CfuicaError(f"{type(self).__name__} cannot {what}; {who_can}.")

    def _scorer_by(self, by: By | None) -> ItemScorer:
        if by is not None and not self.ranks_by:
            raise SettingsError(
                f"by is {by!r}, but {type(self).__name__} has one score; leave by out."
            )
        return self._scorer(by)

    @in_turn
    def _similar(
        self, axis: SideName, queries: Any, n: int, min_support: int | None, unknown: Unknown
    ) -> Any:
        from cfuica.inference.similar import MIN_SUPPORT, similar_table

        if axis not in self.finds_similar:
            raise self._cannot(f"compare {axis}")
        _check_number(n)
        ids, index = self._each_once(axis, queries, unknown)
        frame = similar_table(
            self.catalogue,
            self._similarity(axis),
            axis,
            index,
            n,
            min_support=MIN_SUPPORT if min_support is None else min_support,
            query_ids=ids,
        )
        return like(queries, frame)

    @in_turn
    def _vectors(self, axis: SideName, ids: Any, unknown: Unknown) -> pl.DataFrame:
        if axis not in self.finds_similar:
            raise self._cannot(f"compare {axis}, so they have no vectors")
        similarity, stored = self._similarity(axis), self.catalogue.ids[axis]
        if ids is None:
            names, index = stored.decode(stored.present()), stored.present()
        else:
            names, index = self._each_once(axis, ids, unknown)
        if (vectors := similarity.vectors(index)) is None:
            raise self._cannot(
                f"give vectors of {axis}: it compares them by a table of similarities",
                "BiasedFactorisation, RatingModel and RankingModel can",
            )
        return pl.DataFrame({stored.role: names, "vector": vectors})

    def _each_once(
        self, axis: SideName, ids: Any, unknown: Unknown
    ) -> tuple[pl.Series, np.ndarray]:
        """The ids as results show them, each once, and their indices."""
        vocabulary = self.catalogue.ids[axis]
        if ids is None:
            raise DataError(f"No {vocabulary.role} was given; give an id, or several.")
        once = as_id_column(vocabulary.role, ids).unique(maintain_order=True)
        return vocabulary.shown(once), self._indices(axis, once, unknown)

    def _excluded(
        self, exclude: Any, user_ids: pl.Series | None
    ) -> tuple[np.ndarray | None, list[np.ndarray] | None]:
        """The items, by index, that nobody is to get, or those of each of these users."""
        if exclude is None:
            return None, None
        given = as_exclusions(exclude)
        if isinstance(given, pl.Series):
            return self._indices("items", given, "serve"), None
        if user_ids is None:
            raise SettingsError(
                "exclude has items of users, but a history was given; give items alone."
            )
        # By the text of the ids, because those of unknown users have one index.
        users = self.catalogue.ids["users"].shown(given["user"]).cast(pl.String)
        items = self._indices("items", given["item"], "serve")
        own: dict[str, list[int]] = {user: [] for user in user_ids.cast(pl.String)}
        for user, item in zip(users, items.tolist(), strict=True):
            if user in own:
                own[user].append(item)
        return None, [np.array(each, np.int32) for each in own.values()]

    def _index(self, axis: SideName, one: Any, unknown: Unknown) -> int:
        """The index of one id."""
        index = self._indices(axis, one, unknown)
        if len(index) != 1:
            raise DataError(f"{len(index)} {axis} were given, but one is asked for.")
        return int(index[0])

    def _indices(self, axis: SideName, ids: Any, unknown: Unknown) -> np.ndarray:
        if unknown not in ("serve", "error"):
            raise SettingsError(f"unknown is {unknown!r}, but it is either 'serve' or 'error'.")
        series = as_id_column(self.catalogue.ids[axis].role, ids)
        return self.catalogue.indices(axis, series, serve_unknown=unknown == "serve")

    def _pair_indices(self, pairs: Interactions, unknown: Unknown) -> tuple[np.ndarray, np.ndarray]:
        return (
            self._indices("users", pairs.frame["user"], unknown),
            self._indices("items", pairs.frame["item"], unknown),
        )


def _check_number(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SettingsError(f"n is {n!r}, but it is the number of results; give at least 1.")


@dataclass(frozen=True)
class Kind:
    """The settings, presets and class of a model, and the default split of its data."""

    settings: type[TrainingSettings]
    preset: Callable[[str], TrainingSettings]
    model: type[Any]
    split: str


@cache
def tasks() -> dict[str, Kind]:
    """CF-UIcA for each task; imported here, because its models are built on this file."""
    from cfuica.models.co_autoregressive import RankingModel, RatingModel

    return {
        RatingSettings.task: Kind(RatingSettings, rating_preset, RatingModel, "random"),
        RankingSettings.task: Kind(RankingSettings, ranking_preset, RankingModel, "leave-one-out"),
    }


def task_named(name: str) -> Kind:
    """CF-UIcA for the task of this name."""
    if name not in tasks():
        raise SettingsError(f"--task {name} is not known; the tasks are {' and '.join(tasks())}.")
    return tasks()[name]


# The classes of each model by its name on the command line, "module:Class"; imported on use,
# because they are built on this file. CF-UIcA has one for each task.
MODELS: Mapping[str, tuple[str, ...]] = {
    CommonSettings.model: (
        "cfuica.models.co_autoregressive:RatingModel",
        "cfuica.models.co_autoregressive:RankingModel",
    ),
    "global-mean": ("cfuica.baselines.means:GlobalMean",),
    "item-mean": ("cfuica.baselines.means:ItemMean",),
    "bias": ("cfuica.baselines.means:UserItemBias",),
    "pmf": ("cfuica.baselines.factorisation:ProbabilisticFactorisation",),
    "biasmf": ("cfuica.baselines.factorisation:BiasedFactorisation",),
    "item-knn-ratings": ("cfuica.baselines.neighbours:ItemNeighbours",),
    "u-cf-nade-s": ("cfuica.baselines.nade:UserCfNade",),
    "i-cf-nade-s": ("cfuica.baselines.nade:ItemCfNade",),
    "llorma-local": ("cfuica.baselines.local_low_rank:LlormaLocal",),
    "llorma-global": ("cfuica.baselines.local_low_rank:LlormaGlobal",),
    "u-rbm": ("cfuica.baselines.rbm:UserRbm",),
    "i-rbm": ("cfuica.baselines.rbm:ItemRbm",),
    "u-autorec": ("cfuica.baselines.autoencoders:UserAutoRec",),
    "i-autorec": ("cfuica.baselines.autoencoders:ItemAutoRec",),
    "itempop": ("cfuica.baselines.neighbours:ItemPopularity",),
    "itemknn": ("cfuica.baselines.neighbours:ItemCosine",),
    "ease": ("cfuica.baselines.linear:Ease",),
    "eals": ("cfuica.baselines.weighted_factorisation:ElementwiseFactorisation",),
    "ials": ("cfuica.baselines.weighted_factorisation:ImplicitFactorisation",),
    "bpr": ("cfuica.baselines.factorisation:BprFactorisation",),
    "cdae": ("cfuica.baselines.autoencoders:Cdae",),
    "nnmf": ("cfuica.baselines.neural_mf:NeuralFactorisation",),
    "neumf": ("cfuica.baselines.neural_mf:NeuMf",),
}


def kind_named(model: str, task: str | None = None) -> Kind:
    """The kind of a model, by the names of the command line; a baseline has one task."""
    if model == CommonSettings.model:
        return task_named(RatingSettings.task if task is None else task)
    if model not in MODELS:
        raise SettingsError(f"--model {model} is not known; the models are {', '.join(MODELS)}.")
    own = _imported(MODELS[model][0])
    settings: type[TrainingSettings] = own.settings_class
    if task is not None and task_named(task).settings.task != settings.task:
        raise SettingsError(
            f"--model {model} is for the task {settings.task}, but --task is {task}; leave --task "
            f"out, or choose another model."
        )

    def preset(name: str) -> TrainingSettings:
        if name != "default":
            raise SettingsError(
                f"There is no preset '{name}' of the model {model}; the only one is default."
            )
        return settings()

    return Kind(settings, preset, own, task_named(settings.task).split)


def _imported(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(module), name)


def load(folder: str | Path) -> Recommender:
    """The model of a model folder, or of a run folder, which has one."""

    def restored(own: Path, card: dict[str, Any]) -> Recommender:
        name = card["model"]
        places = {place.split(":")[1]: place for each in MODELS.values() for place in each}
        if name not in places:
            raise ModelFileError(
                f"{folder} holds a {name!r}, which is none of {', '.join(places)}; load it with "
                f"the class that wrote it, or upgrade cfuica."
            )
        kind: type[Recommender] = _imported(places[name])
        return kind._restored(own, card)

    return read(folder, restored)
