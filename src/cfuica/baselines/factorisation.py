"""Matrix factorisation by gradient descent: of ratings, with biases or without, and of rankings.

Shape suffixes: p ratings or pairs, n rows of a side, u users, i items, b users of a block, f
factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import embedding

from cfuica.baselines.contract import (
    Floats,
    Index,
    RankingBaseline,
    RatingBaseline,
    Shapes,
    Singles,
    TrainingData,
)
from cfuica.baselines.iterative import (
    EpochSettings,
    Iterative,
    IterativeSettings,
    RefitSettings,
    give_cold_users_the_mean,
    unseen_items,
)
from cfuica.inference.similar import Similarity
from cfuica.ops import biased_descent, bpr
from cfuica.ops.tables import SIDES, SideName
from cfuica.training.checkpoint import Tensors


class FactorSettings(EpochSettings):
    """Settings of `Factorisation`."""

    factors: int = Field(64, ge=1, description="Factors of a user and of an item.")
    initial_deviation: float = Field(
        0.1, gt=0, description="Standard deviation of the initial factors."
    )


class Factorisation(Iterative):
    """A baseline with a vector of factors for each user and each item, p_u and q_i."""

    finds_similar: ClassVar[tuple[SideName, ...]] = SIDES
    settings: FactorSettings
    user_uf_: Singles
    item_if_: Singles

    def _begin(self, data: TrainingData) -> Tensors:
        """Normal random factors."""
        rng, deviation, factors = (
            self._rng(),
            self.settings.initial_deviation,
            self.settings.factors,
        )
        return {
            name: torch.from_numpy(rng.normal(0.0, deviation, (n, factors)).astype(np.float32))
            for name, n in (("user_uf", data.n_users), ("item_if", data.n_items))
        }

    def _shapes(self, data: TrainingData) -> Shapes:
        factors = self.settings.factors
        return {"user_uf": (data.n_users, factors), "item_if": (data.n_items, factors)}

    def _similarity(self, axis: SideName) -> Similarity:
        rows_nf = self.user_uf_ if axis == "users" else self.item_if_
        return Similarity.of_vectors(rows_nf, self.catalogue.support(axis) > 0)


class RatingFactorisation(Factorisation, RatingBaseline):
    """Predicts mean + p_u · q_i, inside the range of the ratings.

    A user or item without ratings has factors of 0, so that what is predicted is the mean. Ratings
    of another range than 1 to 5 are scaled to one of this width, so that settings fit all ranges.
    """

    mean_: np.ndarray
    range_: np.ndarray

    def _begin(self, data: TrainingData) -> Tensors:
        tensors = super()._begin(data)
        tensors["user_uf"][data.counts("users") == 0] = 0.0
        tensors["item_if"][data.counts("items") == 0] = 0.0
        mean, range_ = torch.tensor(data.ratings_p.mean()), torch.from_numpy(data.range)
        return {"mean": mean, "range": range_, **tensors}

    @property
    def _unit(self) -> float:
        """What a star of 1 to 5 is in the range of the ratings."""
        low, high = self.range_.tolist()
        return (high - low) / 4 or 1.0

    def _targets(self, data: TrainingData) -> Singles:
        """(p,) what factors and biases are to add up to."""
        target_p: Floats = (data.ratings_p - self.mean_) / self._unit
        return target_p.astype(np.float32)

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        user_pf, item_pf = (
            rows_nf[index_p].astype(np.float64)
            for rows_nf, index_p in ((self.user_uf_, users_p), (self.item_if_, items_p))
        )
        target_p = np.einsum("pf,pf->p", user_pf, item_pf) + self._biases(users_p, items_p)
        predicted_p: Floats = np.clip(self.mean_ + self._unit * target_p, *self.range_)
        return predicted_p

    def _biases(self, users_p: Index, items_p: Index) -> Floats | float:
        """What is predicted beside the mean and the product of the factors."""
        return 0.0

    def _shapes(self, data: TrainingData) -> Shapes:
        return {"mean": (), "range": (2,), **super()._shapes(data)}


class PmfSettings(FactorSettings, IterativeSettings):
    """Settings of `ProbabilisticFactorisation`."""

    task: ClassVar[str] = "rating"
    model: ClassVar[str] = "pmf"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 5, 10, 20, 40, 80),
        "learning_rate": ("log", 10.0, 200.0),
        "l2": ("log", 0.01, 0.5),
        "batches": ("choice", 1, 4, 16),
        "initial_deviation": ("log", 0.01, 0.3),
    }

    factors: int = Field(10, ge=1, description="Factors of a user and of an item.")
    learning_rate: float = Field(50.0, gt=0, description="Learning rate, of the mean loss.")
    l2: float = Field(0.4, ge=0, description="L2 penalty on the factors of each rating.")
    momentum: float = Field(0.8, ge=0, lt=1, description="Share of a step in the next one.")
    batches: int = Field(1, ge=1, description="Random parts of an epoch, each a step.")
    epochs: int = Field(200, ge=1, description="Passes over the train set at most.")
    # The first steps, from factors near 0, are short.
    patience: int = Field(
        20, ge=1, description="Epochs without a better validation before training ends."
    )


class ProbabilisticFactorisation(RatingFactorisation):
    """Predicts mean + p_u · q_i, inside the range of the ratings.

    A step descends, with momentum, along the gradient of the mean over all ratings, or those of a
    batch, of

        (r - mean - p_u · q_i)^2 + l2 / 2 * (|p_u|^2 + |q_i|^2),

    so the penalty on a row counts as often as it is rated. There are no biases: a factor has to
    learn them.

    Salakhutdinov, Mnih: Probabilistic Matrix Factorization, NIPS 2007. The defaults are those of
    the published tables, of the toolkit PREA; `cfuica tune` finds far better ones.
    """

    name: ClassVar[str] = "PMF"
    training_state: ClassVar[tuple[str, ...]] = ("_moved", "_velocities")
    settings_class = PmfSettings
    settings: PmfSettings
    _moved: tuple[torch.Tensor, ...]  # The factors of users and items,
    _velocities: tuple[torch.Tensor, ...]  # and their last steps.

    def _begin(self, data: TrainingData) -> Tensors:
        tensors, names = super()._begin(data), ("user_uf", "item_if")
        self._moved = tuple(tensors[name].requires_grad_() for name in names)
        self._velocities = tuple(torch.zeros_like(each.detach()) for each in self._moved)
        velocities = zip((f"velocity.{name}" for name in names), self._velocities, strict=True)
        return tensors | dict(velocities)

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        n, batches, squares = len(data.users_p), self.settings.batches, 0.0
        targets_p = self._targets(data)
        order_p = self._rng(epoch).permutation(n) if batches > 1 else np.arange(n)
        for part_p in np.array_split(order_p, min(batches, n)):
            user_pf, item_pf = (
                embedding(torch.from_numpy(index_p[part_p]), rows_nf)
                for index_p, rows_nf in zip((data.users_p, data.items_p), self._moved, strict=True)
            )
            error_p = torch.from_numpy(targets_p[part_p]) - (user_pf * item_pf).sum(1)
            error = error_p.square().mean()
            penalty = (user_pf.square() + item_pf.square()).sum(1).mean()
            self._step(error + self.settings.l2 / 2 * penalty)
            squares += error.item() * len(part_p)
        return squares / n

    def _step(self, loss: torch.Tensor) -> None:
        gradients = torch.autograd.grad(loss, self._moved)
        with torch.no_grad():
            for rows_nf, velocity_nf, gradient_nf in zip(
                self._moved, self._velocities, gradients, strict=True
            ):
                velocity_nf.mul_(self.settings.momentum).add_(gradient_nf)
                rows_nf.sub_(velocity_nf, alpha=self.settings.learning_rate)


class BiasedFactorisationSettings(FactorSettings, IterativeSettings):
    """Settings of `BiasedFactorisation`."""

    task: ClassVar[str] = "rating"
    model: ClassVar[str] = "biasmf"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 32, 64, 128, 256),
        "learning_rate": ("log", 1e-3, 2e-2),
        "l2": ("log", 0.02, 0.2),
    }

    factors: int = Field(128, ge=1, description="Factors of a user and of an item.")
    learning_rate: float = Field(0.003, gt=0, description="Learning rate.")
    l2: float = Field(0.04, ge=0, description="L2 penalty on biases and factors of each rating.")
    initial_deviation: float = Field(
        0.01, gt=0, description="Standard deviation of the initial factors."
    )
    epochs: int = Field(128, ge=1, description="Passes over the train set at most.")


class BiasedFactorisation(RatingFactorisation):
    """Predicts mean + b_u + b_i + p_u · q_i, inside the range of the ratings.

    An epoch takes every rating once, in random order, and descends along the gradient of

        1/2 (r - mean - b_u - b_i - p_u · q_i)^2 + l2 / 2 * (b_u^2 + b_i^2 + |p_u|^2 + |q_i|^2).

    Biases begin at 0 and factors near it, so the biases are learned first, then the factors that
    explain most. Early stopping ends that before the last factors learn noise, which is what
    makes many factors good. A user or item without ratings has a bias and factors of 0.

    Koren, Bell, Volinsky: Matrix Factorization Techniques for Recommender Systems, Computer 2009.
    """

    name: ClassVar[str] = "biased matrix factorisation"
    settings_class = BiasedFactorisationSettings
    settings: BiasedFactorisationSettings
    bias_u_: Singles
    bias_i_: Singles

    def _begin(self, data: TrainingData) -> Tensors:
        biases = {"bias_u": torch.zeros(data.n_users), "bias_i": torch.zeros(data.n_items)}
        return {**super()._begin(data), **biases}

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        order_p = self._rng(epoch).permutation(len(data.users_p))
        users_p, items_p = data.users_p[order_p], data.items_p[order_p]
        rate, l2 = np.float32(self.settings.learning_rate), np.float32(self.settings.l2)
        squares = biased_descent.descend(
            users_p, items_p, self._targets(data)[order_p], self.user_uf_, self.item_if_,
            self.bias_u_, self.bias_i_, rate, l2,
        )  # fmt: skip
        return float(squares) / len(order_p)

    def _biases(self, users_p: Index, items_p: Index) -> Floats:
        bias_p: Floats = self.bias_u_[users_p].astype(np.float64) + self.bias_i_[items_p]
        return bias_p

    def _shapes(self, data: TrainingData) -> Shapes:
        return {**super()._shapes(data), "bias_u": (data.n_users,), "bias_i": (data.n_items,)}


class RankingFactorisation(Factorisation, RankingBaseline):
    """Ranks items by p_u · q_i. A user without interactions has the mean factors of the others."""

    def _scores(self, users_b: np.ndarray) -> Singles:
        # A product for each user: the bits of one for all depend on the other users.
        return np.stack([self.item_if_ @ user_f for user_f in self.user_uf_[users_b]])


class BprSettings(RefitSettings, FactorSettings, IterativeSettings):
    """Settings of `BprFactorisation`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "bpr"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 16, 32, 64, 128),
        "learning_rate": ("log", 3e-3, 0.1),
        "l2": ("log", 1e-4, 0.1),
    }

    l2: float = Field(0.01, ge=0, description="L2 penalty on the factors of each triple.")
    epochs: int = Field(400, ge=1, description="Passes over the train set at most.")
    patience: int = Field(
        100, ge=1, description="Epochs without a better validation before training ends."
    )


class BprFactorisation(RankingFactorisation):
    """Ranks items by p_u · q_i, learned by Bayesian personalised ranking.

    An epoch takes every interaction (u, i) once, in random order, with an item j that u has not
    had, and descends along the gradient of

        -log sigmoid(p_u · (q_i - q_j)) + l2 / 2 * (|p_u|^2 + |q_i|^2 + |q_j|^2).

    A user without interactions has the mean factors of the others.

    Rendle, Freudenthaler, Gantner, Schmidt-Thieme: BPR, UAI 2009.
    """

    name: ClassVar[str] = "BPR-MF"
    settings_class = BprSettings
    settings: BprSettings

    def _begin(self, data: TrainingData) -> Tensors:
        tensors = super()._begin(data)
        tensors["item_if"][-1] = 0.0  # of unknown items, which no step moves
        return tensors

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        rng, settings = self._rng(epoch), self.settings
        order_p = rng.permutation(len(data.users_p))
        users_p, items_p = data.users_p[order_p], data.items_p[order_p]
        negatives_p = unseen_items(data, users_p, rng)
        assert self.rate is not None
        rate, l2 = np.float32(self.rate), np.float32(settings.l2)
        loss = bpr.descend(users_p, items_p, negatives_p, self.user_uf_, self.item_if_, rate, l2)
        give_cold_users_the_mean(self.user_uf_, data)
        return float(loss) / len(users_p)
