"""The models of the paper, by external ids: `RatingModel` and `RankingModel`.

`RatingModel` trains on ratings, predicts ratings and recommends items. `RankingModel` trains on
interactions in time order and ranks items. What both share, an artifact and its live model, is in
`CoAutoregressive`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np
import polars as pl

from cfuica.artifact import Artifact, artifact_of
from cfuica.data.frames import (
    as_events,
    as_history,
    as_id_column,
    as_pairs,
    as_plain_event,
    as_table,
)
from cfuica.data.item_metadata import canonical_items, item_metadata_of
from cfuica.data.matrix import NO_TIMES, Timeline
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import LabelScale
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.forks import need_polars, new_lock
from cfuica.live.interactions import added
from cfuica.metrics.rating_metrics import CalibrationScores, Evaluation, evaluation
from cfuica.model.network import Ranker
from cfuica.models.recommender import Recommender, Unknown, in_turn, tasks
from cfuica.ops.tables import SIDES, SideName
from cfuica.settings import CommonSettings, RankingSettings, RatingSettings

if TYPE_CHECKING:
    from torch import Tensor

    from cfuica.data.vocabulary import Vocabulary
    from cfuica.inference.explain import BaseExplanation
    from cfuica.inference.recommend import By, ItemScorer
    from cfuica.inference.similar import Similarity
    from cfuica.live.interactions import History, Observed
    from cfuica.live.live_model import LiveModel
    from cfuica.models.ranking_evaluation import RankingEvaluation
    from cfuica.training.checkpoint import Checkpointer
    from cfuica.training.trainer import Callback, Trained

S = TypeVar("S", bound=CommonSettings)
TaskName = Literal["rating", "ranking"]
Checks = Mapping[str, CalibrationScores]


class CoAutoregressive(Recommender, Generic[S]):
    """A model of a network. A fitted model is live: what it observes changes the next prediction
    without training. Threads may share it: its methods take turns, and every answer knows all of
    `sequence` changes and nothing of later ones."""

    task: ClassVar[TaskName]
    cold_users: ClassVar[bool] = True
    live: ClassVar[bool] = True
    explains: ClassVar[bool] = True
    finds_similar: ClassVar[tuple[SideName, ...]] = SIDES

    # Scores of `calibrate` by network; none of a ranking model, whose scores are no distributions.
    checks: Mapping[str, Checks]

    def __init__(
        self, settings: S | None = None, *, loss: Callable[..., Tensor] | None = None
    ) -> None:
        """Of the default preset, unless there are `settings`.

        `loss` stands in for that of the settings: of a rating model the sum of the losses of P
        pairs from their logits (P, K), a tensor, and labels (P), an array; of a ranking model with
        the arguments of `bernoulli_loss` or, for a softmax, of `catalogue_softmax` (both in
        `cfuica.ops.loss`)."""
        self.settings = settings or cast("S", tasks()[self.task].preset("default"))
        self._loss = loss
        self.trained: Trained | None = None  # The training of a model that was fitted here.
        self.checks = {}
        self._artifact: Artifact | None = None
        self._live: LiveModel | None = None
        self._lock = new_lock()

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
        """Train on a table (or a dataframe) of interactions; returns self.

        `valid` is a table to validate on, for a ranking model one of later interactions: it is
        validated on the last one of each user. The fitted model is conditioned on them, but never
        learns from them; biases that it started from (`start_from_biases`) are of both.
        `vocabulary` is a table with all users, items and rating values that the model is to know
        (default: `table`). The `checkpointer` saves the state of training. `progress` shows a bar
        on standard error; by default (None) it is shown on a terminal, where there is no
        `callback`.

        For a rating model, interactions without a rating add their ids to the vocabulary, and are
        not learned from. For a ranking model, where `table` or `valid` has no timestamps, the order
        of the rows is taken for the time order, and `notes` say so."""
        from cfuica.training.display import CallbackList, display

        need_polars("Training")
        events = not self.reads_ratings
        table = as_table(interactions, events=events)
        whole = table if vocabulary is None else as_table(vocabulary, events=events)
        later = None if valid is None else as_table(valid, events=events)
        with display(progress, reported=callback is not None) as bar:
            callbacks = CallbackList([bar] if callback is None else [bar, callback])
            options = {"loss": self._loss, "callback": callbacks, "checkpointer": checkpointer}
            learned = self._train(table, later, whole, **options)
        artifact = Artifact(
            users=whole.users,
            items=whole.item_ids,
            item_metadata=item_metadata_of(whole.items, whole.item_ids),
            **learned,
        )
        with self._lock:
            self._live, self._artifact = None, artifact
        return self

    @abstractmethod
    def _train(
        self, table: Interactions, valid: Interactions | None, whole: Interactions, **options: Any
    ) -> dict[str, Any]:
        """What the artifact has of the task, after training on `table` with the ids of `whole`."""

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """A model that is already fitted, as a model folder holds it."""
        model = cls(cast("S", artifact.settings))
        model._artifact = artifact
        return model

    @classmethod
    def _restored(cls, folder: Path, card: dict[str, Any]) -> Self:
        return cls.from_artifact(artifact_of(folder, card))

    @in_turn
    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        return self.snapshot().save(folder)

    @property
    def artifact(self) -> Artifact:
        """The model as it was fitted or loaded; an error before `fit` or `load`."""
        if self._artifact is None:
            raise CfuicaError(
                "This model is not fitted yet: call fit(table) or cfuica.load(folder)."
            )
        return self._artifact

    @property
    def parameter_counts(self) -> dict[str, int]:
        """How many parameters each network has."""
        return {name: one.parameter_count() for name, one in self.artifact.networks.items()}

    @in_turn
    def snapshot(self) -> Artifact:
        """The model as it is now, with what it has observed since it was fitted or loaded."""
        return self.artifact if self._live is None else self._live.snapshot()

    @property
    def live_model(self) -> LiveModel:
        """The model in use; made on first use. It is not locked itself."""
        if (live := self._live) is not None:
            return live
        with self._lock:
            if self._live is None:
                from cfuica.live.live_model import LiveModel

                self._live = LiveModel(self.artifact)
                self._artifact = self._live.artifact
            return self._live

    @property
    def catalogue(self) -> LiveModel:
        """Users, items and item metadata as they are now; an error before `fit` or `load`."""
        return self.live_model

    @property
    def users(self) -> Vocabulary:
        """The user ids that the model was fitted or loaded with, sorted."""
        return self.artifact.users

    @property
    def items(self) -> Vocabulary:
        """The item ids that the model was fitted or loaded with, sorted."""
        return self.artifact.items

    @in_turn
    def explain(
        self, user: Any, item: Any, *, history: Any = None, unknown: Unknown = "serve"
    ) -> BaseExplanation:
        """Explain the expected rating or the score of an item by exact counterfactuals: what it
        would be without each interaction of the user, and without those of other users.

        For an anonymous user, give a `history` (see `recommend`) and None for the user.
        """
        from cfuica.inference.explain import explain

        if (user is None) == (history is None):
            raise SettingsError("An explanation is of a user or of a history: give one of them.")
        ids = self.live_model.ids
        item_index = self._index("items", item, unknown)
        target: int | History
        if user is None:
            user_id, target = None, self._history(history, unknown)
        else:
            user_id = ids["users"].shown(as_id_column("user", user))[0]
            target = self._index("users", user, unknown)
        item_id = ids["items"].shown(as_id_column("item", item))[0]
        return explain(self.live_model, target, item_index, user_id=user_id, item_id=item_id)

    @in_turn
    def update_items(self, items: Any, *, source: str = "the items frame") -> str | None:
        """Add item metadata, or new values of it: a frame of `item` and any other columns.

        Where it has a value, that takes the place of the model's. Items that the model does not
        know are left out. Returns a note where not all items of the model have metadata in it.
        """
        return self.live_model.update_items(canonical_items(items), source)

    @in_turn
    def forget(self, user: Any) -> int:
        """Remove a user: interactions, state, sums, id and own parameters; returns how many
        interactions were removed.

        What other parameters learned from the user stays in them until the next training, which has
        to be without the user's rows.
        """
        ids = self.live_model.ids["users"]
        index = self._index("users", user, "serve")
        if index == ids.unknown_index:
            raise DataError(
                f"The user {user!r} is unknown to this model, so there is nothing to forget: it "
                f"knows {ids.size} users{ids.example}."
            )
        return self.live_model.forget("users", index)

    def remove(self, pairs: Any) -> Observed:
        """Remove interactions: the next prediction is as if they had never been observed.

        `pairs` is a table or frame of user and item, or a list of (user, item). A pair without an
        interaction changes nothing. Ids stay known: to remove those of a user, `forget` them.
        """
        given = as_pairs(pairs).frame
        columns = [
            given["user"],
            given["item"],
            pl.Series("removed", [True] * given.height, pl.Boolean),
        ]
        return self._observe(Interactions(pl.DataFrame(columns)).deduplicated()[0])

    @in_turn
    def _observe(self, events: Interactions) -> Observed:
        return self.live_model.observe(events.frame, events.items)

    def _scorer(self, by: By | None) -> ItemScorer:
        from cfuica.inference.recommend import LiveScorer

        return LiveScorer(self.live_model, by)

    def _history(self, history: Any, unknown: Unknown) -> History:
        from cfuica.live.interactions import History

        frame = as_history(history, rated=self.reads_ratings)
        index = self._indices("items", frame["item"], unknown)
        labels, scale = np.zeros(frame.height, np.uint8), self.artifact.scale
        if scale is not None:
            labels = scale.encode(
                frame["rating"], lambda row: f"of the item {frame['item'][row]!r}"
            )
        is_stored = index != self.live_model.ids["items"].unknown_index
        return History(index[is_stored], labels[is_stored])

    def _conditioned_on(self, extra: Interactions) -> Self:
        copy = self.from_artifact(self.snapshot())
        if copy.users.size != self.users.size or copy.items.size != self.items.size:
            raise CfuicaError(
                "This model has other users or items than when it was loaded, so its scores have "
                "no order of theirs; save it and load it again."
            )
        copy.observe(extra)
        return copy

    def _similarity(self, axis: SideName) -> Similarity:
        from cfuica.inference.similar import Similarity

        return Similarity.of_state(self.live_model.state, axis)


class RatingModel(CoAutoregressive[RatingSettings]):
    """Predicts ratings and recommends items.

    >>> model = RatingModel(rating_preset("default")).fit(table)
    >>> model.predict(pairs)
    """

    task: ClassVar[TaskName] = "rating"
    predicts_ratings: ClassVar[bool] = True
    predicts_distributions: ClassVar[bool] = True
    ranks_by: ClassVar[tuple[str, ...]] = ("expected", "lower", "blend")
    least_support: ClassVar[int] = 1
    reads_ratings: ClassVar[bool] = True

    def _train(
        self, table: Interactions, valid: Interactions | None, whole: Interactions, **options: Any
    ) -> dict[str, Any]:
        from cfuica.training.budget import plan
        from cfuica.training.clusters import centroids
        from cfuica.training.rating_task import (
            calibrate,
            train,
            trained_networks,
            validation_sample,
        )
        from cfuica.training.starting_biases import update_biases

        scale = table.label_scale(vocabulary=whole, bins=self.settings.bins)
        reading: dict[str, Any] = {"users": whole.users, "items": whole.item_ids, "scale": scale}
        matrix = table.matrix(**reading)
        rated = None if valid is None else valid.rated_pairs(**reading)
        values_k = scale.values_array()
        settings = self.settings.settled(matrix.size)
        if rated is not None:
            matrix.check_apart(rated)
            rated = validation_sample(rated, matrix, options["callback"], settings.seed)
        settings, shared = plan(
            matrix, values_k, settings, rated, options["callback"], options["checkpointer"]
        )
        self.trained = train(matrix, settings, values_k, valid=rated, shared=shared, **options)
        networks, rows = trained_networks(self.trained, matrix, shared, take=True)
        self.trained = replace(self.trained, weights=[])  # they are the networks' now
        calibrations, self.checks = calibrate(networks, rows, matrix, rated, values_k)
        everything = matrix if valid is None else matrix.merged(valid.matrix(**reading))
        if settings.start_from_biases and rated is not None:
            update_biases(networks, matrix, everything, values_k)
        return {
            "settings": settings,
            "networks": networks,
            "calibrations": calibrations,
            "rows": rows,
            "scale": scale,
            "interactions": everything,
            # A cold-start network serves new users and items, where there is one.
            "centroids": centroids(networks["warm"], everything) if len(networks) == 1 else {},
        }

    @property
    def scale(self) -> LabelScale:
        """The rating scale."""
        scale = self.artifact.scale
        assert scale is not None
        return scale

    @in_turn
    def predict_proba(self, pairs: Interactions | Any, *, unknown: Unknown = "serve") -> np.ndarray:
        """The predicted distribution of each pair, (P, K) float32, labels ascending, calibrated.

        An observed pair is predicted without its own interaction.
        """
        return self.live_model.distributions(*self._pair_indices(as_pairs(pairs), unknown))

    def evaluate(self, table: Interactions | Any, *, unknown: Unknown = "serve") -> Evaluation:
        """RMSE, MAE, NLL and calibration on a table of ratings.

        Interactions without a rating do not count.
        """
        rated, scale = as_table(table).rated(), self.scale
        labels_p = rated.labels(scale)
        return evaluation(
            self.predict_proba(rated, unknown=unknown),
            labels_p,
            scale.values_array(),
            rated.frame["rating"].to_numpy(),
        )

    def observe(self, events: Any) -> Observed:
        """Add interactions of known or new users and items; the next prediction is conditioned on
        them.

        `events` is a table or frame of user, item, rating, or a list of such triples; with a
        timestamp the latest of a pair counts, else the last one. An observed pair gets its new
        rating; where there is a column `removed`, true in it removes the interaction (see also
        `remove`). Nothing is changed where a row is refused, such as one without a rating. Item
        metadata of a table takes the place of the model's. Parameters stay as they are: new users
        and items share the cold-start row until the next training."""
        if one := as_plain_event(events):
            user, item, rating, _ = one
            with self._lock:
                return self.live_model.observe_one(user, item, rating)
        return self._observe(as_events(events))

    def _predict(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        return self.live_model.expected(users_p, items_p)


class RankingModel(CoAutoregressive[RankingSettings]):
    """Ranks items by the interactions of users in time order.

    >>> model = RankingModel(settings).fit(table)
    >>> model.recommend("ann")

    Interactions are implicit feedback: ratings are not read.
    """

    task: ClassVar[TaskName] = "ranking"

    def _train(
        self, table: Interactions, valid: Interactions | None, whole: Interactions, **options: Any
    ) -> dict[str, Any]:
        from cfuica.training.ranking_task import NextItems, train_ranking, trained_network

        has_times = table.has_times and (valid is None or valid.has_times)
        reading: dict[str, Any] = {
            "users": whole.users,
            "items": whole.item_ids,
            "has_times": has_times,
            "types": table.types,
        }
        timeline = everything = table.timeline(**reading)
        last = None
        if valid is not None:
            following = valid.timeline(**reading)
            last = NextItems.last_of(following)
            everything = added(timeline, following, has_times=has_times)
        settings = self.settings.settled(timeline.size)
        self.trained = train_ranking(timeline, settings, valid=last, **options)
        network, rows = trained_network(self.trained, timeline)
        return {
            "settings": settings,
            "networks": {"warm": network},
            "rows": rows,
            "interactions": everything,
            "has_times": has_times,
            "types": table.types,
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the data was read, one sentence each."""
        return () if self.artifact.has_times else (NO_TIMES,)

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
    def types(self) -> tuple[str, ...]:
        """The types of events, weakest first; none where the data had none."""
        return self.artifact.types

    def _list_scorer(self, by: By | None) -> Ranker:
        self._scorer_by(by)  # refused: there is one score
        return self.live_model.state.ranker()

    @in_turn
    def score_vectors(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Vectors of all users and of all items that are not retired, whose inner product is the
        score of an unseen item: (user, vector), (item, vector).

        The last number of an item is its bias, and that of a user is 1.
        """
        ranker, ids = self.live_model.state.ranker(), self.live_model.ids
        users = ids["users"].present()
        items = np.setdiff1d(ids["items"].present(), self.live_model.retired, assume_unique=True)
        ones_n1 = np.ones((len(users), 1), np.float32)
        users_nh = np.hstack((ranker.users_nh[users], ones_n1))
        items_mh = np.hstack((ranker.items_mh[items], ranker.bias_m[items, None]))
        return (
            pl.DataFrame({"user": ids["users"].decode(users), "vector": users_nh}),
            pl.DataFrame({"item": ids["items"].decode(items), "vector": items_mh}),
        )

    @in_turn
    def scorer(self, extra: Interactions | None = None, *, by: By | None = None) -> Ranker:
        """Scores of all items for all users, both in the order of `users` and `items`, conditioned
        on the model's interactions and `extra`.

        The model itself stays as it is. Seen items are scored like all others.
        """
        self._scorer_by(by)  # refused: there is one score
        state, n_users, n_items = self.live_model.state, self.users.size, self.items.size
        if extra is not None:
            has_times = self.artifact.has_times and extra.has_times
            more = extra.timeline(
                users=self.users,
                items=self.items,
                has_times=has_times,
                types=self.artifact.types,
            )
            stored = state.collected()
            assert isinstance(stored, Timeline)
            rows = {axis: state.rows(axis) for axis in SIDES}
            state = state.anew(added(stored, more, has_times=has_times), rows)
        ranker = state.ranker()
        # New users and items of a live model come after those of the vocabularies.
        return Ranker(ranker.users_nh[:n_users], ranker.items_mh[:n_items], ranker.bias_m[:n_items])

    def observe(self, events: Any) -> Observed:
        """Add interactions of known or new users and items; the next ranking is conditioned on
        them.

        `events` is a table or frame of user, item and, where there are any, rating and timestamp,
        or a list of such rows: (user, item), (user, item, rating), (user, item, rating, timestamp).
        An event without a time comes after all others. Of a pair the latest counts. Ratings are not
        read: an event without one is an interaction too. Where there is a column `removed`, true in
        it removes the interaction (see also `remove`). With a column `type`, where the model knows
        types, the strongest of a pair counts; an event without a type is of the strongest. A list
        may hold dictionaries of these columns. Nothing is changed where a row is refused.
        Item metadata of a table takes the place of the model's. Parameters stay as they are: new
        users and items share the cold-start row until the next training.
        """
        if one := as_plain_event(events, rated=False):
            user, item, _, time = one
            with self._lock:
                return self.live_model.observe_one(user, item, time=time)
        return self._observe(as_events(events, rated=False, types=self.types))
