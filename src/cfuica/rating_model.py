"""The rating model as its users meet it: external ids in, external ids out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.table import BehaviourTable
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.evaluation.metrics import RatingScores, rating_scores
from cfuica.model.prediction import probabilities
from cfuica.presets import preset
from cfuica.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cfuica.learning.snapshot import Keeper
    from cfuica.learning.trainer import Fitted, Listener
    from cfuica.model.conditional import CoAutoregressive
    from cfuica.model.pairs import SideName

# An item that fewer people rated is not recommended by expected rating alone.
MIN_SUPPORT = 5


@dataclass(frozen=True)
class Knowledge:
    """What a fitted model needs to answer: parameters, ids, and the behaviours it reads."""

    network: CoAutoregressive
    users: IdMap
    items: IdMap
    scale: LabelScale
    behaviours: BehaviourMatrix
    rows: dict[SideName, np.ndarray]
    """(n,) int32: the row of the parameters that each user and each item has. The last row of all
    is that of strangers, those whom training did not know."""
    item_table: pl.DataFrame | None = None
    """`item`, `title` and perhaps `genres`, one row per item in index order."""
    card: dict[str, Any] = field(default_factory=dict)


class RatingModel:
    """Predicts ratings and recommends items.

    >>> model = RatingModel(preset("default")).fit(table)
    >>> model.predict(pairs)
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else preset("default")
        self._knowledge: Knowledge | None = None
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
        self._knowledge = Knowledge(
            network=self.fitted.model,
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
        """What `fit` or `load` gave; an error before."""
        if self._knowledge is None:
            raise CfuicaError(
                "This model is not fitted yet: call fit(table) or cfuica.load(folder)."
            )
        return self._knowledge

    def predict_proba(self, pairs: BehaviourTable | Any) -> np.ndarray:
        """The predicted distribution of each pair, (P, K) float32, labels ascending.

        A pair that is itself among the model's behaviours is left out of what it is predicted
        from.
        """
        return self._probabilities(*self._indices(_as_pairs(pairs)))

    def predict(self, pairs: BehaviourTable | Any) -> pl.DataFrame:
        """The expected rating of each pair: user, item, prediction, in the order given."""
        table = _as_pairs(pairs)
        expected = self._expected(*self._indices(table))
        return table.frame.select("user", "item").with_columns(prediction=pl.Series(expected))

    def evaluate(self, table: BehaviourTable | Any) -> RatingScores:
        """RMSE, MAE and NLL of a table of ratings; behaviours without one do not count."""
        known = self.knowledge
        rated = _as_table(table).rated_pairs(
            users=known.users, items=known.items, scale=known.scale
        )
        p_pk = self._probabilities(rated.users_p, rated.items_p)
        return rating_scores(p_pk, rated.labels_p, known.scale.values_array(), rated.ratings_p)

    def recommend(
        self,
        users: Iterable[Any] | str | int,
        n: int = 10,
        *,
        items: Iterable[Any] | str | int | None = None,
        exclude_seen: bool = True,
        min_support: int = MIN_SUPPORT,
    ) -> pl.DataFrame:
        """The n items of highest expected rating for each user: user, rank, item, score, title.

        `users` is one id or several. `items` restricts the candidates; `min_support` leaves out
        items that fewer users rated.
        """
        known = self.knowledge
        if n < 1:
            raise SettingsError(f"n is {n}, but at least 1 item has to be recommended.")
        user_ids = _as_series("user", users)
        if user_ids.is_empty():
            raise DataError("No user was given to recommend to.")
        support = np.diff(known.behaviours.by_item.offsets)
        candidates = np.flatnonzero(support >= max(min_support, 1)).astype(np.int32)
        if items is not None:
            asked = self._known("item", _as_series("item", items), known.items)
            candidates = np.intersect1d(candidates, asked)
        tops = [
            self._top(int(user), candidates, n, exclude_seen)
            for user in self._known("user", user_ids, known.users)
        ]
        result = pl.concat(tops)
        if known.item_table is not None:
            titles = known.item_table.select("item", "title")
            result = result.join(titles, on="item", how="left", maintain_order="left")
        return result

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        from cfuica.model_folder import save

        return save(self, folder)

    def _top(self, user: int, candidates: np.ndarray, n: int, exclude_seen: bool) -> pl.DataFrame:
        known = self.knowledge
        if exclude_seen:
            rows = known.behaviours.by_user
            seen = rows.members[rows.offsets[user] : rows.offsets[user + 1]]
            candidates = np.setdiff1d(candidates, seen)
        users_p = np.full(len(candidates), user, np.int32)
        scores = self._expected(users_p, candidates)
        best = np.argsort(-scores, kind="stable")[:n]
        return pl.DataFrame(
            {
                "user": known.users.decode(users_p[best]),
                "rank": np.arange(1, len(best) + 1, dtype=np.int32),
                "item": known.items.decode(candidates[best]),
                "score": scores[best].astype(np.float64),
            }
        )

    def _probabilities(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        known = self.knowledge
        return probabilities(known.network, known.behaviours, users_p, items_p)

    def _expected(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) expected ratings; rounding must not carry one beyond the ends of the scale."""
        values_k = self.knowledge.scale.values_array()
        expected_p = self._probabilities(users_p, items_p) @ values_k
        return np.clip(expected_p, values_k[0], values_k[-1])

    def _indices(self, pairs: BehaviourTable) -> tuple[np.ndarray, np.ndarray]:
        known = self.knowledge
        return (
            self._known("user", pairs.frame["user"], known.users),
            self._known("item", pairs.frame["item"], known.items),
        )

    @staticmethod
    def _known(role: str, ids: pl.Series, id_map: IdMap) -> np.ndarray:
        index = id_map.encode(ids)
        unknown = np.flatnonzero(index < 0)
        if len(unknown):
            row = int(unknown[0])
            others = f", like {len(unknown) - 1} more of {len(ids)}" if len(unknown) > 1 else ""
            raise DataError(
                f"The {role} {ids[row]!r} (row {row + 1}) is unknown to this model{others}: it "
                f"knows {id_map.size} {role}s, such as {id_map.ids[0]!r}; leave the unknown ones "
                f"out or train on data that has them."
            )
        return index


def _as_table(data: BehaviourTable | Any) -> BehaviourTable:
    return data if isinstance(data, BehaviourTable) else BehaviourTable.from_frame(data)


def _as_pairs(data: BehaviourTable | Any) -> BehaviourTable:
    """User and item of each row: unlike a behaviour, a question may be asked twice."""
    if isinstance(data, BehaviourTable):
        return data
    return BehaviourTable.from_frame(data, rating=None, timestamp=None, repeats=True)


def _as_series(role: str, ids: Iterable[Any] | str | int) -> pl.Series:
    """One id or several as a column."""
    several = [ids] if isinstance(ids, str | int | np.integer) else list(ids)
    try:
        return pl.Series(role, several)
    except TypeError:
        raise DataError(
            f"The {role}s {several[:3]!r} ... are of several types; give integers or strings."
        ) from None


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
