"""`RatingModel`: trains on ratings, predicts ratings and recommends items, by external ids.

`calibrate` fits the calibration of a trained model's distributions on the validation set, and
measures it before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
import torch

from cfuica.artifact import Artifact
from cfuica.data.frames import as_events, as_pairs, as_plain_event, as_table
from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.data.table import Interactions, item_metadata_of
from cfuica.data.vocabulary import LabelScale
from cfuica.metrics.rating_metrics import (
    CalibrationScores,
    Evaluation,
    calibration_scores,
    evaluation,
)
from cfuica.model.calibration import Calibration
from cfuica.model.network import Network
from cfuica.model.pairs import SideName
from cfuica.models.live_recommender import LiveRecommender, TaskName
from cfuica.models.recommender import Unknown
from cfuica.settings import RatingSettings, rating_preset
from cfuica.training.rating_task import PairLoss, pair_contexts, train, trained_networks
from cfuica.training.trainer import Trained

if TYPE_CHECKING:
    from cfuica.live.interactions import Observed
    from cfuica.training.checkpoint import Checkpointer
    from cfuica.training.trainer import Callback


Checks = Mapping[str, CalibrationScores]


@torch.no_grad()
def calibrate(
    networks: dict[str, Network],
    rows: dict[SideName, np.ndarray],
    matrix: InteractionMatrix,
    valid: RatedPairs | None,
    values_k: np.ndarray,
) -> tuple[dict[str, Calibration], dict[str, Checks]]:
    """The calibration of each network, and its scores on the validation set: "before" and "after"
    calibration or, where it changes nothing, "uncalibrated"; none without a validation set.

    Each is calibrated on its predictions of the validation set given the train set, for the kind of
    pairs that it predicts: the cold-start network sees every user as a cold-start user.
    """
    calibrations = {name: Calibration() for name in networks}
    checks: dict[str, Checks] = {name: {} for name in networks}
    if valid is None:
        return calibrations, checks
    for name, network in networks.items():
        own_rows, chosen_p = rows, np.ones(valid.n, np.bool_)
        if name == "cold_start":
            own_rows = {**rows, "users": np.full_like(rows["users"], len(rows["users"]))}
        elif len(networks) > 1:
            for side, index_p in (("users", valid.users_p), ("items", valid.items_p)):
                if side in network.sides:
                    chosen_p &= rows[side][index_p] != network.sides[side].shared_row
        if not chosen_p.any():
            continue
        pairs, contexts = pair_contexts(
            matrix, valid.users_p[chosen_p], valid.items_p[chosen_p], own_rows
        )
        logits_pk = network(pairs, network.encode(contexts)).numpy()
        labels_p, ratings_p = valid.labels_p[chosen_p], valid.ratings_p[chosen_p]
        none, found = Calibration(), Calibration.fit(logits_pk, labels_p, values_k)
        calibrations[name] = found
        checks[name] = {
            state: calibration_scores(
                one.distributions(logits_pk, values_k), labels_p, values_k, ratings_p
            )
            for state, one in (
                {"uncalibrated": none} if found == none else {"before": none, "after": found}
            ).items()
        }
    return calibrations, checks


class RatingModel(LiveRecommender[RatingSettings]):
    """Predicts ratings and recommends items.

    >>> model = RatingModel(rating_preset("default")).fit(table)
    >>> model.predict(pairs)

    A fitted model is live: what it observes changes the next prediction without training. It is not
    locked: threads that share one must take turns.
    """

    task: ClassVar[TaskName] = "rating"
    predicts_ratings: ClassVar[bool] = True
    ranks_by: ClassVar[tuple[str, ...]] = ("expected", "lower", "blend")
    least_support: ClassVar[int] = 1
    reads_ratings: ClassVar[bool] = True

    def __init__(
        self, settings: RatingSettings | None = None, *, loss: PairLoss | None = None
    ) -> None:
        """`loss` stands in for that of the settings: the sum of the losses of P pairs from their
        logits (P, K), a tensor, and labels (P), an array."""
        super().__init__(settings if settings is not None else rating_preset("default"))
        self._loss = loss
        self.trained: Trained | None = None  # The training of a model that was fitted here.
        self.checks: dict[str, Checks] = {}  # Scores of `calibrate` by network.

    def fit(
        self,
        interactions: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        vocabulary: Interactions | Any = None,
        callback: Callback | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> Self:
        """Train on a table (or a dataframe) of ratings; returns self.

        `valid` is a table to validate on; the fitted model is conditioned on it, but never learns
        from it. `vocabulary` is a table with all users, items and rating values that the model is
        to know (default: `table`). Interactions without a rating add their ids to the vocabulary,
        and are not learned from. The `checkpointer` saves the state of training."""
        table = as_table(interactions)
        whole = as_table(vocabulary) if vocabulary is not None else table
        users, items = whole.users, whole.item_ids
        scale = table.label_scale(vocabulary=whole, bins=self.settings.bins)
        matrix = table.matrix(users=users, items=items, scale=scale)
        rated, everything = None, matrix
        if valid is not None:
            valid = as_table(valid)
            rated = valid.rated_pairs(users=users, items=items, scale=scale)
            everything = matrix.merged(valid.matrix(users=users, items=items, scale=scale))
        values_k = scale.values_array()
        self.trained = train(
            matrix,
            self.settings,
            values_k,
            valid=rated,
            loss=self._loss,
            callback=callback,
            checkpointer=checkpointer,
        )
        networks, rows = trained_networks(self.trained, matrix)
        calibrations, self.checks = calibrate(networks, rows, matrix, rated, values_k)
        self._live = None
        self._artifact = Artifact(
            settings=self.settings,
            networks=networks,
            calibrations=calibrations,
            users=users,
            items=items,
            scale=scale,
            interactions=everything,
            rows=rows,
            item_metadata=item_metadata_of(whole.items, items),
        )
        return self

    @property
    def scale(self) -> LabelScale:
        """The rating scale."""
        scale = self.artifact.scale
        assert scale is not None
        return scale

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
        rating; a row without a rating (None, null, pandas.NA; NaN is refused) removes the
        interaction. Nothing is changed where a row is refused. Item metadata of a table (titles)
        are added where the model has none. Parameters stay as they are: new users and items share
        the cold-start row until the next training."""
        if one := as_plain_event(events):
            user, item, rating = one
            return self.live_model.observe_one(user, item, rating, given=rating is not None)
        table = as_events(events)
        return self.live_model.observe(table.frame, table.items)

    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        return self.scale.encode(
            history["rating"], lambda row: f"of the item {history['item'][row]!r}"
        )

    def _expected(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        return self.live_model.expected(users_p, items_p)
