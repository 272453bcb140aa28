"""Matrix factorisation: of ratings by alternating least squares, of rankings by BPR.

Shape suffixes: p ratings or pairs, n rows of the side that is solved, u users, i items, b users of
a block, f features (of ratings the bias first, then the factors).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from cfuica.baselines.contract import (
    UNRATED,
    BaselineSettings,
    Floats,
    Index,
    RankingBaseline,
    RatingBaseline,
    Shapes,
    Singles,
    TrainingData,
)
from cfuica.baselines.iterative import Iterative, IterativeSettings, unseen_items
from cfuica.data.matrix import LabelledCsr
from cfuica.inference.similar import Similarity
from cfuica.ops import bpr
from cfuica.ops.tables import SIDES, SideName
from cfuica.training.alternating_least_squares import factorise
from cfuica.training.checkpoint import Tensors


class BiasedFactorisationSettings(BaselineSettings):
    """Settings of `BiasedFactorisation`."""

    task: ClassVar[str] = "rating"
    model: ClassVar[str] = "biasmf"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 5, 10, 20, 40, 80),
        "l2": ("log", 1.0, 100.0),
        "bias_l2": ("log", 0.5, 50.0),
    }

    factors: int = Field(10, ge=0, description="Factors of a user and of an item.")
    # 0 would leave rows with few ratings undetermined.
    l2: float = Field(12.0, gt=0, description="L2 penalty on the factors.")
    bias_l2: float = Field(5.0, ge=0, description="L2 penalty on the biases.")
    sweeps: int = Field(15, ge=1, description="Passes over users and items.")


class BiasedFactorisation(RatingBaseline):
    """Predicts mean + b_u + b_i + p_u · q_i, inside the range of the ratings.

    Biases and factors are to minimise

        sum over ratings (r - mean - b_u - b_i - p_u · q_i)^2
            + bias_l2 * (|b_U|^2 + |b_I|^2) + l2 * (|P|^2 + |Q|^2).

    A sweep solves every user given the items, then every item given the users, each row exactly: a
    ridge regression of its ratings on the factors of the other side. No half of a sweep raises the
    loss. The item factors that the first sweep starts from are drawn from ``seed``; nothing else
    is random. A user or item without ratings has a bias and factors of 0. Without factors this is
    ``UserItemBias``.

    The defaults are for MovieLens 100K (``benchmarks/ml100k.py --tune``). The penalties count in
    ratings, as a bias's damping does: a row with far fewer ratings than ``l2`` keeps factors
    near 0.
    """

    name: ClassVar[str] = "biased matrix factorisation"
    finds_similar: ClassVar[tuple[SideName, ...]] = SIDES
    settings_class = BiasedFactorisationSettings
    settings: BiasedFactorisationSettings

    def _fit(self, data: TrainingData) -> None:
        users_p, items_p, ratings_p = data.users_p, data.items_p, data.ratings_p
        settings = self.settings
        self.range_ = (float(ratings_p.min()), float(ratings_p.max()))
        # The number of a rating is its label, so that any rating will do.
        by_user, user_values = _rows(users_p, items_p, ratings_p, data.n_users)
        by_item, item_values = _rows(items_p, users_p, ratings_p, data.n_items)
        found = factorise(
            by_user,
            by_item,
            (user_values, item_values),
            factors=settings.factors,
            l2=settings.l2,
            bias_l2=settings.bias_l2,
            sweeps=settings.sweeps,
            steps=2 * (1 + settings.factors),  # twice of what is enough without rounding
            seed=settings.seed,
            dtype=np.float64,
        )
        self.mean_, self.user_uf_, self.item_if_ = found.mean, found.users_nf, found.items_nf

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        user_pf, item_pf = self.user_uf_[users_p], self.item_if_[items_p]
        taste_p: Floats = np.einsum("pf,pf->p", user_pf[:, 1:], item_pf[:, 1:])
        predicted_p: Floats = self.mean_ + user_pf[:, 0] + item_pf[:, 0] + taste_p
        return np.clip(predicted_p, *self.range_)

    def _shapes(self, data: TrainingData) -> Shapes:
        features = 1 + self.settings.factors
        rows = {"user_uf": (data.n_users, features), "item_if": (data.n_items, features)}
        return {"mean": (), "range": (2,), **rows}

    def _similarity(self, axis: SideName) -> Similarity:
        rows_nf = self.user_uf_ if axis == "users" else self.item_if_
        is_comparable_n = (self.catalogue.support(axis) > 0) & (self.settings.factors > 0)
        factors_nf = rows_nf[:, 1:].astype(np.float32)
        return Similarity.of_vectors(factors_nf, is_comparable_n, reason=UNRATED)


class BprSettings(IterativeSettings):
    """Settings of `BprFactorisation`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "bpr"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 16, 32, 64, 128),
        "learning_rate": ("log", 3e-3, 0.1),
        "l2": ("log", 1e-4, 0.1),
    }

    factors: int = Field(64, ge=1, description="Factors of a user and of an item.")
    l2: float = Field(0.01, ge=0, description="L2 penalty on the factors of each triple.")
    initial_deviation: float = Field(
        0.1, gt=0, description="Standard deviation of the initial factors."
    )


class BprFactorisation(Iterative, RankingBaseline):
    """Ranks items by p_u · q_i, learned by Bayesian personalised ranking.

    An epoch takes every interaction (u, i) once, in random order, with an item j that u has not
    had, and descends along the gradient of

        -log sigmoid(p_u · (q_i - q_j)) + l2 / 2 * (|p_u|^2 + |q_i|^2 + |q_j|^2).

    A user without interactions has the mean factors of the others.

    Rendle, Freudenthaler, Gantner, Schmidt-Thieme: BPR, UAI 2009.
    """

    name: ClassVar[str] = "BPR-MF"
    finds_similar: ClassVar[tuple[SideName, ...]] = SIDES
    settings_class = BprSettings
    settings: BprSettings
    user_uf_: Singles
    item_if_: Singles

    def _begin(self, data: TrainingData) -> Tensors:
        rng, deviation = self._rng(), self.settings.initial_deviation
        tensors = {
            name: torch.from_numpy(rng.normal(0.0, deviation, shape).astype(np.float32))
            for name, shape in self._shapes(data).items()
        }
        tensors["item_if"][-1] = 0.0  # of unknown items, which no step moves
        return tensors

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        rng, settings = self._rng(epoch), self.settings
        order_p = rng.permutation(len(data.users_p))
        users_p, items_p = data.users_p[order_p], data.items_p[order_p]
        negatives_p = unseen_items(data, users_p, rng)
        rate, l2 = np.float32(settings.learning_rate), np.float32(settings.l2)
        loss = bpr.descend(users_p, items_p, negatives_p, self.user_uf_, self.item_if_, rate, l2)
        is_warm_u = data.histories.sizes > 0
        self.user_uf_[~is_warm_u] = self.user_uf_[is_warm_u].mean(0)
        return float(loss) / len(users_p)

    def _scores(self, users_b: np.ndarray) -> Singles:
        # A product for each user: the bits of one for all depend on the other users.
        return np.stack([self.item_if_ @ user_f for user_f in self.user_uf_[users_b]])

    def _shapes(self, data: TrainingData) -> Shapes:
        factors = self.settings.factors
        return {"user_uf": (data.n_users, factors), "item_if": (data.n_items, factors)}

    def _similarity(self, axis: SideName) -> Similarity:
        rows_nf = self.user_uf_ if axis == "users" else self.item_if_
        return Similarity.of_vectors(rows_nf, self.catalogue.support(axis) > 0)


def _rows(
    rows_p: Index, others_p: Index, ratings_p: Floats, n_rows: int
) -> tuple[LabelledCsr, Floats]:
    """The ratings of each row, labelled by number, and the rating of each number."""
    order_p = np.argsort(rows_p, kind="stable")
    offsets = np.append(0, np.cumsum(np.bincount(rows_p, minlength=n_rows))).astype(np.int64)
    numbers: Any = np.arange(len(order_p))
    return LabelledCsr(offsets, others_p[order_p].astype(np.int32), numbers), ratings_p[order_p]
