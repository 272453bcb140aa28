"""The ranking model's task: what its networks are, learn from and are validated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfuica.data.matrix import BehaviourMatrix, CompressedRows
from cfuica.data.timeline import Timeline
from cfuica.errors import SettingsError
from cfuica.evaluation.validation import RankingScores
from cfuica.learning.block import Block
from cfuica.learning.catalogue import catalogue_cost_and_gradients
from cfuica.learning.dropout import Dropout
from cfuica.learning.estimator import Estimator
from cfuica.learning.gradients import GradientBuffers, Gradients, block_cost_and_gradients
from cfuica.learning.merge import merge
from cfuica.learning.orderings import UserBlocks, blocks_per_epoch
from cfuica.learning.progress import Listener, Progress
from cfuica.learning.snapshot import Keeper
from cfuica.learning.trainer import SEEDS_APART, Validator, train_networks, usable_device
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.pairs import SideName
from cfuica.model.ranker import Ranker
from cfuica.settings import RankingSettings

# Users whose scores of all items are in memory at a time while validating.
VALIDATED_AT_ONCE = 512
CUT_OFF = 10


@dataclass(frozen=True)
class NextItems:
    """What some users did next: P users and items, each user once."""

    users_p: np.ndarray
    items_p: np.ndarray


@dataclass(frozen=True)
class RankingFitted:
    """A trained model and how it came about; `settings` have nothing left open."""

    model: CoAutoregressive
    settings: RankingSettings
    history: list[Progress]
    steps: int
    seconds: float
    seconds_in_steps: float


def train_ranking(
    timeline: Timeline,
    settings: RankingSettings,
    *,
    valid: NextItems | None = None,
    listener: Listener | None = None,
    keeper: Keeper | None = None,
) -> RankingFitted:
    """Fit a model to what users did; validate on what they did next."""
    if timeline.n_behaviours == 0:
        raise SettingsError("There is no behaviour to train on; give more data.")
    settings = settings.settled(blocks_per_epoch(timeline, settings))
    listener = listener or Listener()
    listener.started(settings)
    task = RankingTask.of(timeline, settings, valid if valid is not None and len(valid.users_p) else None)
    trained = train_networks(task, listener, keeper or Keeper())
    networks = [CoAutoregressive.of_tensors(each, settings.activation) for each in trained.networks]
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
    """Members that differ in their seed only."""

    timeline: Timeline
    by_item: CompressedRows
    settings: RankingSettings
    valid: NextItems | None

    @classmethod
    def of(
        cls, timeline: Timeline, settings: RankingSettings, valid: NextItems | None
    ) -> RankingTask:
        return cls(timeline, timeline.by_item(), settings, valid)

    @property
    def networks(self) -> int:
        return self.settings.networks

    def is_of_strangers(self, network: int) -> bool:
        return False

    def settings_of(self, network: int) -> RankingSettings:
        return self.settings.replaced(seed=self.settings.seed + SEEDS_APART * network)

    def new_model(self, network: int) -> CoAutoregressive:
        settings = self.settings_of(network)
        return CoAutoregressive.initial(
            n_users=self.timeline.n_users,
            n_items=self.timeline.n_items,
            n_labels=1,
            hidden=self._hidden,
            activation=settings.activation,
            share=False,
            seed=settings.seed,
            input_labels=self.timeline.n_labels if settings.rating_inputs else None,
            remembers=settings.memory,
        ).to(usable_device(settings.device))

    def blocks(self, network: int) -> Estimator:
        settings = self.settings_of(network)
        blocks = UserBlocks(self.timeline, self.by_item, settings)
        if settings.dropout == 0:
            return blocks
        return Dropout(blocks, settings.dropout, self._hidden, settings.seed)

    def cost_and_gradients(
        self, network: int, model: CoAutoregressive, block: Block, buffers: GradientBuffers
    ) -> tuple[float, Gradients]:
        factor = 1.0 / max(int(block.labels.sum()), 1)  # the mean over what was done
        if self.settings.cost == "softmax":
            return catalogue_cost_and_gradients(model, block, factor=factor, buffers=buffers)
        return block_cost_and_gradients(
            model, block, factor=factor, ordinal_weight=None, share=False, buffers=buffers
        )

    def validator(self, network: int) -> Validator | None:
        if self.valid is None:
            return None
        valid = self.valid
        histories = self.timeline.histories(
            valid.users_p, rating_inputs=self.settings.rating_inputs
        )

        def validate(model: CoAutoregressive) -> RankingScores:
            ranker = Ranker.of(model, histories, self.by_item, valid.users_p)
            return ranking_scores(ranker, self.timeline, valid)

        return validate

    @property
    def _hidden(self) -> dict[SideName, int]:
        settings = self.settings
        units: dict[SideName, int] = {
            "users": settings.hidden_users,
            "items": settings.hidden_items,
        }
        return units if settings.sides == "both" else {settings.sides: units[settings.sides]}
