"""The rating model's task: what its networks are, learn from and are validated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.errors import SettingsError
from cfuica.metrics.rating_metrics import rating_scores
from cfuica.model.layers import COLD_START_OFFSET, OFFSET, LengthNormalisation
from cfuica.model.network import Network
from cfuica.model.pairs import SIDES, SideName
from cfuica.model.prediction import PairContexts, answer
from cfuica.model.side import TABLES
from cfuica.settings import RatingSettings
from cfuica.training.batches import (
    SHORT_CONTEXTS,
    Block,
    ColdStartMasking,
    Dropout,
    Estimator,
    hidden_units,
    make_estimator,
)
from cfuica.training.checkpoint import Checkpointer
from cfuica.training.ensemble import merge
from cfuica.training.gradients import GradientBuffers, Gradients, block_loss_and_gradients
from cfuica.training.trainer import (
    SEEDS_APART,
    Callback,
    Progress,
    Validator,
    train_networks,
    usable_device,
)


@dataclass(frozen=True)
class Fitted:
    """A trained model and how it came about; `settings` are those given, with nothing left open.

    `rows` (n,) int32 names the table row of each user and item: the shared one, the last, where
    there was no interaction to train on.
    """

    model: Network
    cold_start: Network | None
    """The network that answers where the user or the item is a cold-start user or item."""
    rows: dict[SideName, np.ndarray]
    settings: RatingSettings
    history: list[Progress]
    steps: int
    seconds: float
    seconds_in_steps: float

    @property
    def last(self) -> Progress:
        """The last progress of the networks of those who are known."""
        return [progress for progress in self.history if not progress.cold_start][-1]


def train(
    matrix: InteractionMatrix,
    settings: RatingSettings,
    values_k: np.ndarray,
    *,
    valid: RatedPairs | None = None,
    callback: Callback | None = None,
    checkpointer: Checkpointer | None = None,
) -> Fitted:
    """Fit a model to `matrix`; validate on `valid`, conditioned on `matrix` only.

    `values_k` (K) are the ratings that the labels stand for. The `checkpointer` writes training
    down now and then, and knows where an earlier one was left."""
    if matrix.n_interactions == 0:
        raise SettingsError("There is no interaction to train on; give more data or fewer folds.")
    settings = settings.settled(matrix.n_interactions)
    callback = callback or Callback()
    callback.started(settings)
    task = RatingTask(matrix, settings, values_k, valid if valid is not None and valid.n else None)
    trained = train_networks(task, callback, checkpointer or Checkpointer())
    networks = [
        Network.of_tensors(
            each,
            settings.activation,
            side_length_norms(matrix, settings, cold_start=settings.is_cold_start(number)),
        )
        for number, each in enumerate(trained.networks)
    ]
    model = merge(networks[: settings.ensemble_size]).to("cpu")
    cold_start = networks[-1].to("cpu") if settings.cold_start_units else None
    warm = {axis: np.flatnonzero(np.diff(matrix.by(axis).offsets)) for axis in SIDES}
    _share_the_mean(model, warm, TABLES)
    if cold_start is not None:  # it has learned V and b of the shared rows
        _share_the_mean(cold_start, warm, ("encoder_nkh",))
    return Fitted(
        model=model,
        cold_start=cold_start,
        rows={axis: _rows(matrix.by(axis).n_rows, warm[axis]) for axis in SIDES},
        settings=settings,
        history=trained.history,
        steps=trained.steps,
        seconds=trained.seconds,
        seconds_in_steps=trained.seconds_in_steps,
    )


@dataclass(frozen=True)
class RatingTask:
    """Members that answer for those who are known, and perhaps a cold-start network, last."""

    matrix: InteractionMatrix
    settings: RatingSettings
    values_k: np.ndarray
    valid: RatedPairs | None

    def settings_of(self, network: int) -> RatingSettings:
        # Members differ in their seed only: initial values and blocks. That of cold-start users and
        # items has as many units as it is given, and blocks of its own kind.
        settings = self.settings.replaced(seed=self.settings.seed + SEEDS_APART * network)
        if not self.settings.is_cold_start(network):
            return settings
        units = settings.cold_start_units
        return settings.replaced(hidden_users=units, hidden_items=units)

    def new_model(self, network: int) -> Network:
        cold_start = self.settings.is_cold_start(network)
        return new_model(self.matrix, self.settings_of(network), cold_start=cold_start)

    def blocks(self, network: int) -> Estimator:
        cold_start = self.settings.is_cold_start(network)
        return _drawing(self.matrix, self.settings_of(network), cold_start=cold_start)

    def loss_and_gradients(
        self, network: int, model: Network, block: Block, buffers: GradientBuffers
    ) -> tuple[float, Gradients]:
        return block_loss_and_gradients(
            model,
            block,
            factor=loss_factor(block, self.matrix, self.settings),
            ordinal_weight=self.settings.ordinal_weight,
            share=self.settings.share_labels,
            buffers=buffers,
        )

    def validator(self, network: int) -> Validator | None:
        if self.valid is None:
            return None
        as_cold = self.settings.is_cold_start(network)
        return make_validator(self.matrix, self.valid, self.values_k, as_cold=as_cold)


def new_model(
    matrix: InteractionMatrix, settings: RatingSettings, *, cold_start: bool = False
) -> Network:
    """Untrained parameters of the settings' shape for this matrix's users and items."""
    device = usable_device(settings.device)
    return Network.initial(
        n_users=matrix.n_users,
        n_items=matrix.n_items,
        n_labels=matrix.n_labels,
        hidden=hidden_units(settings),
        activation=settings.activation,
        share=settings.share_labels,
        seed=settings.seed,
        length_norms=side_length_norms(matrix, settings, cold_start=cold_start),
        with_bilinear=cold_start and settings.bilinear_rate > 0,
    ).to(device)


def side_length_norms(
    matrix: InteractionMatrix, settings: RatingSettings, *, cold_start: bool = False
) -> dict[SideName, LengthNormalisation]:
    """How each side scales its sums; the users side sums over what was done on items."""
    offset = COLD_START_OFFSET if cold_start else OFFSET
    return {
        "users": LengthNormalisation.for_rows(
            settings.length_normalisation, matrix.by_item.offsets, offset
        ),
        "items": LengthNormalisation.for_rows(
            settings.length_normalisation, matrix.by_user.offsets, offset
        ),
    }


def _rows(indices: int, warm: np.ndarray) -> np.ndarray:
    """(n,) the table row of each member: its own, or the shared one after all of them."""
    rows = np.full(indices, indices, np.int32)
    rows[warm] = warm
    return rows


def _share_the_mean(
    model: Network, warm: dict[SideName, np.ndarray], tables: tuple[str, ...]
) -> None:
    """Where training does not teach the shared row, it is the mean of those who are known."""
    for name, side in model.sides.items():
        side.share_the_mean(torch.from_numpy(warm[name]), tables)


def _drawing(matrix: InteractionMatrix, settings: RatingSettings, *, cold_start: bool) -> Estimator:
    short_contexts = SHORT_CONTEXTS if cold_start else 0.0
    estimator = make_estimator(matrix, settings, short_contexts=short_contexts)
    if cold_start:
        estimator = ColdStartMasking(estimator, matrix.n_users, matrix.n_items, settings.seed)
    if settings.dropout == 0:
        return estimator
    return Dropout(estimator, settings.dropout, hidden_units(settings), settings.seed)


def loss_factor(block: Block, matrix: InteractionMatrix, settings: RatingSettings) -> float:
    """What the sum of the block's costs is multiplied by.

    Strict: the estimate of the whole objective, divided by the number of interactions, so that
    rates and penalties mean the same for every size of data. Published: the block's mean.
    """
    if settings.estimator == "strict":
        return block.scale / matrix.n_interactions
    return 1.0 / max(block.pairs.size, 1)


def make_validator(
    matrix: InteractionMatrix,
    valid: RatedPairs,
    values_k: np.ndarray,
    *,
    as_cold: bool = False,
) -> Validator:
    """Scores of a model on rated pairs, predicted from the interactions of `matrix`.

    With `as_cold` all users have the shared row, and their histories.
    """
    pair_contexts = PairContexts.of(matrix, valid.users_p, valid.items_p, cold_users=as_cold)
    return lambda model: rating_scores(
        answer(model, pair_contexts), valid.labels_p, values_k, valid.ratings_p
    )
