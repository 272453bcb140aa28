"""The rating model's task: what its networks are, learn from and are validated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cfuica.data.matrix import BehaviourMatrix, RatedPairs
from cfuica.errors import SettingsError
from cfuica.metrics.rating_metrics import rating_scores
from cfuica.model.layers import OFFSET, STRANGERS_OFFSET, Gain
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import AXES, SideName
from cfuica.model.prediction import Question, answer
from cfuica.model.side import TABLES
from cfuica.settings import Settings
from cfuica.training.batches import (
    SHORT_CONTEXTS,
    Block,
    Dropout,
    Estimator,
    Strangers,
    hidden_units,
    make_estimator,
)
from cfuica.training.checkpoint import Keeper
from cfuica.training.ensemble import merge
from cfuica.training.gradients import GradientBuffers, Gradients, block_cost_and_gradients
from cfuica.training.trainer import (
    SEEDS_APART,
    Listener,
    Progress,
    Validator,
    train_networks,
    usable_device,
)


@dataclass(frozen=True)
class Fitted:
    """A trained model and how it came about; `settings` are those given, with nothing left open.

    `rows` (n,) int32 names the table row of each user and item: the shared one, the last, where
    there was no behaviour to train on.
    """

    model: CoAutoregressive
    strangers: CoAutoregressive | None
    """The network that answers where the user or the item is a stranger."""
    rows: dict[SideName, np.ndarray]
    settings: Settings
    history: list[Progress]
    steps: int
    seconds: float
    seconds_in_steps: float

    @property
    def last(self) -> Progress:
        """The last progress of the networks of those who are known."""
        return [progress for progress in self.history if not progress.strangers][-1]


def train(
    matrix: BehaviourMatrix,
    settings: Settings,
    values_k: np.ndarray,
    *,
    valid: RatedPairs | None = None,
    listener: Listener | None = None,
    keeper: Keeper | None = None,
) -> Fitted:
    """Fit a model to `matrix`; validate on `valid`, conditioned on `matrix` only.

    `values_k` (K) are the ratings that the labels stand for. The `keeper` writes training down
    now and then, and knows where an earlier one was left.
    """
    if matrix.n_behaviours == 0:
        raise SettingsError("There is no behaviour to train on; give more data or fewer folds.")
    settings = settings.settled(matrix.n_behaviours)
    listener = listener or Listener()
    listener.started(settings)
    task = RatingTask(matrix, settings, values_k, valid if valid is not None and valid.n else None)
    trained = train_networks(task, listener, keeper or Keeper())
    networks = [
        CoAutoregressive.of_tensors(
            each,
            settings.activation,
            side_gains(matrix, settings, of_strangers=settings.is_of_strangers(number)),
        )
        for number, each in enumerate(trained.networks)
    ]
    model = merge(networks[: settings.members]).to("cpu")
    strangers = networks[-1].to("cpu") if settings.strangers else None
    known = {axis: np.flatnonzero(np.diff(matrix.by(axis).offsets)) for axis in AXES}
    _share_the_mean(model, known, TABLES)
    if strangers is not None:  # it has learned V and b of the shared rows
        _share_the_mean(strangers, known, ("encoder_nkh",))
    return Fitted(
        model=model,
        strangers=strangers,
        rows={axis: _rows(matrix.by(axis).n_rows, known[axis]) for axis in AXES},
        settings=settings,
        history=trained.history,
        steps=trained.steps,
        seconds=trained.seconds,
        seconds_in_steps=trained.seconds_in_steps,
    )


@dataclass(frozen=True)
class RatingTask:
    """Members that answer for those who are known, and perhaps a network for strangers, last."""

    matrix: BehaviourMatrix
    settings: Settings
    values_k: np.ndarray
    valid: RatedPairs | None

    def settings_of(self, network: int) -> Settings:
        # Members differ in their seed only: initial values and blocks. That of strangers has as
        # many units as it is given, and blocks of its own kind.
        settings = self.settings.replaced(seed=self.settings.seed + SEEDS_APART * network)
        if not self.settings.is_of_strangers(network):
            return settings
        units = settings.strangers
        return settings.replaced(hidden_users=units, hidden_items=units)

    def new_model(self, network: int) -> CoAutoregressive:
        of_strangers = self.settings.is_of_strangers(network)
        return new_model(self.matrix, self.settings_of(network), of_strangers=of_strangers)

    def blocks(self, network: int) -> Estimator:
        of_strangers = self.settings.is_of_strangers(network)
        return _drawing(self.matrix, self.settings_of(network), for_strangers=of_strangers)

    def cost_and_gradients(
        self, network: int, model: CoAutoregressive, block: Block, buffers: GradientBuffers
    ) -> tuple[float, Gradients]:
        return block_cost_and_gradients(
            model,
            block,
            factor=cost_factor(block, self.matrix, self.settings),
            ordinal_weight=self.settings.ordinal_weight,
            share=self.settings.share_labels,
            buffers=buffers,
        )

    def validator(self, network: int) -> Validator | None:
        if self.valid is None:
            return None
        as_strangers = self.settings.is_of_strangers(network)
        return make_validator(self.matrix, self.valid, self.values_k, as_strangers=as_strangers)


def new_model(
    matrix: BehaviourMatrix, settings: Settings, *, of_strangers: bool = False
) -> CoAutoregressive:
    """Untrained parameters of the settings' shape for this matrix's users and items."""
    device = usable_device(settings.device)
    return CoAutoregressive.initial(
        n_users=matrix.n_users,
        n_items=matrix.n_items,
        n_labels=matrix.n_labels,
        hidden=hidden_units(settings),
        activation=settings.activation,
        share=settings.share_labels,
        seed=settings.seed,
        gains=side_gains(matrix, settings, of_strangers=of_strangers),
        bridged=of_strangers and settings.bridge_rate > 0,
    ).to(device)


def side_gains(
    matrix: BehaviourMatrix, settings: Settings, *, of_strangers: bool = False
) -> dict[SideName, Gain]:
    """How each side scales its sums; the users side sums over what was done on items."""
    offset = STRANGERS_OFFSET if of_strangers else OFFSET
    return {
        "users": Gain.for_rows(settings.size_power, matrix.by_item.offsets, offset),
        "items": Gain.for_rows(settings.size_power, matrix.by_user.offsets, offset),
    }


def _rows(members: int, known: np.ndarray) -> np.ndarray:
    """(n,) the table row of each member: its own, or the shared one after all of them."""
    rows = np.full(members, members, np.int32)
    rows[known] = known
    return rows


def _share_the_mean(
    model: CoAutoregressive, known: dict[SideName, np.ndarray], tables: tuple[str, ...]
) -> None:
    """Where training does not teach the shared row, it is the mean of those who are known."""
    for name, side in model.sides.items():
        side.share_the_mean(torch.from_numpy(known[name]), tables)


def _drawing(matrix: BehaviourMatrix, settings: Settings, *, for_strangers: bool) -> Estimator:
    short_contexts = SHORT_CONTEXTS if for_strangers else 0.0
    estimator = make_estimator(matrix, settings, short_contexts=short_contexts)
    if for_strangers:
        estimator = Strangers(estimator, matrix.n_users, matrix.n_items, settings.seed)
    if settings.dropout == 0:
        return estimator
    return Dropout(estimator, settings.dropout, hidden_units(settings), settings.seed)


def cost_factor(block: Block, matrix: BehaviourMatrix, settings: Settings) -> float:
    """What the sum of the block's costs is multiplied by.

    Strict: the estimate of the whole objective, divided by the number of behaviours, so that
    rates and penalties mean the same for every size of data. Published: the block's mean.
    """
    if settings.estimator == "strict":
        return block.scale / matrix.n_behaviours
    return 1.0 / max(block.pairs.size, 1)


def make_validator(
    matrix: BehaviourMatrix,
    valid: RatedPairs,
    values_k: np.ndarray,
    *,
    as_strangers: bool = False,
) -> Validator:
    """Scores of a model on rated pairs, predicted from the behaviours of `matrix`.

    With `as_strangers` all users have the shared row, and their histories.
    """
    question = Question.about(matrix, valid.users_p, valid.items_p, strange_users=as_strangers)
    return lambda model: rating_scores(
        answer(model, question), valid.labels_p, values_k, valid.ratings_p
    )
