"""The rating model as its users meet it: external ids in, external ids out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.rated import RatedPairs
from cfuica.data.table import BehaviourTable
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.evaluation.metrics import RatingScores, rating_scores
from cfuica.frames import like
from cfuica.knowledge import Knowledge, Predictor
from cfuica.model.calibration import Calibration
from cfuica.presets import preset
from cfuica.recommending.scores import DEFAULT_BY, By
from cfuica.settings import Settings

if TYPE_CHECKING:
    from cfuica.explaining.explanation import Explanation
    from cfuica.learning.snapshot import Keeper
    from cfuica.learning.trainer import Fitted, Listener
    from cfuica.live.model import LiveModel, Observed
    from cfuica.live.person import Person
    from cfuica.model.conditional import CoAutoregressive
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
        from cfuica.learning.trainer import train  # torch and numba take seconds to import

        table = _as_table(table)
        whole = _as_table(spans) if spans is not None else table
        users, items = whole.users, whole.item_ids
        scale = table.label_scale(spans=whole, bins=self.settings.bins)
        matrix = table.matrix(users=users, items=items, scale=scale)
        rated, behaviours = None, matrix
        if valid is not None:
            valid = _as_table(valid)
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
        known, strangers = _predictors(self.fitted, matrix, rated, scale.values_array())
        self._knowledge = Knowledge(
            known=known,
            strangers=strangers,
            users=users,
            items=items,
            scale=scale,
            behaviours=behaviours,
            rows=self.fitted.rows,
            item_table=_about_items(whole.items, items),
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
        return self.live.distributions(*self._pair_indices(_as_pairs(pairs), unknown))

    def predict(self, pairs: BehaviourTable | Any, *, unknown: Unknown = "serve") -> Any:
        """The expected rating of each pair: user, item, prediction, in the order given.

        The frame is of the library that `pairs` is of.
        """
        table = _as_pairs(pairs)
        expected = self.live.expected(*self._pair_indices(table, unknown))
        frame = table.frame.select("user", "item").with_columns(prediction=pl.Series(expected))
        return like(pairs, frame, same_rows=True)

    def evaluate(self, table: BehaviourTable | Any, *, unknown: Unknown = "serve") -> RatingScores:
        """RMSE, MAE and NLL of a table of ratings; behaviours without one do not count."""
        rated, scale = _as_table(table).rated(), self.live.scale
        return rating_scores(
            self.predict_proba(rated, unknown=unknown),
            scale.encode(rated.frame["rating"]),
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

        `users` is an id, several, or a column or frame of them; the result is a frame of the same
        library. Instead of users a `history` can be given, a frame of item and rating or a list of
        such pairs: somebody who is not stored, and the result then has no column user.

        `by` is what items are ranked by: "expected" (rating), "lower" (the mean of the worst tenth
        of the predicted distribution) or "blend" (the expected rating and how many rated the
        item); the score is that. `items` are the candidates (default: all), less those of
        `exclude`, those that fewer than `min_support` users rated, and, with `exclude_seen`, those
        the user rated. `where` asks for values of columns that are known of the items,
        {"genres": "Comedy"}; `max_per` is how many items with the same value of a column a user
        gets at most, {"series": 1}.
        """
        from cfuica.recommending.recommend import Request, recommend

        _check_unknown(unknown)
        if n < 1:
            raise SettingsError(f"n is {n}, but at least 1 item has to be recommended.")
        live = self.live
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
                raise SettingsError("Users and a history were given, but one of them is asked for.")
            return like(history, recommend(live, self._visitor(history), request))
        user_ids = _as_series("user", users)
        if user_ids.is_empty():
            raise DataError("No user was given to recommend to.")
        index = self._indices("users", user_ids, unknown)
        return like(users, recommend(live, index, request, user_ids=user_ids))

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
        asked = int(self._indices("items", item, unknown)[0])
        if history is not None:
            answerer, person = live.answerer(None, asked), self._visitor(history)
        else:
            index = int(self._indices("users", user, unknown)[0])
            answerer = live.answerer(index, asked)
            person = answerer.state.person(index)
        return explain(
            answerer.state,
            person,
            asked,
            user_id=user,
            item_ids=lambda index: live.ids["items"].decode(index),
            titles=self._titles(),
            scale=live.scale,
            distributions=answerer.calibration.distributions,
        )

    def observe(self, events: Any) -> Observed:
        """Take in behaviours of known or new users and items; the next prediction knows of them.

        `events` is a table or frame of user, item, rating, or a list of such triples. A pair that
        is known gets its new rating; a row without a rating takes the pair's back. Parameters stay
        as they are: newcomers share the row of strangers until the next training.
        """
        from cfuica.live.events import as_events

        if isinstance(events, list | tuple):
            return self.live.observe(as_events(events))
        frame = _as_table(events).frame
        if "rating" not in frame.columns:
            raise DataError("The events have no ratings; give a column 'rating'.")
        return self.live.observe(frame)

    def forget(self, user: Any) -> int:
        """Remove a user: behaviours, sums, id and own parameters; how many behaviours that were.

        What the parameters of others learned from the user stays in them until the next training,
        which has to be without the user's rows.
        """
        return self.live.forget("users", int(self._indices("users", user, "error")[0]))

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

        live = self.live
        frame = similar_table(
            live.state,
            axis,
            self._indices(axis, asked, unknown),
            n,
            min_support=MIN_SUPPORT if min_support is None else min_support,
            ids=live.ids[axis].decode,
            titles=self._titles() if axis == "items" else None,
        )
        return like(asked, frame)

    def _titles(self) -> Callable[[np.ndarray], pl.Series] | None:
        """Titles by index, null where there is none."""
        table = self.live.item_table
        if table is None or "title" not in table.columns:
            return None
        return lambda index: table["title"].gather(index)

    def _visitor(self, history: Any) -> Person:
        """Somebody who is not stored; of items the model does not know nothing can be read."""
        live = self.live
        frame = _as_history(history)
        index = live.ids["items"].encode(frame["item"])
        labels = live.scale.encode(frame["rating"], lambda at: f"of the item {frame['item'][at]!r}")
        known = index >= 0
        return live.for_strangers.state.visitor(index[known], labels[known])

    def _indices(self, axis: SideName, ids: Any, unknown: Unknown) -> np.ndarray:
        _check_unknown(unknown)
        series = _as_series(_ROLES[axis], ids)
        return self.live.indices(axis, series, serve_unknown=unknown == "serve")


_ROLES: dict[SideName, str] = {"users": "user", "items": "item"}


def _predictors(
    fitted: Fitted, matrix: BehaviourMatrix, valid: RatedPairs | None, values_k: np.ndarray
) -> tuple[Predictor, Predictor | None]:
    """The networks, with what corrects the distributions that they predict for the validation
    part from the training part; that of strangers knows none of its users."""
    from cfuica.live.state import LiveState

    def calibrated(network: CoAutoregressive, rows: dict[SideName, np.ndarray]) -> Predictor:
        if valid is None or not valid.n:
            return Predictor(network)
        state = LiveState.of(network, matrix, rows)
        activation_pk = state.pair_activations(valid.users_p, valid.items_p)
        return Predictor(network, Calibration.fit(activation_pk, valid.labels_p, values_k))

    rows = fitted.rows
    nobody = {**rows, "users": np.full_like(rows["users"], len(rows["users"]))}
    strangers = calibrated(fitted.strangers, nobody) if fitted.strangers else None
    return calibrated(fitted.model, rows), strangers


def _check_unknown(unknown: str) -> None:
    if unknown not in ("serve", "error"):
        raise SettingsError(f"unknown is {unknown!r}, but it is either 'serve' or 'error'.")


def _as_table(data: BehaviourTable | Any) -> BehaviourTable:
    return data if isinstance(data, BehaviourTable) else BehaviourTable.from_frame(data)


def _as_pairs(data: BehaviourTable | Any) -> BehaviourTable:
    """User and item of each row: unlike a behaviour, a question may be asked twice."""
    if isinstance(data, BehaviourTable):
        return data
    return BehaviourTable.from_frame(data, rating=None, timestamp=None, repeats=True)


def _as_series(role: str, ids: Any) -> pl.Series:
    """One id, several, or a column or frame of them, as a column."""
    if isinstance(ids, str | int | np.integer):
        return pl.Series(role, [ids])
    if isinstance(ids, pl.Series):
        return ids
    if hasattr(ids, "__arrow_c_stream__") or hasattr(ids, "columns"):
        frame = pl.DataFrame(ids)
        return frame[role] if role in frame.columns else frame.to_series()
    several = [] if ids is None else list(ids)
    try:
        return pl.Series(role, several)
    except TypeError:
        raise DataError(
            f"The {role}s {several[:3]!r} ... are of several types; give integers or strings."
        ) from None


def _as_history(history: Any) -> pl.DataFrame:
    """item and rating of each row."""
    if isinstance(history, list | tuple):
        frame = pl.DataFrame(
            {"item": [item for item, *_ in history], "rating": [float(r) for _, r, *_ in history]}
        )
    else:
        frame = pl.DataFrame(history)
    return frame


def _about_items(given: pl.DataFrame | None, items: IdMap) -> pl.DataFrame | None:
    """What is known of each item, in index order: the first row of an item counts."""
    if given is None or "title" not in given.columns:
        return None
    about = given.drop("item").with_columns(index=pl.Series(items.encode(given["item"])))
    first = about.unique("index", keep="first", maintain_order=True)
    rows = pl.DataFrame({"item": items.ids}).with_columns(
        index=pl.int_range(pl.len(), dtype=pl.Int32)
    )
    return rows.join(first, on="index", how="left", maintain_order="left").drop("index")
