"""`RankingModel`: trains on interactions in time order and ranks items, by external ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl

from cfuica.artifact import Artifact
from cfuica.data.frames import as_events, as_plain_timed_event, as_table
from cfuica.data.matrix import NO_TIMES, Csr, Timeline
from cfuica.data.table import Interactions, item_metadata_of
from cfuica.metrics.rating_metrics import CalibrationScores
from cfuica.models.live_recommender import LiveRecommender, TaskName
from cfuica.models.recommender import Unknown
from cfuica.settings import RankingSettings, ranking_preset

if TYPE_CHECKING:
    from torch import Tensor

    from cfuica.inference.explain import RankingExplanation
    from cfuica.inference.recommend import ItemScorer
    from cfuica.inference.scores import By
    from cfuica.live.events import Observed, TimedChanges
    from cfuica.live.live_model import LiveRankingModel
    from cfuica.model.network import Network
    from cfuica.model.pairs import SideName
    from cfuica.model.prediction import Ranker
    from cfuica.training.checkpoint import Checkpointer
    from cfuica.training.trainer import Callback, Trained


class RankingModel(LiveRecommender[RankingSettings, RankingArtifact, "LiveRankingModel"]):
    """Ranks items by the interactions of users in time order.

    >>> model = RankingModel(settings).fit(table)
    >>> model.recommend("ann")

    Interactions are implicit feedback: ratings are not read. A fitted model is live: what it
    observes moves the user's state without training. It is not locked: threads that share one must
    take turns.
    """

    task: ClassVar[TaskName] = "ranking"
    # None: scores are no distributions, so they have no calibration; see `RatingModel.checks`.
    checks: ClassVar[Mapping[str, Mapping[str, CalibrationScores]]] = {}

    def __init__(
        self,
        settings: RankingSettings | None = None,
        *,
        loss: Callable[..., Tensor] | None = None,
    ) -> None:
        """`loss` stands in for that of the settings, with the arguments of `bernoulli_loss` or,
        for a softmax, of `catalogue_softmax` (both in `cfuica.ops.loss`)."""
        super().__init__(settings if settings is not None else ranking_preset("default"))
        self._loss = loss
        self.trained: Trained | None = None  # The training of a model that was fitted here.

    def fit(
        self,
        interactions: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        vocabulary: Interactions | Any = None,
        callback: Callback | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> Self:
        """Train on a table (or a dataframe) of interactions; returns self.

        `valid` is a table of later interactions: training is validated on the last one of each
        user. The fitted model is conditioned on them, but never learns from them. `vocabulary` is a
        table with all users and items that the model is to know (default: `table`). Where `table`
        or `valid` has no timestamps, the order of the rows is taken for the time order, and `notes`
        say so. The `checkpointer` saves the state of training."""
        from cfuica.live.events import merged_timed
        from cfuica.training.ranking_task import NextItems, train_ranking, trained_network

        table = as_table(interactions)
        whole = as_table(vocabulary) if vocabulary is not None else table
        later = None if valid is None else as_table(valid)
        users, items = whole.users, whole.item_ids
        has_times = table.has_times and (later is None or later.has_times)

        def in_time(interactions: Interactions) -> Timeline:
            return interactions.timeline(users=users, items=items, has_times=has_times)

        timeline, following = in_time(table), None if later is None else in_time(later)
        last = None if following is None else NextItems.last_of(following)
        self.trained = train_ranking(
            timeline,
            self.settings,
            valid=last,
            loss=self._loss,
            callback=callback,
            checkpointer=checkpointer,
        )
        self._live = None
        network, rows = trained_network(self.trained, timeline)
        everything = timeline
        if following is not None:
            timed = _as_timed_events(following, has_times=has_times)
            everything, _ = merged_timed(timeline, timed, int(timeline.times.max(initial=0)))
        self._artifact = Artifact(
            settings=self.settings,
            networks={"warm": network},
            users=users,
            items=items,
            rows=rows,
            interactions=everything,
            has_times=has_times,
            item_metadata=item_metadata_of(whole.items, items),
        )
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the data was read, one sentence each."""
        return () if self.artifact.has_times else (NO_TIMES,)

    @property
    def seen(self) -> Csr:
        """A row per user: the items of the interactions that the model is conditioned on."""
        timeline = self.artifact.timeline
        return Csr.of_pairs(timeline.users, timeline.items, timeline.n_users)

    def scorer(self, extra: Interactions | None = None) -> Ranker:
        """Scores of all items for all users, conditioned on the model's interactions and `extra`.

        The model itself stays as it is. Seen items are scored like all others.
        """
        from cfuica.live.events import merged_timed
        from cfuica.live.ranking_state import RankingState

        artifact = self.artifact
        timeline = artifact.timeline
        if extra is not None:
            has_times = artifact.has_times and extra.has_times
            more = extra.timeline(users=artifact.users, items=artifact.items, has_times=has_times)
            newest = int(timeline.times.max(initial=0))
            timeline, _ = merged_timed(
                timeline, _as_timed_events(more, has_times=has_times), newest
            )
        return RankingState.of(artifact.network, timeline, artifact.rows).ranker()

    def _scorer(self, by: By | None) -> ItemScorer:
        from cfuica.inference.scores import RankingScorer

        return RankingScorer(self.live_model.state)

    def explain(
        self, user: Any, item: Any, *, history: Any = None, unknown: Unknown = "serve"
    ) -> RankingExplanation:
        """Explain the score of an item by exact counterfactuals: its score without each interaction
        of the user, and without those of other users.

        For an anonymous user, give a `history` (see `recommend`) and None for the user.
        """
        from cfuica.inference.explain import explain_ranking

        user_index, item_index, user_id, item_id = self._pair(user, item, history, unknown)
        live = self.live_model
        if user_index is None:
            items = self._history(history, unknown).items
        else:
            items = live.state.histories.of_user(user_index).items
        return explain_ranking(
            live.state,
            user_index,
            items,
            item_index,
            user_id=user_id,
            item_id=item_id,
            item_ids=live.ids["items"].decode,
            titles=live.titles,
        )

    def observe(self, events: Any) -> Observed:
        """Add interactions of known or new users and items; the next ranking is conditioned on
        them.

        `events` is a table or frame of user, item and, where there are any, rating and timestamp,
        or a list of such rows: (user, item), (user, item, rating), (user, item, rating, timestamp).
        An event without a time comes after all others. Of a pair the latest counts. The value of a
        rating is not read, but where there is a column of ratings, a row without one (null) removes
        the interaction. Nothing is changed where a row is refused. Item metadata of a table
        (titles) are added where the model has none. Parameters stay as they are: new users and
        items share the cold-start row until the next training.
        """
        if one := as_plain_timed_event(events):
            user, item, time, is_given = one
            return self.live_model.observe_one(user, item, time, is_given=is_given)
        table = as_events(events, rated=False)
        return self.live_model.observe(table.frame, table.items)

    def forget(self, user: Any) -> int:
        """Remove a user: interactions, state, sums, id and own parameters; returns how many
        interactions were removed.

        What other parameters learned from the user stays in them until the next training, which has
        to be without the user's rows.
        """
        return self.live_model.forget(self._stored_user(user))

    def _in_use(self, artifact: RankingArtifact) -> LiveRankingModel:
        from cfuica.live.live_model import LiveRankingModel

        return LiveRankingModel(artifact)

    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        return np.zeros(history.height, np.uint8)  # the only label


def _as_timed_events(timeline: Timeline, *, has_times: bool) -> TimedChanges:
    """All of a timeline as events; without times, now and in its order."""
    from cfuica.live.events import TimedChanges

    return TimedChanges(
        timeline.users,
        timeline.items,
        timeline.times if has_times else None,
        np.ones(timeline.n_interactions, np.bool_),
    )
