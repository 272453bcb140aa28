"""Blocks, the networks that they train, and the gradients of their losses, in tests' own words."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cfuica.model.network import Network
from cfuica.ops import reference
from cfuica.ops.loss import rating_loss
from cfuica.settings import RankingSettings, RatingSettings
from cfuica.training.batches import Block, ColdStartMasking, Dropout, cut_block
from cfuica.training.ranking_task import RankingTask
from cfuica.training.rating_task import RatingTask
from cfuica.training.trainer import TrainingTask
from tests.model.reference import Reference, matrix_of, mixed, random_cells
from tests.training.histories import timeline_of

SIDES = {"both": ("users", "items"), "users": ("users",), "items": ("items",)}


@dataclass
class Fixed:
    """An estimator with one block."""

    block: Block

    def draw(self, step: int) -> Block:
        return self.block


@dataclass
class Case:
    """A block of a random matrix, and the parameters it is computed with."""

    cells: dict[tuple[int, int], int]
    truth: Reference
    block: Block
    users: list[int]
    items: list[int]
    open_users: list[int]
    open_items: list[int]
    cold: dict[tuple[int, int], tuple[int, int]]

    def defined_loss(self, ordinal_weight: float) -> float:
        """By the second reading of the paper."""
        return self.truth.block_loss(
            self.cells, self.users, self.items, self.open_users, self.open_items,
            mixed(ordinal_weight), self.cold,
        )  # fmt: skip


def make_case(
    *, n_users=5, n_items=6, n_labels=3, sides="both", hidden=(3, 2), observed=22,
    batch=(3, 3), activation="tanh", share=True, overlap=False, spread=0.7, dropout=0.0, seed=0,
    powers=(0.0, 0.0), cold_start=False,
) -> Case:  # fmt: skip
    """`overlap`: also the block's own users and items are context, which the gradient allows;
    `powers` are those of the two sides' length normalisation; `cold_start`: in every pair, or in
    none."""
    rng = np.random.default_rng(seed)
    cells = random_cells(n_users, n_items, n_labels, observed, seed)
    lists = []
    for size, chosen in zip((n_users, n_items), batch, strict=True):
        order = rng.permutation(size)
        lists.append((order[:chosen], order if overlap else order[chosen:]))
    (users, open_users), (items, open_items) = lists
    block = cut_block(
        matrix_of(cells, n_users, n_items, n_labels),
        users.astype(np.int32),
        items.astype(np.int32),
        sides=SIDES[sides],
        open_users=np.isin(np.arange(n_users), open_users),
        open_items=np.isin(np.arange(n_items), open_items),
        keep_users=1.0,
        keep_items=1.0,
        key=0,
        scale=1.0,
    )
    units = dict(zip(("users", "items"), hidden, strict=True))
    truth = Reference.random(
        n_users, n_items, n_labels, {side: units[side] for side in SIDES[sides]},
        activation=activation, share=share, spread=spread, seed=seed,
        length_norms={"users": (powers[0], 1.5), "items": (powers[1], 4.0)},
    )  # fmt: skip
    cold = {}
    if cold_start:
        own = pair_rows(block)
        block = ColdStartMasking(Fixed(block), {"users": n_users, "items": n_items}, seed).draw(0)
        cold = dict(zip(own, pair_rows(block), strict=True))
    if dropout:
        block = Dropout(Fixed(block), dropout, units, seed).draw(0)
    parts = (users, items, open_users, open_items)
    return Case(cells, truth, block, *(part.tolist() for part in parts), cold)


def pair_rows(block: Block) -> list[tuple[int, int]]:
    """The rows of each pair's user and item."""
    rows = (block.pairs.users.row_of_pair, block.pairs.items.row_of_pair)
    return list(zip(*(each.tolist() for each in rows), strict=True))


def rating_loss_of(network: Network, block: Block, ordinal_weight: float = 1.0) -> torch.Tensor:
    logits_pk = network(block.pairs, network.encode(block.contexts, block.keeps))
    return rating_loss(logits_pk, block.labels, ordinal_weight)


def gradients_of(network: Network) -> dict[str, np.ndarray]:
    """The whole gradient of each stored parameter, by name; rows without one have zeros."""
    tables = {f"{k}.values": table.dense_gradient() for k, table in network.tables.items()}
    others = {
        name: torch.zeros_like(own) if own.grad is None else own.grad
        for name, own in network.named_parameters()
    }
    return {name: grad.double().numpy().copy() for name, grad in (tables | others).items()}


def stored_of(network: Network) -> dict[str, np.ndarray]:
    """The stored parameters by name, in float64."""
    shares = {f"{name}.values" for name, table in network.tables.items() if table.share}
    return {
        name: (reference.differences(own.double()) if name in shares else own.double())
        .numpy()
        .copy()
        for name, own in network.state_dict().items()
    }


def clear(network: Network) -> None:
    """Forget the gradients."""
    network.zero_grad()
    for table in network.tables.values():
        table.gradient = None


# A toy of each kind of training: its task, and the number of the network.
RATING = RatingSettings(
    hidden_users=6, hidden_items=5, batch_users=10, batch_items=8, learning_rate=0.02,
    schedule="planned", max_steps=8, validate_every=3,
)  # fmt: skip
RANKING = RankingSettings(
    hidden_users=6, hidden_items=5, batch_users=5, learning_rate=0.02, l2=1e-3, epsilon=1e-4,
    schedule="planned", max_steps=8, validate_every=3, drop_interactions=0.1, drop_users=0.2,
)  # fmt: skip
KINDS: dict[str, tuple[RatingSettings | RankingSettings, int]] = {
    "rating": (RATING, 0),
    "cold start": (
        RATING.replaced(
            cold_start_units=4, bilinear_rate=0.5, dropout=0.2, length_normalisation=0.5
        ),
        1,
    ),
    "softmax": (RANKING.replaced(learned_decay=True, residual_units=4, dropout=0.1), 0),
    "sampled softmax": (RANKING.replaced(loss="sampled-softmax", softmax_candidates=6), 0),
    "bernoulli": (RANKING.replaced(loss="bernoulli", negatives=2, batch_items=5), 0),
}


def task_of(kind: str, **changes: Any) -> tuple[TrainingTask, int]:
    settings, number = KINDS[kind]
    settings = settings.replaced(**changes)
    if isinstance(settings, RankingSettings):
        return RankingTask.of(timeline_of(14, 11, 90, seed=0), settings), number
    cells = random_cells(20, 15, 3, 150)
    return RatingTask.of(matrix_of(cells, 20, 15, 3), settings), number


def in_double(network: Network) -> Network:
    """The same in double precision, where ops run by their references."""
    return copy.deepcopy(network).double()
