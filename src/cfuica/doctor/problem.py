"""What the kernels are tried on: a small world, with random parameters for each task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.timeline import Timeline
from cfuica.learning.block import Block, cut_block
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.gain import Gain

USERS, ITEMS, LABELS, BEHAVIOURS = 60, 50, 5, 900
SECONDS = 300
"""In which everything happens: some behaviours of a user have the same time."""


@dataclass(frozen=True)
class Problem:
    """Behaviours as a matrix and in time order, a rating model and a ranking model of them."""

    matrix: BehaviourMatrix
    timeline: Timeline
    model: CoAutoregressive
    ranking_model: CoAutoregressive
    users: np.ndarray
    """Of the block of the matrix; the others are open."""
    items: np.ndarray

    @classmethod
    def make(cls) -> Problem:
        """Always the same, and without a kernel."""
        rng = np.random.default_rng(0)
        cells = rng.permutation(USERS * ITEMS)[:BEHAVIOURS]
        users, items = (cells // ITEMS).astype(np.int32), (cells % ITEMS).astype(np.int32)
        labels = rng.integers(0, LABELS, BEHAVIOURS).astype(np.uint8)
        matrix = BehaviourMatrix.from_triplets(
            users, items, labels, n_users=USERS, n_items=ITEMS, n_labels=LABELS
        )
        halves = [rng.permutation(size).astype(np.int32)[: size // 2] for size in (USERS, ITEMS)]
        model = CoAutoregressive.initial(
            n_users=USERS,
            n_items=ITEMS,
            n_labels=LABELS,
            hidden={"users": 17, "items": 8},
            gains={"users": Gain(0.5, 15.0)},
        )
        ranking_model = CoAutoregressive.initial(
            n_users=USERS,
            n_items=ITEMS,
            n_labels=1,
            hidden={"users": 8, "items": 17},
            share=False,
            remembers=True,
        )
        for each in (model, ranking_model):
            for tensor in each.tensors().values():
                tensor.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(tensor.shape))))
        times = rng.integers(0, SECONDS, BEHAVIOURS)
        timeline = Timeline.of(users, items, times, n_users=USERS, n_items=ITEMS)
        return cls(matrix, timeline, model, ranking_model, *halves)

    @cached_property
    def block(self) -> Block:
        """The behaviours between `users` and `items`, and all those of each with the others."""
        return cut_block(
            self.matrix,
            self.users,
            self.items,
            sides=("users", "items"),
            open_users=~np.isin(np.arange(USERS), self.users),
            open_items=~np.isin(np.arange(ITEMS), self.items),
            keep_users=1.0,
            keep_items=1.0,
            key=0,
            scale=1.0,
        )

    @cached_property
    def label_ui(self) -> np.ndarray:
        """(N, M) the label of every pair, -1 where there is none."""
        label_ui = np.full((USERS, ITEMS), -1)
        user, item, label = self.matrix.triplets()
        label_ui[user, item] = label
        return label_ui
