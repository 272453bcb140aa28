"""The rating model as its users meet it: external ids in, external ids out.

What corrects a trained model's distributions, and how far they can be believed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from cfuica.artifact.artifact import Knowledge, Predictor
from cfuica.data.frames import as_events, as_pairs, as_plain_event, as_table, like
from cfuica.data.matrix import BehaviourMatrix, RatedPairs
from cfuica.data.table import BehaviourTable, about_items
from cfuica.inference.scores import DEFAULT_BY, By
from cfuica.live.rating_state import LiveState
from cfuica.metrics.rating_metrics import (
    CalibrationScores,
    Evaluation,
    calibration_scores,
    evaluation,
)
from cfuica.model.calibration import Calibration
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import SideName
from cfuica.models.recommender import CommonModel, Task, Unknown
from cfuica.settings import Settings, preset
from cfuica.training.rating_task import Fitted

if TYPE_CHECKING:
    from cfuica.inference.explain import Explanation
    from cfuica.live.events import Observed
    from cfuica.live.live_model import LiveModel
    from cfuica.training.checkpoint import Keeper
    from cfuica.training.trainer import Listener


@dataclass(frozen=True)
class Corrected:
    """A network with its correction."""

    predictor: Predictor
    checks: Mapping[str, CalibrationScores] = field(default_factory=dict)
    """Of the validation part, "before" and "after" the correction or, where there is none,
    "uncorrected"; empty where there was nothing to validate on."""


def corrected_networks(
    fitted: Fitted, matrix: BehaviourMatrix, valid: RatedPairs | None, values_k: np.ndarray
) -> dict[str, Corrected]:
    """The networks by name, "known" and perhaps "strangers".

    Their distributions are corrected by what they predict for the validation part from the training
    part: each for pairs such as it answers about, so that the strangers' network knows none of the
    users.
    """

    def corrected(
        network: CoAutoregressive, rows: dict[SideName, np.ndarray], answers_p: np.ndarray
    ) -> Corrected:
        if valid is None or not answers_p.any():
            return Corrected(Predictor(network))
        state = LiveState.of(network, matrix, rows)
        activation_pk = state.pair_activations(valid.users_p[answers_p], valid.items_p[answers_p])
        labels_p, ratings_p = valid.labels_p[answers_p], valid.ratings_p[answers_p]
        none, found = Calibration(), Calibration.fit(activation_pk, labels_p, values_k)
        states = {"uncorrected": none} if found == none else {"before": none, "after": found}
        checks = {
            name: calibration_scores(
                one.distributions(activation_pk, values_k), labels_p, values_k, ratings_p
            )
            for name, one in states.items()
        }
        return Corrected(Predictor(network, found), checks)

    rows = fitted.rows
    every_p = np.ones(0 if valid is None else valid.n, np.bool_)
    if fitted.strangers is None:
        return {"known": corrected(fitted.model, rows, every_p)}
    known_p = every_p.copy()
    if valid is not None:
        asked: dict[SideName, np.ndarray] = {"users": valid.users_p, "items": valid.items_p}
        for axis, side in fitted.model.sides.items():
            known_p &= rows[axis][asked[axis]] != side.shared_row
    nobody = {**rows, "users": np.full_like(rows["users"], len(rows["users"]))}
    return {
        "known": corrected(fitted.model, rows, known_p),
        "strangers": corrected(fitted.strangers, nobody, every_p),
    }


class RatingModel(CommonModel[Settings, Knowledge, "LiveModel"]):
    """Predicts ratings and recommends items.

    >>> model = RatingModel(preset("default")).fit(table)
    >>> model.predict(pairs)

    A fitted model is live: what it observes changes the next prediction, without training. It is
    not locked, so threads that share one take turns.
    """

    task: ClassVar[Task] = "rating"
    reads_ratings: ClassVar[bool] = True

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings if settings is not None else preset("default"))
        self.fitted: Fitted | None = None
        self.checks: dict[str, Mapping[str, CalibrationScores]] = {}
        """How far the distributions of the validation part could be believed, by network: before
        and after they were corrected; see `Corrected`."""

    def fit(
        self,
        table: BehaviourTable | Any,
        *,
        valid: BehaviourTable | Any = None,
        spans: BehaviourTable | Any = None,
        listener: Listener | None = None,
        keeper: Keeper | None = None,
    ) -> RatingModel:
        """Train on a table (or a dataframe) of ratings; returns self.

        `valid` is a table to validate on; after training its behaviours are read as well when
        predicting, never learned from. `spans` is a table whose users, items and rating values
        the model's axes span, where that is more than `table` (default) has. Behaviours without a
        rating lend the axes their ids, and are not learned from. The `keeper` writes training down
        now and then.
        """
        # torch and numba take seconds to import
        from cfuica.training.rating_task import train

        table = as_table(table)
        whole = as_table(spans) if spans is not None else table
        users, items = whole.users, whole.item_ids
        scale = table.label_scale(spans=whole, bins=self.settings.bins)
        matrix = table.matrix(users=users, items=items, scale=scale)
        rated, behaviours = None, matrix
        if valid is not None:
            valid = as_table(valid)
            rated = valid.rated_pairs(users=users, items=items, scale=scale)
            behaviours = matrix.merged(valid.matrix(users=users, items=items, scale=scale))
        self.fitted = train(
            matrix,
            self.settings,
            scale.values_array(),
            valid=rated,
            listener=listener,
            keeper=keeper,
        )
        self._live = None
        networks = corrected_networks(self.fitted, matrix, rated, scale.values_array())
        self.checks = {name: network.checks for name, network in networks.items()}
        self._knowledge = Knowledge(
            known=networks["known"].predictor,
            strangers=networks["strangers"].predictor if "strangers" in networks else None,
            users=users,
            items=items,
            scale=scale,
            behaviours=behaviours,
            rows=self.fitted.rows,
            item_table=about_items(whole.items, items),
        )
        return self

    def predict_proba(
        self, pairs: BehaviourTable | Any, *, unknown: Unknown = "serve"
    ) -> np.ndarray:
        """The predicted distribution of each pair, (P, K) float32, labels ascending, calibrated.

        A pair that is itself among the model's behaviours is left out of what it is predicted
        from.
        """
        return self.live.distributions(*self._pair_indices(as_pairs(pairs), unknown))

    def predict(self, pairs: BehaviourTable | Any, *, unknown: Unknown = "serve") -> Any:
        """The expected rating of each pair: user, item, prediction, in the order given.

        `pairs` is a table or frame of user and item, or a list of (user, item); what comes back is
        a frame of the same library.
        """
        table = as_pairs(pairs)
        expected = self.live.expected(*self._pair_indices(table, unknown))
        frame = table.frame.select("user", "item").with_columns(prediction=pl.Series(expected))
        return like(pairs, frame, same_rows=True)

    def evaluate(self, table: BehaviourTable | Any, *, unknown: Unknown = "serve") -> Evaluation:
        """RMSE, MAE, NLL and calibration on a table of ratings.

        Behaviours without a rating do not count.
        """
        rated, scale = as_table(table).rated(), self.live.scale
        labels_p = rated.labels(scale)
        return evaluation(
            self.predict_proba(rated, unknown=unknown),
            labels_p,
            scale.values_array(),
            rated.frame["rating"].to_numpy(),
        )

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        history: Any = None,
        items: Iterable[Any] | str | int | None = None,
        exclude: Iterable[Any] | str | int | None = None,
        exclude_seen: bool = True,
        by: By = DEFAULT_BY,
        min_support: int = 1,
        where: Mapping[str, Any] | None = None,
        max_per: Mapping[str, int] | None = None,
        unknown: Unknown = "serve",
    ) -> Any:
        """The n best items for each user: user, rank, item, score, title.

        `users` is an id, several, or a column or frame of them; each is served once, and the result
        is a frame of the same library. Instead of users a `history` can be given, a frame of item
        and rating or a list of such pairs, each item once: somebody who is not stored, and the
        result then has no column user. Of items that the model does not know, nothing is read.

        `by` is what items are ranked by: "expected" (rating), "lower" (the mean of the worst tenth
        of the predicted distribution) or "blend" (the expected rating and how many rated the
        item); the score is that. `items` are the candidates (default: all), less those of
        `exclude`, those that fewer than `min_support` users rated, and, with `exclude_seen`, those
        the user rated. `where` asks for values of columns that are known of the items,
        {"genres": "Comedy"}; `max_per` is how many items with the same value of a column a user
        gets at most, {"series": 1}. Who has fewer than n such items gets fewer.
        """
        from cfuica.inference.scores import RatingScorer

        return self._recommend(
            users,
            history,
            lambda: RatingScorer.of(self.live, by),
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
    ) -> Explanation:
        """Why the expected rating of an item is what it is: exact counterfactuals.

        With a `history` (see `recommend`) and None for the user, of somebody who is not stored.
        """
        from cfuica.inference.explain import explain

        index, asked, user_id, item_id = self._asked(user, item, history, unknown)
        live = self.live
        if index is not None:
            answerer = live.answerer(index, asked)
            person = answerer.state.person(index)
        else:
            told = self._history(history, unknown)
            answerer = live.answerer(live.ids["users"].nobody, asked)
            person = answerer.state.visitor(told.items, told.labels)
        return explain(
            answerer.state,
            person,
            asked,
            user_id=user_id,
            item_id=item_id,
            item_ids=live.ids["items"].decode,
            titles=self._titles(),
            scale=live.scale,
            distributions=answerer.calibration.distributions,
        )

    def observe(self, events: Any) -> Observed:
        """Take in behaviours of known or new users and items; the next prediction knows of them.

        `events` is a table or frame of user, item, rating, or a list of such triples; with a
        timestamp the latest of a pair counts, else the last one. A pair that is known gets its new
        rating; a row without a rating (None, null, pandas.NA; NaN is refused) takes the pair's
        back. Nothing is changed where a row is refused. What a table tells of its items (titles) is
        taken over where the model knows nothing. Parameters stay as they are: newcomers share the
        row of strangers until the next training.
        """
        if one := as_plain_event(events):
            return self.live.observe_one(*one)
        table = as_events(events)
        return self.live.observe(table.frame, table.items)

    def forget(self, user: Any) -> int:
        """Remove a user: behaviours, sums, id and own parameters; how many behaviours that were.

        What the parameters of others learned from the user stays in them until the next training,
        which has to be without the user's rows.
        """
        return self.live.forget("users", self._known_user(user))

    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        return self.live.scale.encode(
            history["rating"], lambda row: f"of the item {history['item'][row]!r}"
        )

    def _pair_indices(
        self, pairs: BehaviourTable, unknown: Unknown
    ) -> tuple[np.ndarray, np.ndarray]:
        return (
            self._indices("users", pairs.frame["user"], unknown),
            self._indices("items", pairs.frame["item"], unknown),
        )

    def _in_use(self, knowledge: Knowledge) -> LiveModel:
        from cfuica.live.live_model import LiveModel

        return LiveModel(knowledge)
