"""The ranking model as its users meet it: external ids in, external ids out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from cfuica.artifact.artifact import RankingArtifact
from cfuica.data.frames import as_events, as_plain_timed_event, as_table
from cfuica.data.matrix import NO_TIMES, Csr, Timeline
from cfuica.data.table import Interactions, item_metadata_of
from cfuica.data.vocabulary import Vocabulary
from cfuica.metrics.rating_metrics import CalibrationScores
from cfuica.models.recommender import Recommender, TaskName, Unknown
from cfuica.settings import RankingSettings, ranking_preset

if TYPE_CHECKING:
    from cfuica.inference.explain import RankingExplanation
    from cfuica.live.events import Observed, TimedChanges
    from cfuica.live.live_model import LiveRankingModel
    from cfuica.model.network import Network
    from cfuica.model.pairs import SideName
    from cfuica.model.prediction import Ranker
    from cfuica.training.checkpoint import Checkpointer
    from cfuica.training.ranking_task import RankingFitted
    from cfuica.training.trainer import Callback
# The share of the items, those that fewest users did, whose mean bias a new item has.
RAREST = 0.1


class RankingModel(Recommender[RankingSettings, RankingArtifact, "LiveRankingModel"]):
    """Ranks items by what users do, in the order they do it.

    >>> model = RankingModel(settings).fit(table)
    >>> model.recommend("ann")

    An interaction is something that was done, whatever its rating. A fitted model is live: what it
    observes moves the user's state, without training. It is not locked, so threads that share one
    take turns.
    """

    task: ClassVar[TaskName] = "ranking"
    reads_ratings: ClassVar[bool] = False
    checks: ClassVar[Mapping[str, Mapping[str, CalibrationScores]]] = {}
    """None: scores are no distributions that could be believed or not; see `RatingModel.checks`."""

    def __init__(self, settings: RankingSettings | None = None) -> None:
        super().__init__(settings if settings is not None else ranking_preset("default"))
        self.fitted: RankingFitted | None = None

    def fit(
        self,
        table: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        vocabulary: Interactions | Any = None,
        callback: Callback | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> RankingModel:
        """Train on a table (or a dataframe) of interactions; returns self.

        `valid` is a table of what users did next: training is validated on the last interaction of
        each user in it, and then all of it is read as well, never learned from. `vocabulary` is a
        table whose users and items the model's axes span, where that is more than `table` (default)
        has. Where `table` or `valid` has no timestamps, the order of the rows is taken for that of
        time, and `notes` say so. The `checkpointer` writes training down now and then."""
        from cfuica.live.events import merged_timed
        from cfuica.training.ranking_task import NextItems, train_ranking

        table = as_table(table)
        whole = as_table(vocabulary) if vocabulary is not None else table
        later = None if valid is None else as_table(valid)
        users, items = whole.users, whole.item_ids
        has_times = table.has_times and (later is None or later.has_times)

        def in_time(part: Interactions) -> Timeline:
            return part.timeline(users=users, items=items, has_times=has_times)

        timeline, following = in_time(table), None if later is None else in_time(later)
        last = None if following is None else NextItems.last_of(following)
        self.fitted = train_ranking(
            timeline, self.settings, valid=last, callback=callback, checkpointer=checkpointer
        )
        self._live = None
        network = self.fitted.model.to("cpu")
        everything = timeline
        if following is not None:
            timed = _as_timed_events(following, has_times=has_times)
            everything, _ = merged_timed(timeline, timed, int(timeline.times.max(initial=0)))
        self._artifact = RankingArtifact(
            network=network,
            users=users,
            items=items,
            rows=_rows_after_training(network, timeline),
            timeline=everything,
            has_times=has_times,
            item_metadata=item_metadata_of(whole.items, items),
        )
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of how the data was read, one sentence each."""
        return () if self.artifact.has_times else (NO_TIMES,)

    @property
    def users(self) -> Vocabulary:
        """Who is known, in the order of `scorer`."""
        return self.artifact.users

    @property
    def items(self) -> Vocabulary:
        """What is known, in the order of `scorer`."""
        return self.artifact.items

    @property
    def seen(self) -> Csr:
        """A row per user: the items that the model knows they did."""
        timeline = self.artifact.timeline
        return Csr.of_pairs(timeline.users, timeline.items, timeline.n_users)

    def scorer(self, extra: Interactions | None = None) -> Ranker:
        """Scores of all items for all users given what the model knows, and `extra` beside it.

        The model itself stays as it is. What a user did is scored like anything else.
        """
        from cfuica.live.events import merged_timed
        from cfuica.live.ranking_state import RankingState

        stored = self.artifact
        timeline = stored.timeline
        if extra is not None:
            has_times = stored.has_times and extra.has_times
            beside = extra.timeline(users=stored.users, items=stored.items, has_times=has_times)
            newest = int(timeline.times.max(initial=0))
            timeline, _ = merged_timed(
                timeline, _as_timed_events(beside, has_times=has_times), newest
            )
        return RankingState.of(stored.network, timeline, stored.rows).ranker()

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        items: Iterable[Any] | str | int | None = None,
        exclude: Iterable[Any] | str | int | None = None,
        exclude_seen: bool = True,
        where: Mapping[str, Any] | None = None,
        max_per: Mapping[str, int] | None = None,
        min_support: int = 0,
        history: Any = None,
        unknown: Unknown = "serve",
    ) -> Any:
        """The n best items for each user: user, rank, item, score, title.

        The score is the activation (logit) that the user does the item next, but for what is the
        same for all items. `users` is an id, several, or a column or frame of them; each is served
        once, and the result is a frame of the same library. Instead of users a `history` can be
        given, a list or column of item ids, newest last and each once: an anonymous user,
        and the result then has no column user. Of items that the model does not know, nothing is
        read.

        `items` are the candidates (default: all), less those of `exclude`, those that fewer than
        `min_support` users did, and, with `exclude_seen`, those the user did. `where` asks for
        values of columns that are known of the items, {"genres": "Comedy"}; `max_per` is how many
        items with the same value of a column a user gets at most, {"series": 1}. Who has fewer
        than n such items gets fewer.
        """
        from cfuica.inference.scores import RankingScorer

        return self._recommend(
            users,
            history,
            lambda: RankingScorer(self.live.state),
            n=n,
            items=items,
            exclude=exclude,
            exclude_seen=exclude_seen,
            min_support=min_support,
            where=where,
            max_per=max_per,
            unknown=unknown,
        )

    def explain(
        self, user: Any, item: Any, *, history: Any = None, unknown: Unknown = "serve"
    ) -> RankingExplanation:
        """Why an item has the score it has: exact counterfactuals, each interaction left out as if
        it had never happened.

        With a `history` (see `recommend`) and None for the user, of an anonymous user.
        """
        from cfuica.inference.explain import explain_ranking

        index, asked, user_id, item_id = self._asked(user, item, history, unknown)
        live = self.live
        if index is None:
            ad_hoc = self._history(history, unknown).items
        else:
            ad_hoc = live.state.histories.of_user(index).items
        return explain_ranking(
            live.state,
            index,
            ad_hoc,
            asked,
            user_id=user_id,
            item_id=item_id,
            item_ids=live.ids["items"].decode,
            titles=self._titles(),
        )

    def observe(self, events: Any) -> Observed:
        """Take in interactions of known or new users and items; the next ranking knows of them.

        `events` is a table or frame of user, item and, where there are any, rating and timestamp,
        or a list of such rows: (user, item), (user, item, rating), (user, item, rating,
        timestamp). What has no time comes now: after all that is known. Of a pair the latest
        counts. A rating is not read, but where there is a column of them, a row without one (null)
        takes the interaction back. Nothing is changed where a row is refused. What a table tells of
        its items (titles) is taken over where the model knows nothing. Parameters stay as they are:
        new users and items share the row of cold-start users and items until the next training.
        """
        if one := as_plain_timed_event(events):
            user, item, time, is_given = one
            return self.live.observe_one(user, item, time, is_given=is_given)
        table = as_events(events, rated=False)
        return self.live.observe(table.frame, table.items)

    def forget(self, user: Any) -> int:
        """Remove a user: interactions, state, sums, id and own parameters; how many interactions.

        What the parameters of others learned from the user stays in them until the next training,
        which has to be without the user's rows.
        """
        return self.live.forget(self._stored_user(user))

    def _in_use(self, artifact: RankingArtifact) -> LiveRankingModel:
        from cfuica.live.live_model import LiveRankingModel

        return LiveRankingModel(artifact)

    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        return np.zeros(history.height, np.uint8)  # the one that there is: it was done


def _as_timed_events(timeline: Timeline, *, has_times: bool) -> TimedChanges:
    """All of a timeline as something that happens; without times, now and in its order."""
    from cfuica.live.events import TimedChanges

    return TimedChanges(
        timeline.users,
        timeline.items,
        timeline.times if has_times else None,
        np.ones(timeline.n_interactions, np.bool_),
    )


def _rows_after_training(network: Network, timeline: Timeline) -> dict[SideName, np.ndarray]:
    """The table row of each user and item; and the rows of cold-start users and items, written to
    the network.

    Cold-start users and items have the mean of the rows of those who did something, but an item
    that is new has the mean bias of the items that fewest did: its bias is how popular an item is.
    A user without a interaction to train on is a cold-start user or item. An item without one has
    learned that nobody does it, but not what it says of those who will: its row of W is that of
    strangers."""
    import torch

    did = np.flatnonzero(np.diff(timeline.offsets))
    done = np.bincount(timeline.items, minlength=timeline.n_items)
    rows: dict[SideName, np.ndarray] = {
        "users": np.full(timeline.n_users, timeline.n_users, np.int32),
        "items": np.arange(timeline.n_items, dtype=np.int32),
    }
    rows["users"][did] = did
    if "users" in network.sides:
        network.sides["users"].share_the_mean(torch.from_numpy(did))
    if "items" in network.sides:
        side = network.sides["items"]
        ever = np.flatnonzero(done)
        side.share_the_mean(torch.from_numpy(ever))
        rarest = ever[np.argsort(done[ever], kind="stable")][: max(1, round(RAREST * len(ever)))]
        bias = side.decoder_bias_nk.numpy()
        bias[-1] = bias[rarest].mean(0, dtype=np.float64)
        encoder = side.encoder_nkh.numpy()
        encoder[:-1][done == 0] = encoder[-1]
    return rows
