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
from cfuica.live.interactions import added, columns_of
from cfuica.metrics.rating_metrics import CalibrationScores
from cfuica.model.network import Ranker
from cfuica.model.pairs import SIDES
from cfuica.models.live_recommender import LiveRecommender, TaskName
from cfuica.settings import RankingSettings, ranking_preset

if TYPE_CHECKING:
    from torch import Tensor

    from cfuica.live.interactions import Observed
    from cfuica.training.checkpoint import Checkpointer
    from cfuica.training.trainer import Callback, Trained


class RankingModel(LiveRecommender[RankingSettings]):
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
            everything = added(timeline, following, has_times=has_times)
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
        n_users, n_items = self.users.size, self.items.size
        users, items, _ = columns_of(self.live_model.state.collected())
        own = (users < n_users) & (items < n_items)
        return Csr.of_pairs(users[own], items[own], n_users)

    def scorer(self, extra: Interactions | None = None) -> Ranker:
        """Scores of all items for all users, both in the order of `users` and `items`, conditioned
        on the model's interactions and `extra`.

        The model itself stays as it is. Seen items are scored like all others.
        """
        state, n_users, n_items = self.live_model.state, self.users.size, self.items.size
        if extra is not None:
            has_times = self.artifact.has_times and extra.has_times
            more = extra.timeline(users=self.users, items=self.items, has_times=has_times)
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
        An event without a time comes after all others. Of a pair the latest counts. The value of a
        rating is not read, but where there is a column of ratings, a row without one (null) removes
        the interaction. Nothing is changed where a row is refused. Item metadata of a table
        (titles) are added where the model has none. Parameters stay as they are: new users and
        items share the cold-start row until the next training.
        """
        if one := as_plain_timed_event(events):
            user, item, time, is_given = one
            return self.live_model.observe_one(user, item, time=time, given=is_given)
        table = as_events(events, rated=False)
        return self.live_model.observe(table.frame, table.items)

    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        return np.zeros(history.height, np.uint8)  # the only label
