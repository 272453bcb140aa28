"""Local low-rank matrix approximation (LLORMA): many factorisations, each near an anchor.

Shape suffixes: p ratings or pairs, n rows of a side (users or items), u users, i items, l local
models, f factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from cfuica.baselines.contract import Floats, Index, RatingBaseline, Shapes, Singles, TrainingData
from cfuica.baselines.iterative import Iterative, IterativeSettings
from cfuica.ops import local_factors
from cfuica.ops.runtime import run_lanes, run_rows
from cfuica.training.checkpoint import Tensors

LANES = 4  # Local models are trained in so many groups, each by one thread.


class LocalLowRankSettings(IterativeSettings):
    """Settings of `LocalLowRank`: those of the authors' experiments."""

    task: ClassVar[str] = "rating"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 5, 10, 15, 20),
        "anchors": ("choice", 10, 20, 50),
        "l2": ("log", 3e-4, 0.03),
        "width": ("uniform", 0.5, 1.0),
    }

    anchors: int = Field(50, ge=1, description="Local models, each with an anchor.")
    factors: int = Field(20, ge=1, description="Rank of a local model.")
    l2: float = Field(0.001, ge=0, description="L2 penalty of the factors, at each rating.")
    width: float = Field(
        0.8, gt=0, description="Distance from the anchor at which weights become 0; at most 2."
    )
    base_factors: int = Field(10, ge=1, description="Rank of the base model.")
    base_learning_rate: float = Field(0.005, gt=0, description="Learning rate of the base model.")
    base_l2: float = Field(0.1, ge=0, description="L2 penalty of the base model.")
    base_epochs: int = Field(200, ge=1, description="Passes over the train set by the base model.")


class LocalLowRank(Iterative, RatingBaseline):
    """The weighted mean of factorisations that are each right near an anchor, a user and an item.

    A base factorisation gives each user and item a vector. Two users, or items, of angle a between
    their vectors have the distance d = 2 a / pi. Anchors (u_l, i_l) are pairs drawn from the train
    set. The weight of model l for a pair falls with the distances from its anchor,

        w_l(u, i) = K(d(u, u_l)) K(d(i, i_l)),    K(d) = 3/4 max(1 - (d / width)^2, 0),

    and the prediction, inside the range of the ratings, is

        sum over l of w_l(u, i) p_ul . q_il / sum over l of w_l(u, i),

    or the mean rating where all weights are 0. Every model has factors of all users and items, and
    all factors start from uniform random numbers of 0 to 1. An epoch is one pass of stochastic
    gradient descent over the ratings, user by user. Users and items without ratings have the mean
    vectors and factors of the others, weighted by their numbers of ratings.

    The authors' program stops by the train error and reports the best test error over the number of
    models. Here validation chooses the epoch, and all models predict.

    Lee, Kim, Lebanon, Singer: Local Low-Rank Matrix Approximation, ICML 2013; with Bengio: LLORMA,
    JMLR 2016.
    """

    is_joint: ClassVar[bool]
    settings: LocalLowRankSettings
    user_ulf_: Singles
    item_ilf_: Singles
    user_weight_ul_: Singles
    item_weight_il_: Singles
    mean_: Floats
    range_: Floats

    def _begin(self, data: TrainingData) -> Tensors:
        rng, settings = self._rng(), self.settings
        anchors_l = rng.choice(
            len(data.users_p), settings.anchors, replace=len(data.users_p) < settings.anchors
        )
        user_uf, item_if = self._base(data, rng)
        shapes = self._shapes(data)
        arrays = {
            "user_ulf": rng.random(shapes["user_ulf"], np.float32),
            "item_ilf": rng.random(shapes["item_ilf"], np.float32),
            "user_weight_ul": _weights(user_uf, data.users_p[anchors_l], settings.width),
            "item_weight_il": _weights(item_if, data.items_p[anchors_l], settings.width),
            "mean": data.ratings_p.mean(),
            "range": data.range,
        }
        return {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}

    def _base(self, data: TrainingData, rng: np.random.Generator) -> tuple[Singles, Singles]:
        """The vectors of users and of items: the one model of weight 1 everywhere."""
        settings, scale = self.settings, np.float32(1 / self.settings.base_factors)
        user_u1f, item_i1f = (
            scale * rng.random((n, 1, settings.base_factors), np.float32)
            for n in (data.n_users, data.n_items)
        )
        weight_u1, weight_i1 = (np.ones((n, 1), np.float32) for n in (data.n_users, data.n_items))
        for _ in range(settings.base_epochs):
            local_factors.descend(
                data.users_p, data.items_p, data.ratings_p, weight_u1, weight_i1, user_u1f,
                item_i1f, settings.base_learning_rate, settings.base_l2, False, 0, 1,
            )  # fmt: skip
        _fill(user_u1f, data.users_p)
        _fill(item_i1f, data.items_p)
        return user_u1f[:, 0], item_i1f[:, 0]

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        n = self.settings.anchors
        size = n if self.is_joint else -(-n // LANES)

        def lane(start: int) -> float:
            total: float = local_factors.descend(
                data.users_p, data.items_p, data.ratings_p, self.user_weight_ul_,
                self.item_weight_il_, self.user_ulf_, self.item_ilf_, self.rate, self.settings.l2,
                self.is_joint, start, min(start + size, n),
            )  # fmt: skip
            return total

        total: float = sum(run_lanes(lane, [(start,) for start in range(0, n, size)]))
        _fill(self.user_ulf_, data.users_p)
        _fill(self.item_ilf_, data.items_p)
        return total / len(data.users_p) / (1 if self.is_joint else n)

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        predicted_p = np.empty(len(users_p))
        run_rows(
            local_factors.predict, len(users_p), users_p, items_p, self.user_weight_ul_,
            self.item_weight_il_, self.user_ulf_, self.item_ilf_, float(self.mean_), predicted_p,
        )  # fmt: skip
        return np.clip(predicted_p, *self.range_)

    def _shapes(self, data: TrainingData) -> Shapes:
        anchors, factors = self.settings.anchors, self.settings.factors
        return {
            "user_ulf": (data.n_users, anchors, factors),
            "item_ilf": (data.n_items, anchors, factors),
            "user_weight_ul": (data.n_users, anchors),
            "item_weight_il": (data.n_items, anchors),
            "mean": (),
            "range": (2,),
        }


def _weights(vector_nf: Singles, anchors_l: Index, width: float) -> Singles:
    """K(d) of all rows and the anchors, (n, l)."""
    unit_nf = vector_nf.astype(np.float64)
    unit_nf /= np.maximum(np.linalg.norm(unit_nf, axis=1, keepdims=True), 1e-12)
    cosine_nl = np.einsum("nf,lf->nl", unit_nf, unit_nf[anchors_l])
    distance_nl = 2 / np.pi * np.arccos(np.clip(cosine_nl, -1.0, 1.0))
    weight_nl: Floats = 0.75 * np.maximum(1 - (distance_nl / width) ** 2, 0.0)
    return weight_nl.astype(np.float32)


def _fill(rows_nlf: Singles, rated_p: Index) -> None:
    """Give rows without ratings the mean of the others, weighted by their numbers of ratings."""
    counts_n = np.bincount(rated_p, minlength=len(rows_nlf))
    rows_nlf[counts_n == 0] = np.average(rows_nlf, axis=0, weights=counts_n)


class LlormaLocalSettings(LocalLowRankSettings):
    """Settings of `LlormaLocal`."""

    model: ClassVar[str] = "llorma-local"

    learning_rate: float = Field(0.01, gt=0, description="Learning rate of the local models.")


class LlormaLocal(LocalLowRank):
    """LLORMA whose local models are each trained by themselves:

    model l is to minimise  sum over ratings of w_l(u, i) (r - p_ul . q_il)^2, and its penalty.
    """

    name: ClassVar[str] = "LLORMA-Local"
    is_joint: ClassVar[bool] = False
    settings_class = LlormaLocalSettings


class LlormaGlobalSettings(LocalLowRankSettings):
    """Settings of `LlormaGlobal`."""

    model: ClassVar[str] = "llorma-global"

    learning_rate: float = Field(0.1, gt=0, description="Learning rate of the local models.")
    base_l2: float = Field(0.2, ge=0, description="L2 penalty of the base model.")


class LlormaGlobal(LocalLowRank):
    """LLORMA whose local models are trained together:

    they are to minimise  sum over ratings of (r - prediction)^2, and their penalties.
    """

    name: ClassVar[str] = "LLORMA-Global"
    is_joint: ClassVar[bool] = True
    settings_class = LlormaGlobalSettings
