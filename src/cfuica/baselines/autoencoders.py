"""Autoencoders: of ratings by users or items, and of rankings from what a user has had.

Shape suffixes: p ratings, pairs or interactions, c cases and n inputs (see `cases.py`), u users,
i items, b users of a block, m all items, h hidden units, 1 a single label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from cfuica.baselines.cases import CaseModel, minibatches, pairs_between
from cfuica.baselines.contract import Index, RankingBaseline, Shapes, Singles, TrainingData
from cfuica.baselines.iterative import (
    Iterative,
    IterativeSettings,
    RefitSettings,
    state_of,
    unseen_items,
)
from cfuica.ops.decode import pair_products, weighted_sums
from cfuica.ops.encode import activate
from cfuica.ops.loss import bernoulli_loss
from cfuica.ops.tables import SideName, SidePairs
from cfuica.training.checkpoint import Tensors


class AutoRecSettings(IterativeSettings):
    """Settings of `AutoRec`; the defaults are those published for MovieLens 1M."""

    task: ClassVar[str] = "rating"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "hidden_units": ("choice", 100, 200, 500),
        "l2": ("log", 10.0, 1000.0),
    }

    hidden_units: int = Field(500, ge=1, description="Hidden units.")
    l2: float = Field(100.0, ge=0, description="L2 penalty on the weights.")
    optimizer: Literal["lbfgs", "rprop"] = Field("lbfgs", description="L-BFGS or Rprop.")
    iterations: int = Field(20, ge=1, description="Iterations of the optimiser in an epoch.")
    epochs: int = Field(25, ge=1, description="Epochs of so many iterations at most.")
    patience: int = Field(
        3, ge=1, description="Epochs without a better validation before training ends."
    )
    learning_rate: float = Field(0.001, gt=0, description="First step of Rprop.")
    initial_deviation: float = Field(
        0.01, gt=0, description="Standard deviation of the initial weights."
    )


class AutoRec(CaseModel):
    """Predicts all ratings of a case from those that are there, r_c, by one hidden layer:

        hidden units  g_c = sigmoid(mu + sum over its inputs n of r_cn V_n),
        prediction    r^_cn = b_n + W_n · g_c, inside the range of the ratings.

    V, W, mu and b are to minimise, over the ratings that are there,

        1/2 sum (r_cn - r^_cn)^2 + l2 / 2 * (|V|^2 + |W|^2).

    An iteration reads all ratings. An epoch is ``iterations`` of L-BFGS or Rprop, which begins
    anew each time and goes on from the parameters alone. A case without ratings has the mean hidden
    units of the others; an input without ratings is predicted by the mean rating.

    Sedhain, Menon, Sanner, Xie: AutoRec: Autoencoders Meet Collaborative Filtering, WWW 2015.
    """

    settings_class = AutoRecSettings
    settings: AutoRecSettings

    def _begin(self, data: TrainingData) -> Tensors:
        own, shapes = self.by_case(data), self._shapes(data)
        is_unrated_n = own.counts("items") == 0
        rng, deviation = self._rng(), self.settings.initial_deviation
        tensors = {
            name: torch.from_numpy(rng.normal(0.0, deviation, shapes[name]).astype(np.float32))
            for name in ("encoder_nh", "decoder_nh")
        }
        for weight_nh in tensors.values():
            weight_nh[is_unrated_n] = 0.0
        return {
            **tensors,
            "bias_h": torch.zeros(shapes["bias_h"]),
            "bias_n": torch.full(shapes["bias_n"], float(own.ratings_p.mean())),
            "range": torch.from_numpy(own.range),
        }

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        settings, own, parameters = self.settings, self.by_case(data), self._parameters(data)
        pairs = pairs_between(own.users_p, own.items_p, own.n_users, own.n_items)
        ratings_p = torch.from_numpy(own.ratings_p)
        learned = [parameters[name].requires_grad_() for name in parameters if name != "range"]
        optimizer: torch.optim.Optimizer
        steps = 1
        if settings.optimizer == "lbfgs":
            optimizer = torch.optim.LBFGS(
                learned,
                max_iter=settings.iterations,
                history_size=10,
                line_search_fn="strong_wolfe",
            )
        else:
            optimizer, steps = (
                torch.optim.Rprop(learned, settings.learning_rate),
                settings.iterations,
            )

        def loss() -> Tensor:
            optimizer.zero_grad()
            hidden_ch = self._hidden(parameters, pairs, own)
            error_p = self._decode(parameters, pairs, hidden_ch) - ratings_p
            weights = parameters["encoder_nh"], parameters["decoder_nh"]
            penalty = sum(weight_nh.square().sum() for weight_nh in weights)
            total = 0.5 * error_p.square().sum() + settings.l2 / 2 * penalty
            total.backward()
            return total

        for _ in range(steps):
            first = optimizer.step(loss)
        return float(first.detach()) / len(ratings_p)

    def _hidden(self, parameters: Tensors, pairs: SidePairs, own: TrainingData) -> Tensor:
        rating_p1 = own.ratings_p.astype(np.float32)[:, None]
        sums_ch = weighted_sums(parameters["encoder_nh"][:, None], pairs, rating_p1)
        return activate(sums_ch, parameters["bias_h"], "sigmoid")

    def _encode(self, parameters: Tensors, own: TrainingData) -> Tensor:
        pairs = pairs_between(own.users_p, own.items_p, own.n_users, own.n_items)
        hidden_ch = self._hidden(parameters, pairs, own)
        is_warm_c = torch.from_numpy(own.histories.sizes > 0)
        hidden_ch[~is_warm_c] = hidden_ch[is_warm_c].mean(0)
        return hidden_ch

    def _decode(self, parameters: Tensors, pairs: SidePairs, hidden_ch: Tensor) -> Tensor:
        product_p1 = pair_products(parameters["decoder_nh"][:, None], pairs, hidden_ch)
        bias_p = parameters["bias_n"].index_select(0, torch.from_numpy(pairs.row_of_pair))
        return product_p1[:, 0].double() + bias_p

    def _shapes(self, data: TrainingData) -> Shapes:
        n_inputs = data.n_items if self.cases == "users" else data.n_users
        weight = (n_inputs, self.settings.hidden_units)
        return {
            "encoder_nh": weight,
            "decoder_nh": weight,
            "bias_h": weight[1:],
            "bias_n": weight[:1],
            "range": (2,),
        }


class UserAutoRecSettings(AutoRecSettings):
    """Settings of `UserAutoRec`."""

    model: ClassVar[str] = "u-autorec"
    optimizer: Literal["lbfgs", "rprop"] = Field("rprop", description="L-BFGS or Rprop.")


class UserAutoRec(AutoRec):
    """U-AutoRec: users are the cases."""

    name: ClassVar[str] = "U-AutoRec"
    cases: ClassVar[SideName] = "users"
    settings_class = UserAutoRecSettings


class ItemAutoRecSettings(AutoRecSettings):
    """Settings of `ItemAutoRec`."""

    model: ClassVar[str] = "i-autorec"


class ItemAutoRec(AutoRec):
    """I-AutoRec: items are the cases."""

    name: ClassVar[str] = "I-AutoRec"
    cases: ClassVar[SideName] = "items"
    settings_class = ItemAutoRecSettings


class CdaeSettings(RefitSettings, IterativeSettings):
    """Settings of `Cdae`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "cdae"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "hidden_units": ("choice", 50, 100, 200),
        "l2": ("log", 1e-4, 0.1),
        "corruption": ("uniform", 0.2, 0.9),
        "learning_rate": ("log", 0.02, 0.5),
    }

    hidden_units: int = Field(50, ge=1, description="Hidden units.")
    corruption: float = Field(
        0.5, ge=0, lt=1, description="Share of a history that is left out of the input."
    )
    negatives: int = Field(5, ge=1, description="Unseen items for each item of a history.")
    l2: float = Field(0.01, ge=0, description="L2 penalty on all that a user's loss reads.")
    learning_rate: float = Field(0.1, gt=0, description="Learning rate of AdaGrad.")
    batch_size: int = Field(32, ge=1, description="Users of a minibatch.")
    patience: int = Field(
        10, ge=1, description="Epochs without a better validation before training ends."
    )


class Cdae(Iterative, RankingBaseline):
    """Ranks items by what a denoising autoencoder makes of a user's history:

        hidden units  g_u = sigmoid(c + V_u + sum over the history of W_j),
        score         s_ui = b_i + W'_i · g_u.

    An epoch takes every user once, with a history in which each item is left out with probability
    ``corruption``; those that stay count 1 / (1 - corruption). AdaGrad descends along the gradient
    of the logistic loss over the items i of the whole history, as positives, and ``negatives``
    unseen ones for each, and of l2 / 2 times the squares of every row that a user's loss reads, as
    often as it does. V_u is 0 for a user without interactions.

    Wu, DuBois, Zheng, Ester: Collaborative Denoising Auto-Encoders for Top-N Recommender Systems,
    WSDM 2016.
    """

    name: ClassVar[str] = "CDAE"
    training_state: ClassVar[tuple[str, ...]] = ("_learned", "_optimizer")
    settings_class = CdaeSettings
    settings: CdaeSettings
    decoder_ih_: Singles
    bias_i_: Singles

    def _begin(self, data: TrainingData) -> Tensors:
        rng, shapes = self._rng(), self._shapes(data)
        bound = 4.0 * (6.0 / (data.n_items + self.settings.hidden_units)) ** 0.5
        parameters = {name: torch.zeros(shape) for name, shape in shapes.items()}
        for name in ("encoder_ih", "decoder_ih"):
            drawn_ih = rng.uniform(-bound, bound, shapes[name]).astype(np.float32)
            parameters[name] = torch.from_numpy(drawn_ih)
        self._learned = {name: each.requires_grad_() for name, each in parameters.items()}
        self._optimizer = torch.optim.Adagrad(
            parameters.values(), self.settings.learning_rate, initial_accumulator_value=1e-4
        )
        return parameters | state_of(self._optimizer, parameters)

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        rng, settings, learned = self._rng(epoch), self.settings, self._learned
        self._optimizer.param_groups[0]["lr"] = self.rate
        unseen = unseen_items(data, np.repeat(data.users_p, settings.negatives), rng)
        unseen_pn, loss = unseen.reshape(-1, settings.negatives), 0.0
        for users_b, numbers_p, rows_p in minibatches(data, settings.batch_size, rng):
            size, items_p = (len(users_b), data.n_items), data.items_p[numbers_p]
            stays_p = rng.random(len(items_p)) >= settings.corruption
            read = pairs_between(rows_p[stays_p], items_p[stays_p], *size)
            hidden_bh = self._hidden(learned, users_b, read, 1.0 / (1.0 - settings.corruption))
            items_q = np.append(items_p, unseen_pn[numbers_p])
            asked = pairs_between(
                np.append(rows_p, np.repeat(rows_p, settings.negatives)), items_q, *size
            )
            bias_q = learned["bias_i"].index_select(0, torch.from_numpy(items_q))
            product_q1 = pair_products(learned["decoder_ih"][:, None], asked, hidden_bh)
            is_seen_q = (np.arange(len(items_q)) < len(items_p)).astype(np.uint8)
            error = bernoulli_loss(product_q1 + bias_q[:, None], is_seen_q)
            self._optimizer.zero_grad()
            (error + settings.l2 / 2 * _squares(learned, users_b, read, asked)).backward()
            self._optimizer.step()
            loss += float(error.detach())
        return loss / len(data.users_p)

    def _hidden(self, parameters: Tensors, users_b: Index, read: SidePairs, scale: float) -> Tensor:
        weight_p1 = np.full((len(read.row_of_pair), 1), scale, np.float32)
        sums_bh = weighted_sums(parameters["encoder_ih"][:, None], read, weight_p1)
        own_bh = parameters["user_uh"].index_select(0, torch.from_numpy(users_b))
        return activate(sums_bh + own_bh, parameters["bias_h"], "sigmoid")

    def _scores(self, users_b: np.ndarray) -> Singles:
        parameters = self._parameters(self.catalogue.data)
        own = self.histories.take(users_b)
        read = pairs_between(own.row_of_entry(), own.indices, len(users_b), len(self.bias_i_))
        hidden_bh = self._hidden(parameters, users_b.astype(np.intp), read, 1.0).numpy()
        # A product for each user: the bits of one for all depend on the other users.
        return np.stack([self.decoder_ih_ @ hidden_h + self.bias_i_ for hidden_h in hidden_bh])

    def _shapes(self, data: TrainingData) -> Shapes:
        units = self.settings.hidden_units
        return {
            "encoder_ih": (data.n_items, units),
            "decoder_ih": (data.n_items, units),
            "user_uh": (data.n_users, units),
            "bias_h": (units,),
            "bias_i": (data.n_items,),
        }


def _squares(learned: Tensors, users_b: Index, read: SidePairs, asked: SidePairs) -> Tensor:
    """The squares of the rows that the loss of these users reads, each as often as it does."""
    squares = learned["user_uh"][users_b].square().sum()
    for name, pairs in {"encoder_ih": read, "decoder_ih": asked}.items():
        count_i = torch.from_numpy(np.diff(pairs.by_row.offsets).astype(np.float32))
        squares = squares + count_i @ learned[name].square().sum(1)
    return squares
