"""Training of the ranking model: its networks, their minibatches, loss and validation.

`train_ranking` fits an ensemble to the histories of users, and validates it by the rank of each
user's next item among all items that the user has not interacted with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cfuica.data.matrix import Csr, LabelledCsr, Timeline
from cfuica.errors import SettingsError
from cfuica.metrics.ranking_metrics import RankingScores, RankingTest, answer
from cfuica.model.network import Network
from cfuica.model.prediction import Ranker
from cfuica.settings import RankingSettings
from cfuica.training.batches import Block, Dropout, Estimator, hidden_units
from cfuica.training.catalogue_softmax import catalogue_loss_and_gradients
from cfuica.training.checkpoint import Checkpointer
from cfuica.training.ensemble import merge
from cfuica.training.gradients import GradientBuffers, Gradients, block_loss_and_gradients
from cfuica.training.orderings import UserBlocks, blocks_per_epoch, whole_histories
from cfuica.training.trainer import (
    SEEDS_APART,
    Callback,
    Progress,
    Validator,
    train_networks,
    usable_device,
)

CUT_OFF = 10  # of the validation metrics


@dataclass(frozen=True)
class NextItems:
    """The next interactions of P users: one item for each."""

    users_p: np.ndarray
    items_p: np.ndarray

    @classmethod
    def last_of(cls, following: Timeline) -> NextItems:
        """The last interaction of each user who has one."""
        users_p = np.flatnonzero(np.diff(following.offsets)).astype(np.int32)
        return cls(users_p, following.items[following.offsets[users_p + 1] - 1])


@dataclass(frozen=True)
class RankingFitted:
    """A trained model and its training; `settings` have every default resolved."""

    model: Network
    settings: RankingSettings
    history: list[Progress]
    steps: int
    seconds: float
    seconds_in_steps: float
    # There is no cold-start network: the ranking model needs no row for a user, only a history.
    cold_start: ClassVar[None] = None

    @property
    def last(self) -> Progress:
        """The last progress."""
        return self.history[-1]


def train_ranking(
    timeline: Timeline,
    settings: RankingSettings,
    *,
    valid: NextItems | None = None,
    callback: Callback | None = None,
    checkpointer: Checkpointer | None = None,
) -> RankingFitted:
    """Fit a model to the users' histories; validate on their next interactions."""
    if timeline.n_interactions == 0:
        raise SettingsError("There is no interaction to train on; give more data.")
    settings = settings.settled(blocks_per_epoch(timeline, settings))
    callback = callback or Callback()
    callback.started(settings)
    if valid is not None and len(valid.users_p) == 0:
        valid = None
    task = RankingTask(timeline, timeline.by_item(), settings, valid)
    trained = train_networks(task, callback, checkpointer or Checkpointer())
    networks = [Network.of_tensors(each, settings.activation) for each in trained.networks]
    return RankingFitted(
        model=merge(networks),
        settings=settings,
        history=trained.history,
        steps=trained.steps,
        seconds=trained.seconds,
        seconds_in_steps=trained.seconds_in_steps,
    )


@dataclass(frozen=True)
class RankingTask:
    """An ensemble whose members differ in their seed only."""

    timeline: Timeline
    by_item: LabelledCsr
    settings: RankingSettings
    valid: NextItems | None

    def settings_of(self, network: int) -> RankingSettings:
        return self.settings.replaced(seed=self.settings.seed + SEEDS_APART * network)

    def new_model(self, network: int) -> Network:
        settings = self.settings_of(network)
        return Network.initial(
            n_users=self.timeline.n_users,
            n_items=self.timeline.n_items,
            n_labels=1,
            hidden=hidden_units(settings),
            activation=settings.activation,
            share=False,
            seed=settings.seed,
            learns_decay=settings.learned_decay,
            layer_units=settings.residual_units,
        ).to(usable_device(settings.device))

    def blocks(self, network: int) -> Estimator:
        settings = self.settings_of(network)
        blocks = UserBlocks(self.timeline, self.by_item, settings)
        if settings.dropout == 0:
            return blocks
        return Dropout(
            blocks, settings.dropout, hidden_units(settings), settings.seed, settings.residual_units
        )

    def loss_and_gradients(
        self, network: int, model: Network, block: Block, buffers: GradientBuffers
    ) -> tuple[float, Gradients]:
        factor = 1.0 / max(len(block.labels), 1)  # the mean over all pairs, negatives among them
        if self.settings.loss != "bernoulli":
            return catalogue_loss_and_gradients(model, block, factor=factor, buffers=buffers)
        return block_loss_and_gradients(
            model, block, factor=factor, ordinal_weight=None, share=False, buffers=buffers
        )

    def validator(self, network: int) -> Validator | None:
        if self.valid is None:
            return None
        valid = self.valid
        users = np.arange(self.timeline.n_users, dtype=np.int32)
        histories = whole_histories(self.timeline, users)
        ranking_test = RankingTest.among_unseen(
            "validation",
            valid.users_p,
            Csr.of_pairs(np.arange(len(valid.users_p)), valid.items_p, len(valid.users_p)),
            seen=Csr.of_pairs(self.timeline.users, self.timeline.items, len(users)).take(
                valid.users_p
            ),
            catalogue_m=np.ones(self.timeline.n_items, np.bool_),
        )

        def validate(model: Network) -> RankingScores:
            ranker = Ranker.of(model, histories, self.by_item, users)
            found = answer(ranking_test, ranker, (CUT_OFF,))
            ndcg, hr = (found.value(f"{metric}@{CUT_OFF}") for metric in ("ndcg", "hr"))
            return RankingScores(ndcg, hr, len(valid.users_p))

        return validate
