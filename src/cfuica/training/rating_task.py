"""Training of the rating model: its networks, their minibatches, loss and validation.

`train` fits an ensemble that predicts for warm users and items, and, where the settings ask for
it, a cold-start network that predicts where the user or the item is cold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.errors import SettingsError
from cfuica.metrics.rating_metrics import rating_scores
from cfuica.model.layers import COLD_START_OFFSET, OFFSET, LengthNormalisation
from cfuica.model.network import Network
from cfuica.model.pairs import OTHER, SIDES, SideName
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
    """A trained model and its training; `settings` have every default resolved.

    `rows` (n,) int32 are the table rows of each side's users or items: the shared row, which is the
    last, for those without an interaction to train on.
    """

    model: Network
    cold_start: Network | None  # The network for pairs whose user or item is cold.
    rows: dict[SideName, np.ndarray]
    settings: RatingSettings
    history: list[Progress]
    steps: int
    seconds: float
    seconds_in_steps: float

    @property
    def last(self) -> Progress:
        """The last progress of the ensemble."""
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

    `values_k` (K) are the ratings that the labels stand for. The `checkpointer` saves the training,
    and restores an earlier one."""
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
    rows: dict[SideName, np.ndarray] = {}
    for name in SIDES:
        is_warm = matrix.by(name).sizes > 0
        own = np.arange(len(is_warm), dtype=np.int32)
        rows[name] = np.where(is_warm, own, np.int32(len(is_warm)))
        # The shared row is the mean of the warm ones, except V and b of the cold-start network,
        # which it has learned.
        for network, tables in ((model, TABLES), (cold_start, ("encoder_nkh",))):
            if network is not None and name in network.sides:
                network.sides[name].share_the_mean(
                    torch.from_numpy(np.flatnonzero(is_warm)), tables
                )
    return Fitted(
        model=model,
        cold_start=cold_start,
        rows=rows,
        settings=settings,
        history=trained.history,
        steps=trained.steps,
        seconds=trained.seconds,
        seconds_in_steps=trained.seconds_in_steps,
    )


@dataclass(frozen=True)
class RatingTask:
    """An ensemble for warm users and items and, last, perhaps a cold-start network."""

    matrix: InteractionMatrix
    settings: RatingSettings
    values_k: np.ndarray
    valid: RatedPairs | None

    def settings_of(self, network: int) -> RatingSettings:
        # Ensemble members differ in their seed only, that is in initial values and blocks. The
        # cold-start network has its own number of units, and blocks of its own kind.
        settings = self.settings.replaced(seed=self.settings.seed + SEEDS_APART * network)
        if not self.settings.is_cold_start(network):
            return settings
        units = settings.cold_start_units
        return settings.replaced(hidden_users=units, hidden_items=units)

    def new_model(self, network: int) -> Network:
        cold_start = self.settings.is_cold_start(network)
        return new_model(self.matrix, self.settings_of(network), cold_start=cold_start)

    def blocks(self, network: int) -> Estimator:
        settings = self.settings_of(network)
        cold_start = self.settings.is_cold_start(network)
        short_contexts = SHORT_CONTEXTS if cold_start else 0.0
        estimator = make_estimator(self.matrix, settings, short_contexts=short_contexts)
        if cold_start:
            n_users, n_items = self.matrix.n_users, self.matrix.n_items
            estimator = ColdStartMasking(estimator, n_users, n_items, settings.seed)
        if settings.dropout == 0:
            return estimator
        return Dropout(estimator, settings.dropout, hidden_units(settings), settings.seed)

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
    """Initial parameters of the settings' shape for this matrix's users and items."""
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
    """The length normalisation of each side, whose contexts are rows of the other side."""
    power, offset = settings.length_normalisation, COLD_START_OFFSET if cold_start else OFFSET
    return {
        side: LengthNormalisation.for_rows(power, matrix.by(OTHER[side]).offsets, offset)
        for side in SIDES
    }


def loss_factor(block: Block, matrix: InteractionMatrix, settings: RatingSettings) -> float:
    """The factor of the sum of a block's losses.

    Strict: that of Eqn. (12), divided by the number of interactions, so that rates and penalties
    mean the same for every size of data. Published: the mean over the block's pairs.
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
    """Scores of a network on rated pairs, predicted from the interactions of `matrix`.

    With `as_cold` every user is cold-start: the shared row, with the user's history.
    """
    pair_contexts = PairContexts.of(matrix, valid.users_p, valid.items_p, cold_users=as_cold)
    return lambda model: rating_scores(
        answer(model, pair_contexts), valid.labels_p, values_k, valid.ratings_p
    )
