"""The rating model as its users meet it: external ids in, external ids out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from cfuica.data.about import by_index
from cfuica.data.table import BehaviourTable
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.evaluation.calibration import CalibrationScores
from cfuica.evaluation.evaluation import Evaluation, evaluation
from cfuica.frames import like
from cfuica.given import as_events, as_history, as_id_column, as_pairs, as_plain_event, as_table
from cfuica.knowledge import Knowledge
from cfuica.presets import preset
from cfuica.recommending.scores import DEFAULT_BY, By
from cfuica.settings import Settings

if TYPE_CHECKING:
    from cfuica.explaining.explanation import Explanation
    from cfuica.learning.progress import Listener
    from cfuica.learning.rating import Fitted
    from cfuica.learning.snapshot import Keeper
    from cfuica.live.events import Observed
    from cfuica.live.model import LiveModel
    from cfuica.live.person import History
    from cfuica.model.pairs import SideName

Unknown = Literal["serve", "error"]
"""What becomes of users and items that the model does not know: they are served as strangers,
who share one row of the parameters, or refused."""


class RatingModel:
    """Predicts ratings and recommends items.

    >>> model = RatingModel(preset("default")).fit(table)
    >>> model.predict(pairs)

    A fitted model is live: what it observes changes the next prediction, without training. It is
    not locked, so threads that share one take turns.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else preset("default")
        self._knowledge: Knowledge | None = None
        self._live: LiveModel | None = None
        self.fitted: Fitted | None = None
        self.checks: dict[str, Mapping[str, CalibrationScores]] = {}
        """How far the distributions of the validation part could be believed, by network: before
        and after they were corrected; see `Corrected`."""

    @classmethod
    def from_knowledge(cls, settings: Settings, knowledge: Knowledge) -> RatingModel:
        """A model that is already fitted, as a model folder holds it."""
        model = cls(settings)
        model._knowledge = knowledge
        return model

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
        from cfuica.correcting import corrected_networks
        from cfuica.learning.rating import train

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
        about = None
        if whole.items is not None:
            about = by_index(whole.items, items.encode(whole.items["item"]), items.size)
            about = about.with_columns(item=items.ids)
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
            item_table=about,
        )
        return self

    @property
    def knowledge(self) -> Knowledge:
        """What `fit` or `load` gave and what was observed since; an error before."""
        if self._knowledge is None:
            raise CfuicaError(
                "This model is not fitted yet: call fit(table) or cfuica.load(folder)."
            )
        return self._knowledge if self._live is None else self._live.knowledge()

    @property
    def live(self) -> LiveModel:
        """The model in use; made on first use."""
        if self._live is None:
            from cfuica.live.model import LiveModel

            self._live = LiveModel(self.knowledge)
        return self._live

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
        from cfuica.recommending.recommend import Request, recommend

        _check_number(n)
        request = Request(
            n=n,
            by=by,
            exclude_seen=exclude_seen,
            min_support=min_support,
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
            return like(history, recommend(self.live, self._history(history, unknown), request))
        ids, index = self._each_once("users", users, unknown)
        return like(users, recommend(self.live, index, request, user_ids=ids))

    def similar_items(
        self, items: Any, n: int = 10, *, min_support: int | None = None, unknown: Unknown = "serve"
    ) -> Any:
        """The n items most like each of these: item, rank, similar, score, title.

        The score is the cosine of what the model reads of two items. Items with fewer than
        `min_support` ratings (default 5) are not called similar to anything.
        """
        return self._similar("items", items, n, min_support, unknown)

    def similar_users(
        self, users: Any, n: int = 10, *, min_support: int | None = None, unknown: Unknown = "serve"
    ) -> Any:
        """The n users most like each of these: user, rank, similar, score."""
        return self._similar("users", users, n, min_support, unknown)

    def explain(
        self, user: Any, item: Any, *, history: Any = None, unknown: Unknown = "serve"
    ) -> Explanation:
        """Why the expected rating of an item is what it is: exact counterfactuals.

        With a `history` (see `recommend`) and None for the user, of somebody who is not stored.
        """
        from cfuica.explaining.explanation import explain

        if (user is None) == (history is None):
            raise SettingsError("An explanation is of a user or of a history: give one of them.")
        live = self.live
        ids = live.ids["users"], live.ids["items"]
        asked = self._index("items", item, unknown)
        if history is None:
            index = self._index("users", user, unknown)
            answerer = live.answerer(index, asked)
            person = answerer.state.person(index)
        else:
            told = self._history(history, unknown)
            answerer = live.answerer(ids[0].nobody, asked)
            person = answerer.state.visitor(told.items, told.labels)
        return explain(
            answerer.state,
            person,
            asked,
            user_id=None if user is None else ids[0].shown(as_id_column("user", user))[0],
            item_id=ids[1].shown(as_id_column("item", item))[0],
            item_ids=ids[1].decode,
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
        ids = self.live.ids["users"]
        index = self._index("users", user, "serve")
        if index == ids.nobody:
            raise DataError(
                f"The user {user!r} is unknown to this model, so there is nothing to forget: it "
                f"knows {ids.size} users{ids.example}."
            )
        return self.live.forget("users", index)

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        from cfuica.model_folder import save

        return save(self, folder)

    def _pair_indices(
        self, pairs: BehaviourTable, unknown: Unknown
    ) -> tuple[np.ndarray, np.ndarray]:
        return (
            self._indices("users", pairs.frame["user"], unknown),
            self._indices("items", pairs.frame["item"], unknown),
        )

    def _similar(
        self, axis: SideName, asked: Any, n: int, min_support: int | None, unknown: Unknown
    ) -> Any:
        from cfuica.explaining.similar import MIN_SUPPORT, similar_table
        from cfuica.recommending.rules import check_min_support

        _check_number(n)
        min_support = MIN_SUPPORT if min_support is None else min_support
        check_min_support(min_support)
        live = self.live
        ids, index = self._each_once(axis, asked, unknown)
        frame = similar_table(
            live.state,
            axis,
            index,
            n,
            min_support=min_support,
            asked_ids=ids,
            ids=live.ids[axis].decode,
            titles=self._titles() if axis == "items" else None,
            in_order=live.ids[axis].present(),
        )
        return like(asked, frame)

    def _titles(self) -> Callable[[np.ndarray], pl.Series] | None:
        """Titles by index, null where there is none."""
        table = self.live.item_table
        if table is None or "title" not in table.columns:
            return None
        return lambda index: table["title"].gather(index)

    def _history(self, history: Any, unknown: Unknown) -> History:
        """Somebody who is not stored; of items the model does not know nothing can be read."""
        from cfuica.live.person import History

        frame = as_history(history)
        index = self._indices("items", frame["item"], unknown)
        labels = self.live.scale.encode(
            frame["rating"], lambda row: f"of the item {frame['item'][row]!r}"
        )
        is_known = index != self.live.ids["items"].nobody
        return History(index[is_known], labels[is_known])

    def _each_once(
        self, axis: SideName, ids: Any, unknown: Unknown
    ) -> tuple[pl.Series, np.ndarray]:
        """The ids as the model has its own where they can be, each once, and their indices."""
        known = self.live.ids[axis]
        asked = as_id_column(known.role, ids).unique(maintain_order=True)
        if asked.is_empty():
            raise DataError(f"No {known.role} was given; give at least one id.")
        return known.shown(asked), self._indices(axis, asked, unknown)

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
        raise SettingsError(f"n is {n!r}, but it is how many are asked for; give at least 1.")
