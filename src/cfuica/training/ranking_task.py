"""Training of the ranking model: its networks, their minibatches, loss and validation.

`train_ranking` fits an ensemble to the histories of users, and validates it by the rank of each
user's next item among all items that the user has not interacted with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import Csr, LabelledCsr, Timeline
from cfuica.errors import SettingsError
from cfuica.metrics.ranking_metrics import (
    RankingResult,
    RankingScores,
    RankingTest,
    answer,
    sampled_hr,
)
from cfuica.model.network import Network, Ranker, hidden_units
from cfuica.ops.loss import bernoulli_loss, catalogue_softmax
from cfuica.ops.tables import Bags, Histories, SideName
from cfuica.settings import RankingSettings, ValidatedBy
from cfuica.training.batches import Block, Dropout, Estimator
from cfuica.training.budget import Sizes, agree
from cfuica.training.checkpoint import Checkpointer
from cfuica.training.orderings import UserBlocks, blocks_per_epoch, whole_histories
from cfuica.training.starting_factors import start_from_factors
from cfuica.training.trainer import (
    SEEDS_APART,
    Callback,
    Pause,
    Trained,
    Validator,
    merge,
    train_networks,
    usable_device,
)

CUT_OFF = 10  # of the validation metrics
SAMPLED = 100  # items beside the next one, where validation is among sampled items
# A validation with more scores than this ranks for a sample of users, in a few seconds.
SCORES_PER_VALIDATION = 1_000_000_000
_SAMPLE = 0x5A3E  # separates this draw from others of the same seed


@dataclass(frozen=True)
class NextItems:
    """The next interactions of P users: one item for each."""

    users_p: np.ndarray
    items_p: np.ndarray

    @classmethod
    def last_of(cls, following: Timeline) -> NextItems:
        """The last interaction of each user who has one, of those that are not context only."""
        users, items = following.users, following.items
        if following.weights is not None:
            users, items = users[following.weights > 0], items[following.weights > 0]
        users_p, first = np.unique(users, return_index=True)
        return cls(users_p, items[np.append(first[1:], len(items)) - 1])

    def sample(
        self, n_items: int, callback: Callback, seed: int = 0, most: int | None = None
    ) -> NextItems:
        """All of them, or those of a sample of users for whom about `most` scores are computed."""
        most = SCORES_PER_VALIDATION if most is None else most
        count = max(1, most // max(n_items, 1))
        if len(self.users_p) <= count:
            return self
        rng = np.random.Generator(np.random.PCG64([seed, _SAMPLE]))
        own = np.sort(rng.choice(len(self.users_p), count, replace=False))
        # A number from 0 to 1 has a standard deviation of at most a half.
        callback.note(
            f"Validation ranks the items for a sample of {count:,} of {len(self.users_p):,} users; "
            f"its NDCG is within {0.98 / count**0.5:.3f} of that of all (95%)."
        )
        return NextItems(self.users_p[own], self.items_p[own])


def train_ranking(
    timeline: Timeline,
    settings: RankingSettings,
    *,
    valid: NextItems | None = None,
    loss: Callable[..., Tensor] | None = None,
    callback: Callback | None = None,
    checkpointer: Checkpointer | None = None,
) -> Trained:
    """Fit networks to the users' histories; validate on their next interactions.

    `loss` stands in for that of the settings, with the arguments of `bernoulli_loss` or of
    `catalogue_softmax`."""
    if timeline.n_interactions == 0:
        raise SettingsError("There is no interaction to train on; give more data.")
    if timeline.weights is not None and not timeline.weights.any():
        raise SettingsError("All interactions are context only; choose a type as the target.")
    settings = settings.settled(timeline.size)
    if settings.ordering == "masked" and (settings.batch_items or 0) >= timeline.n_items:
        raise SettingsError(
            f"ordering=masked reads the items outside a minibatch, but batch_items="
            f"{settings.batch_items} has all {timeline.n_items} items in each; give a smaller one."
        )
    settings = settings.planned(blocks_per_epoch(timeline, settings))
    callback = callback or Callback()
    callback.started(settings)
    if valid is not None:
        valid = valid.sample(timeline.n_items, callback, settings.seed)
    n_valid = 0 if valid is None else len(valid.users_p)
    sizes = Sizes(timeline.n_users, timeline.n_items, timeline.n_interactions, 1, n_valid)
    agree(settings, sizes, callback)
    task = RankingTask.of(timeline, settings, valid=valid, loss=loss)
    return train_networks(task, callback, checkpointer or Checkpointer())


# The share of the items, those with the fewest interactions, whose mean bias a new item has.
RAREST = 0.1


def trained_network(
    trained: Trained, timeline: Timeline
) -> tuple[Network, dict[SideName, np.ndarray]]:
    """The network of a training, and the table row of each user and item.

    The cold-start row is the mean row of the users, or items, with interactions. Its item bias is
    the mean of the items with the fewest interactions, because a bias is an item's popularity. A
    user without a training interaction is a cold-start user. An item without one keeps its own
    bias, which has learned that the item is not chosen, but its row of W has learned nothing and
    becomes the cold-start row."""
    settings = trained.settings
    assert isinstance(settings, RankingSettings)
    networks = []
    for weights in trained.weights:
        networks.append(_shape(timeline, settings))
        networks[-1].load_state_dict(weights)
    members = settings.ensemble_size
    network = networks[0]
    if members > 1:
        network = merge(networks, _shape(timeline, settings, members=members))
    active = np.flatnonzero(np.diff(timeline.offsets))
    support_m = np.bincount(timeline.items, minlength=timeline.n_items)
    rows: dict[SideName, np.ndarray] = {
        "users": np.full(timeline.n_users, timeline.n_users, np.int32),
        "items": np.arange(timeline.n_items, dtype=np.int32),
    }
    rows["users"][active] = active
    if network.users is not None:
        network.users.share_the_mean(active)
    if network.items is not None:
        seen = np.flatnonzero(support_m)
        network.items.share_the_mean(seen)
        by_support = seen[np.argsort(support_m[seen], kind="stable")]
        bias, encoder = network.items.b.array, network.items.W.array
        rarest = by_support[: max(1, round(RAREST * len(seen)))]
        bias[-1] = bias[rarest].mean(0, dtype=np.float64)
        encoder[:-1][support_m == 0] = encoder[-1]
    return network, rows


def _shape(timeline: Timeline, settings: RankingSettings, *, members: int = 1) -> Network:
    """A network of zeros for this timeline's users and items."""
    rows: dict[SideName, int] = {"users": timeline.n_users + 1, "items": timeline.n_items + 1}
    return Network.of(settings, rows, 1, members=members)


@dataclass(frozen=True)
class RankingTask:
    """An ensemble whose members differ in their seed only."""

    timeline: Timeline
    by_item: LabelledCsr
    settings: RankingSettings
    valid: NextItems | None
    loss_function: Callable[..., Tensor]

    @classmethod
    def of(
        cls,
        timeline: Timeline,
        settings: RankingSettings,
        *,
        valid: NextItems | None = None,
        loss: Callable[..., Tensor] | None = None,
    ) -> RankingTask:
        """`loss` stands in for that of the settings."""
        if valid is not None and len(valid.users_p) == 0:
            valid = None
        loss = loss or (bernoulli_loss if settings.loss == "bernoulli" else catalogue_softmax)
        return cls(timeline, timeline.by_item(), settings, valid, loss)

    def settings_of(self, network: int) -> RankingSettings:
        return self.settings.replaced(seed=self.settings.seed + SEEDS_APART * network)

    def new_network(self, network: int) -> Network:
        settings = self.settings_of(network)
        device = usable_device(settings.device)
        shape = _shape(self.timeline, settings).initialise(settings.seed)
        if settings.start_from_biases and shape.items is not None:
            # One interaction more each, so that an item without any has a bias, too.
            counts_m = np.bincount(self.timeline.items, minlength=self.timeline.n_items) + 1.0
            start_m = torch.from_numpy(np.log(counts_m / counts_m.mean()))
            shape.items.b.values[:-1, 0, 0] = start_m
        if settings.start_from_factors and shape.items is not None:
            start_from_factors(
                shape.items, self.timeline, self.by_item, settings.start_from_factors, settings.seed
            )
        return shape.to(device)

    def blocks(self, network: int) -> Estimator:
        settings = self.settings_of(network)
        blocks = UserBlocks(self.timeline, self.by_item, settings)
        if settings.dropout == 0:
            return blocks
        return Dropout(
            blocks, settings.dropout, hidden_units(settings), settings.seed, settings.residual_units
        )

    def loss(self, network: Network, block: Block) -> tuple[Tensor, float]:
        hidden = network.encode(block.contexts, block.keeps)
        count = float(max(len(block.labels), 1))  # all pairs, negatives among them
        if block.targets is None:
            # A loss of one's own needs no weights where the data has none.
            weights = () if block.weights is None else (block.weights,)
            logits_p1 = network(block.pairs, hidden)
            return self.loss_function(logits_p1, block.labels, *weights), count
        factors = network.factors(
            block.pairs.users.rows,
            block.pairs.items.rows,
            hidden,
            block.contexts["items"].n_rows,
        )
        total = self.loss_function(*factors, block.targets)
        return total, count

    def validator(self, network: int) -> Validator | None:
        if self.valid is None:
            return None
        valid, timeline = self.valid, self.timeline
        contexts = whole_contexts(timeline, self.by_item)
        ranking_test = RankingTest.among_unseen(
            "validation",
            valid.users_p,
            Csr.of_pairs(np.arange(len(valid.users_p)), valid.items_p, len(valid.users_p)),
            seen=Csr.of_pairs(timeline.users, timeline.items, timeline.n_users).take(valid.users_p),
            catalogue_m=np.ones(timeline.n_items, np.bool_),
        )

        def validate(network: Network, pause: Pause = lambda share: None) -> RankingScores:
            scorer = _Pausing(ranker(network, contexts), len(valid.users_p), pause)
            found = answer(ranking_test, scorer, (CUT_OFF,))
            return validation_scores(found, self.settings.validated_by)

        return validate


def validation_scores(found: RankingResult, by: ValidatedBy) -> RankingScores:
    """The scores of a validation among all unseen items, to be judged as the settings say."""
    ranks = found.ranks[0]
    sampled = float(sampled_hr(ranks, CUT_OFF, SAMPLED).mean()) if by == "sampled-hr" else None
    ndcg, hr = (found.value(f"{metric}@{CUT_OFF}") for metric in ("ndcg", "hr"))
    return RankingScores(ndcg, hr, len(ranks.relevant_u), sampled)


@dataclass
class _Pausing:
    """A ranker of so many users in all that pauses before each block of them but the first."""

    ranker: Ranker
    users: int
    pause: Pause
    done: int = 0

    def scores(self, users_b: np.ndarray) -> np.ndarray:
        if self.done:
            self.pause(self.done / self.users)
        self.done += len(users_b)
        return self.ranker.scores(users_b)

    def candidate_scores(self, users_b: np.ndarray, items_bc: np.ndarray) -> np.ndarray:
        return self.ranker.candidate_scores(users_b, items_bc)


def whole_contexts(timeline: Timeline, by_item: LabelledCsr) -> dict[SideName, Bags | Histories]:
    """The contexts that predict the next item of every user: all interactions."""
    histories = whole_histories(timeline, np.arange(timeline.n_users, dtype=np.int32))
    return {
        "items": histories.only(histories.last_positions)[0],
        "users": Bags(by_item.offsets, by_item.indices),
    }


@torch.no_grad()
def ranker(network: Network, contexts: Mapping[SideName, Bags | Histories]) -> Ranker:
    """The scores of all items for all users, from `whole_contexts`."""
    hidden = network.encode(contexts)
    users, items = (np.arange(contexts[name].n_rows) for name in ("items", "users"))
    return Ranker(
        network.user_vectors(users, hidden.get("items")),
        network.item_vectors(items, hidden.get("users")),
        network.item_bias(items),
    )
