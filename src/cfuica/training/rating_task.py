"""Training of the rating model: its networks, their minibatches, loss and validation.

`train` fits an ensemble that predicts for warm users and items, and, where the settings ask for
it, a cold-start network that predicts where the user or the item is cold. `trained_networks` makes
networks of the weights, and `calibrate` fits their calibration on the validation set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import InteractionMatrix, LabelledCsr, RatedPairs
from cfuica.errors import SettingsError
from cfuica.metrics.rating_metrics import (
    CalibrationScores,
    RatingScores,
    calibration_scores,
    rating_scores,
)
from cfuica.model.calibration import Calibration
from cfuica.model.network import Network, hidden_units, softmax
from cfuica.model.shared_rows import SharedRows
from cfuica.ops import running_sums, sampling
from cfuica.ops.loss import rating_loss
from cfuica.ops.tables import OTHER, SIDES, Bags, Pairs, SideName
from cfuica.settings import RatingSettings
from cfuica.training.batches import (
    SHORT_CONTEXTS,
    Block,
    ColdStartMasking,
    Dropout,
    Estimator,
    make_estimator,
)
from cfuica.training.checkpoint import Checkpointer
from cfuica.training.starting_biases import add_biases, starting_biases
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

# Of the sides whose users or items share rows.
Shared = Mapping[SideName, SharedRows]
# The sum of the losses of P pairs, a scalar, from their logits (P, K) and labels (P).
PairLoss = Callable[[Tensor, np.ndarray], Tensor]


def train(
    matrix: InteractionMatrix,
    settings: RatingSettings,
    values_k: np.ndarray,
    *,
    valid: RatedPairs | None = None,
    loss: PairLoss | None = None,
    callback: Callback | None = None,
    checkpointer: Checkpointer | None = None,
    shared: Shared | None = None,
) -> Trained:
    """Fit networks to `matrix`; validate on `valid`, conditioned on `matrix` only.

    `values_k` (K) are the ratings that the labels stand for. `loss` stands in for that of the
    settings. The `checkpointer` saves the training, and restores an earlier one. `shared` are the
    rows that users or items share."""
    if matrix.n_interactions == 0:
        raise SettingsError("There is no interaction to train on; give more data or fewer folds.")
    settings = settings.settled(matrix.size)
    callback, checkpointer = callback or Callback(), checkpointer or Checkpointer()
    callback.started(settings)
    task = RatingTask.of(matrix, settings, values_k, valid=valid, loss=loss, shared=shared)
    return train_networks(task, callback, checkpointer)


def trained_networks(
    trained: Trained,
    matrix: InteractionMatrix,
    shared: Shared | None = None,
    *,
    take: bool = False,
) -> tuple[dict[str, Network], dict[SideName, np.ndarray]]:
    """The networks of a training by name, "warm" and perhaps "cold_start", and the row of each user
    and item: the shared row, which is the last, for those without an interaction.

    With `take` the networks have the tensors of the training itself, which saves memory."""
    shared = shared or {}
    settings = trained.settings
    assert isinstance(settings, RatingSettings)
    networks = []
    for number, weights in enumerate(trained.weights):
        network = _shape(matrix, settings, shared, cold_start=settings.is_cold_start(number))
        network.load_state_dict(weights, assign=take)
        networks.append(network)
    members = settings.ensemble_size
    found = {"warm": networks[0]}
    if members > 1:
        found["warm"] = merge(networks[:members], _shape(matrix, settings, shared, members=members))
    if settings.cold_start_units:
        found["cold_start"] = networks[-1]
    rows: dict[SideName, np.ndarray] = {}
    for name in SIDES:
        is_warm = matrix.by(name).sizes > 0
        own = np.arange(len(is_warm), dtype=np.int32)
        shared_row = len(is_warm) if name not in shared else shared[name].n_rows - 1
        rows[name] = np.where(is_warm, own, np.int32(shared_row))
        # The shared row is the mean of the warm ones, except V and b of the cold-start network,
        # which it has learned.
        for kind, network in found.items():
            if name in network.sides:
                tables = ("W", "V", "b") if kind == "warm" else ("W",)
                network.sides[name].share_the_mean(np.flatnonzero(is_warm), tables)
                network.sides[name].average_clusters(is_warm)
    return found, rows


@dataclass(frozen=True)
class RatingTask:
    """An ensemble for warm users and items and, last, perhaps a cold-start network."""

    matrix: InteractionMatrix
    settings: RatingSettings
    values_k: np.ndarray | None
    valid: RatedPairs | None
    pair_loss: PairLoss
    shared: Shared

    @classmethod
    def of(
        cls,
        matrix: InteractionMatrix,
        settings: RatingSettings,
        values_k: np.ndarray | None = None,
        *,
        valid: RatedPairs | None = None,
        loss: PairLoss | None = None,
        shared: Shared | None = None,
    ) -> RatingTask:
        """`values_k` (K) are the ratings that the labels stand for, which validation needs; `loss`
        stands in for that of the settings; `shared` are the rows that users or items share."""
        loss = loss or partial(rating_loss, ordinal_weight=settings.ordinal_weight)
        valid = valid if valid is not None and valid.n else None
        return cls(matrix, settings, values_k, valid, loss, shared or {})

    def settings_of(self, network: int) -> RatingSettings:
        # Ensemble members differ in their seed only, that is in initial values and blocks.
        return self.settings.replaced(seed=self.settings.seed + SEEDS_APART * network)

    def new_network(self, network: int) -> Network:
        settings, cold_start = self.settings_of(network), self.settings.is_cold_start(network)
        device = usable_device(settings.device)
        shape = _shape(self.matrix, settings, self.shared, cold_start=cold_start)
        shape.initialise(settings.seed)
        if settings.start_from_biases and self.values_k is not None:
            add_biases(shape, starting_biases(self.matrix, self.values_k))
        return shape.to(device)

    def blocks(self, network: int) -> Estimator:
        settings = self.settings_of(network)
        cold_start = self.settings.is_cold_start(network)
        short_contexts = SHORT_CONTEXTS if cold_start else 0.0
        estimator = make_estimator(
            self.matrix, settings, short_contexts=short_contexts, shared=self.shared
        )
        if cold_start:
            rows = row_counts(self.matrix, self.shared)
            shared_rows = {name: count - 1 for name, count in rows.items()}
            estimator = ColdStartMasking(estimator, shared_rows, settings.seed)
        if settings.dropout == 0:
            return estimator
        hidden = hidden_units(settings, cold_start=cold_start)
        return Dropout(estimator, settings.dropout, hidden, settings.seed)

    def loss(self, network: Network, block: Block) -> tuple[Tensor, float]:
        logits_pk = network(block.pairs, network.encode(block.contexts, block.keeps))
        return self.pair_loss(logits_pk, block.labels), self.count(block)

    def count(self, block: Block) -> float:
        """What the sum of a block's losses is divided by.

        Strict: the factor of Eqn. (12) per interaction, so that rates and penalties mean the same
        for every size of data. Published: the block's pairs.
        """
        if self.settings.estimator == "strict":
            return self.matrix.n_interactions / block.scale
        return float(max(block.pairs.size, 1))

    def validator(self, network: int) -> Validator | None:
        if self.valid is None or self.values_k is None:
            return None
        as_cold = self.settings.is_cold_start(network)
        return make_validator(
            self.matrix, self.valid, self.values_k, as_cold=as_cold, shared=self.shared
        )


def row_counts(matrix: InteractionMatrix, shared: Shared) -> dict[SideName, int]:
    """The rows of b of each side: one for each user or item, for each cluster, and the shared."""
    own = {name: matrix.by(name).n_rows + 1 for name in SIDES}
    return own | {name: each.n_rows for name, each in shared.items()}


def _shape(
    matrix: InteractionMatrix,
    settings: RatingSettings,
    shared: Shared,
    *,
    cold_start: bool = False,
    members: int = 1,
) -> Network:
    """A network of zeros for this matrix's users and items."""
    # The contexts of a side are rows of the other side; the empty ones do not count.
    sizes = {side: matrix.by(OTHER[side]).sizes for side in SIDES}
    typical = {side: matrix.n_interactions / max(1, int((sizes[side] > 0).sum())) for side in SIDES}
    return Network.of(
        settings,
        row_counts(matrix, shared),
        matrix.n_labels,
        members=members,
        cold_start=cold_start,
        typical=typical,
        shared=shared,
    )


# A validation that reads more interactions than this predicts a sample, in a few seconds.
ENTRIES_PER_VALIDATION = 30_000_000


def validation_sample(
    valid: RatedPairs,
    matrix: InteractionMatrix,
    callback: Callback,
    seed: int = 0,
    most: int = ENTRIES_PER_VALIDATION,
) -> RatedPairs:
    """The pairs to validate on: all, or those between a sample of users and of items, whose
    contexts together have about `most` interactions."""
    users, items = np.unique(valid.users_p), np.unique(valid.items_p)
    entries = int(matrix.by_user.sizes[users].sum() + matrix.by_item.sizes[items].sum())
    if entries <= most:
        return valid
    rng = np.random.Generator(np.random.PCG64([seed, _SAMPLE]))
    users, items = (
        rng.choice(present, max(1, round(len(present) * most / entries)), replace=False)
        for present in (users, items)
    )
    own = np.flatnonzero(np.isin(valid.users_p, users) & np.isin(valid.items_p, items))
    if not len(own):
        return valid
    # The error of a mean of n squares of normal errors.
    interval = 1.96 / (2 * len(own)) ** 0.5
    callback.note(
        f"Validation predicts a sample of {len(own):,} of {valid.n:,} ratings; its RMSE is within "
        f"{interval:.1%} of that of all (95%)."
    )
    users_p, items_p = valid.users_p[own], valid.items_p[own]
    return RatedPairs(users_p, items_p, valid.labels_p[own], valid.ratings_p[own])


_SAMPLE = 0x5A3E  # separates this draw from others of the same seed

# Entries that are encoded at a time in a validation, well under a second.
ENTRIES_PER_PART = 1 << 20


def make_validator(
    matrix: InteractionMatrix,
    valid: RatedPairs,
    values_k: np.ndarray,
    *,
    as_cold: bool = False,
    shared: Shared | None = None,
) -> Validator:
    """Scores of a network on rated pairs, predicted from the interactions of `matrix`.

    With `as_cold` every user is cold-start: the shared row, with the user's history.
    """
    rows: dict[SideName, np.ndarray] = {
        "users": np.arange(matrix.n_users, dtype=np.int32),
        "items": np.arange(matrix.n_items, dtype=np.int32),
    }
    shared = shared or {}
    if as_cold:
        rows["users"][:] = row_counts(matrix, shared)["users"] - 1  # the shared row
    pairs, contexts = pair_contexts(matrix, valid.users_p, valid.items_p, rows, shared)

    parts = {name: bags.split(ENTRIES_PER_PART) for name, bags in contexts.items()}

    def validate(network: Network, pause: Pause = lambda share: None) -> RatingScores:
        own = {name: parts[name] for name in network.sides}
        total, done = sum(map(len, own.values())), 0
        hidden: dict[SideName, Tensor] = {}
        for name, several in own.items():
            encoded = []
            for part in several:
                if done and total > len(own):  # a short one is not divided
                    pause(done / total)
                encoded.append(network.encode_side(name, part))
                done += 1
            hidden[name] = torch.cat(encoded) if len(encoded) > 1 else encoded[0]
        p_pk = softmax(network(pairs, hidden).cpu().numpy())
        return rating_scores(p_pk, valid.labels_p, values_k, valid.ratings_p)

    return validate


def pair_contexts(
    matrix: InteractionMatrix,
    users_p: np.ndarray,
    items_p: np.ndarray,
    rows: Mapping[SideName, np.ndarray],
    shared: Shared | None = None,
) -> tuple[Pairs, dict[SideName, Bags]]:
    """Pairs of int32 indices, and their contexts: all other interactions of `matrix`.

    This is the paper's deterministic prediction. `rows` are the rows of all users and items,
    `shared` those of W that they share.
    """
    shared = shared or {}
    seen = matrix.by_user
    entry_p = running_sums.find(seen.offsets[:-1], seen.sizes, seen.indices, users_p, items_p)
    # An observed pair gets queries of its own, encoded without it; all others share one query per
    # user and one per item.
    users, user_of_pair, without_item = _queries(users_p, items_p, entry_p >= 0)
    items, item_of_pair, without_user = _queries(items_p, users_p, entry_p >= 0)
    pairs = Pairs.between(rows["users"][users], rows["items"][items], user_of_pair, item_of_pair)
    return pairs, {
        "users": _bags(matrix.by_item, items, without_user, matrix.n_labels, shared.get("users")),
        "items": _bags(matrix.by_user, users, without_item, matrix.n_labels, shared.get("items")),
    }


def _queries(
    own_p: np.ndarray, other_p: np.ndarray, observed_p: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The user or item of each query, each pair's query, and which index a query leaves out (-1:
    none)."""
    shared, query_of_pair = np.unique(own_p, return_inverse=True)
    query_of_pair = query_of_pair.astype(np.int32)
    observed = np.flatnonzero(observed_p)
    query_of_pair[observed] = len(shared) + np.arange(len(observed), dtype=np.int32)
    ids = np.concatenate((shared, own_p[observed])).astype(np.int32)
    without = np.concatenate((np.full(len(shared), -1), other_p[observed])).astype(np.int32)
    return ids, query_of_pair, without


def _bags(
    rows: LabelledCsr,
    ids: np.ndarray,
    without: np.ndarray,
    n_labels: int,
    shared: SharedRows | None,
) -> Bags:
    offsets, entries = sampling.whole_contexts(
        rows.offsets, rows.indices, rows.labels, ids, without, n_labels
    )
    return Bags(offsets, entries if shared is None else shared.entries(entries, n_labels))


@torch.no_grad()
def calibrate(
    networks: dict[str, Network],
    rows: dict[SideName, np.ndarray],
    matrix: InteractionMatrix,
    valid: RatedPairs | None,
    values_k: np.ndarray,
) -> tuple[dict[str, Calibration], dict[str, Mapping[str, CalibrationScores]]]:
    """The calibration of each network, and its scores on the validation set: "before" and "after"
    calibration or, where it changes nothing, "uncalibrated"; none without a validation set.

    Each is calibrated on its predictions of the validation set given the train set, for the kind of
    pairs that it predicts: the cold-start network sees every user as a cold-start user.
    """
    calibrations = {name: Calibration() for name in networks}
    checks: dict[str, Mapping[str, CalibrationScores]] = {name: {} for name in networks}
    if valid is None:
        return calibrations, checks
    for name, network in networks.items():
        own_rows, chosen_p = rows, np.ones(valid.n, np.bool_)
        shared = {
            axis: side.shared for axis, side in network.sides.items() if side.shared is not None
        }
        if name == "cold_start":
            shared_row = row_counts(matrix, shared)["users"] - 1
            own_rows = {**rows, "users": np.full_like(rows["users"], shared_row)}
        elif len(networks) > 1:
            for side, index_p in (("users", valid.users_p), ("items", valid.items_p)):
                if side in network.sides:
                    chosen_p &= rows[side][index_p] != network.sides[side].shared_row
        if not chosen_p.any():
            continue
        pairs, contexts = pair_contexts(
            matrix, valid.users_p[chosen_p], valid.items_p[chosen_p], own_rows, shared
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
