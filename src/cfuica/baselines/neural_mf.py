"""Factorisations whose factors a neural network combines: NNMF of ratings, NeuMF of rankings.

Shape suffixes: p ratings or pairs, u users, i items, b users of a block, m all items, f features,
h inputs of a layer, o its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
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
    Iterative,
    IterativeSettings,
    RefitSettings,
    adam,
    give_cold_users_the_mean,
    unseen_items,
)
from cfuica.ops.decode import linear
from cfuica.ops.encode import ActivationName, activate
from cfuica.ops.tables import SideName
from cfuica.training.checkpoint import Tensors

# Pairs whose activations are in memory at once: few enough for the cache.
_CHUNK = 16384
_FACTORS: dict[str, SideName] = {"user_uf": "users", "item_if": "items"}


def layer_shapes(sizes: Sequence[int]) -> Shapes:
    """Weights and biases of a perceptron whose layers have so many units, the inputs first."""
    shapes: Shapes = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        shapes |= {f"weight{layer}_ho": (inputs, outputs), f"bias{layer}_o": (outputs,)}
    return shapes


def initial(
    rng: np.random.Generator, shapes: Shapes, deviation: float, scale: float = 1.0
) -> Tensors:
    """Normal factors, weights within Glorot's bounds times `scale`, biases of 0."""
    tensors: Tensors = {}
    for name, shape in shapes.items():
        array = np.zeros(shape)
        if name in _FACTORS:
            array = rng.normal(0.0, deviation, shape)
        elif name.startswith("weight"):
            most = scale * np.sqrt(6 / sum(shape))
            array = rng.uniform(-most, most, shape)
        tensors[name] = torch.from_numpy(array.astype(np.float32))
    return tensors


def product(input_ph: Tensor, weight_ho: Tensor) -> Tensor:
    """(p, o) a layer without bias; in inference no bit of a pair depends on the other pairs."""
    return linear(input_ph, weight_ho, torch.zeros(1))


def perceptron(sums_po: Tensor, parameters: Tensors, activation: ActivationName) -> Tensor:
    """(p,) the output of a perceptron, which is linear, from the products of its first layer."""
    layer = 1
    while f"weight{layer + 1}_ho" in parameters:
        hidden_ph = activate(sums_po, parameters[f"bias{layer}_o"], activation)
        layer += 1
        sums_po = product(hidden_ph, parameters[f"weight{layer}_ho"])
    return sums_po[:, 0] + parameters[f"bias{layer}_o"]


class NeuralFactorisationSettings(IterativeSettings):
    """Settings of `NeuralFactorisation`."""

    task: ClassVar[str] = "rating"
    model: ClassVar[str] = "nnmf"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "l2": ("log", 10.0, 200.0),
        "factors": ("choice", 5, 10, 20),
        "product_factors": ("choice", 30, 60, 120),
    }

    factors: int = Field(10, ge=1, description="Factors of each side that enter the network.")
    product_factors: int = Field(60, ge=1, description="Factors whose products enter the network.")
    hidden_layers: int = Field(3, ge=1, description="Hidden layers of the network.")
    hidden: int = Field(50, ge=1, description="Units of a hidden layer.")
    l2: float = Field(50.0, ge=0, description="L2 penalty on the factors.")
    learning_rate: float = Field(1e-3, gt=0, description="Learning rate.")
    epochs: int = Field(1000, ge=1, description="Passes over the train set at most.")
    patience: int = Field(
        40, ge=1, description="Epochs without a better validation before training ends."
    )


class NeuralFactorisation(Iterative, RatingBaseline):
    """Predicts f([p_u, q_i, p'_u * q'_i]), inside the range of the ratings, where f is a network
    of sigmoid layers with a linear output.

    Factors and network are to minimise

        sum over ratings (r - f)^2 + l2 * (|P|^2 + |Q|^2 + |P'|^2 + |Q'|^2).

    An epoch is a step of the network and then one of the factors, each by RMSProp along the
    gradient of all ratings. A user or item without ratings has factors of 0, where the penalty
    would draw them.

    Dziugaite, Roy: Neural Network Matrix Factorization, 2015.
    """

    name: ClassVar[str] = "NNMF"
    training_state: ClassVar[tuple[str, ...]] = ("_squares",)
    settings_class = NeuralFactorisationSettings
    settings: NeuralFactorisationSettings
    range_: Floats

    def _begin(self, data: TrainingData) -> Tensors:
        parameters = initial(self._rng(), self._shapes(data), deviation=0.1, scale=4.0)
        parameters["range"] = torch.from_numpy(data.range)
        for name, axis in _FACTORS.items():
            parameters[name][data.counts(axis) == 0] = 0.0
        # The mean squares of the gradients, which RMSProp divides by.
        self._squares = {name: torch.ones_like(each) for name, each in parameters.items()}
        return parameters | {f"square.{name}": each for name, each in self._squares.items()}

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        layers = [name for name in self._shapes(data) if name.startswith(("weight", "bias"))]
        loss = self._step(data, layers)
        self._step(data, list(_FACTORS))
        return loss / len(data.users_p)

    def _step(self, data: TrainingData, names: Sequence[str]) -> float:
        """Move these parameters; returns the sum of squared errors before."""
        settings, parameters, total = self.settings, self._parameters(data), 0.0
        for name in names:
            parameters[name].requires_grad_()
        for own in _chunks(len(data.users_p)):
            predicted_p = self._network(parameters, data.users_p[own], data.items_p[own])
            ratings_p = torch.from_numpy(data.ratings_p[own].astype(np.float32))
            loss = (ratings_p - predicted_p).square().sum()
            loss.backward()
            total += loss.item()
        with torch.no_grad():
            for name in names:
                parameter, square = parameters[name], self._squares[name]
                gradient = parameter.grad
                assert gradient is not None
                if name in _FACTORS:
                    gradient += 2 * settings.l2 * parameter
                square.mul_(0.9).addcmul_(gradient, gradient, value=0.1)
                parameter -= settings.learning_rate * gradient / (square + 1e-10).sqrt()
        return total

    def _network(self, parameters: Tensors, users_p: Index, items_p: Index) -> Tensor:
        d = self.settings.factors
        user_pf = embedding(torch.from_numpy(users_p), parameters["user_uf"])
        item_pf = embedding(torch.from_numpy(items_p), parameters["item_if"])
        products_pf = user_pf[:, d:] * item_pf[:, d:]
        input_ph = torch.cat([user_pf[:, :d], item_pf[:, :d], products_pf], dim=1)
        return perceptron(product(input_ph, parameters["weight1_ho"]), parameters, "sigmoid")

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        parameters = self._parameters(self.catalogue.data)
        predicted_p = np.empty(len(users_p))
        with torch.inference_mode():
            for own in _chunks(len(users_p)):
                predicted_p[own] = self._network(parameters, users_p[own], items_p[own]).numpy()
        return np.clip(predicted_p, *self.range_)

    def _shapes(self, data: TrainingData) -> Shapes:
        settings = self.settings
        features = settings.factors + settings.product_factors
        hidden = [settings.hidden] * settings.hidden_layers
        return {
            "range": (2,),
            "user_uf": (data.n_users, features),
            "item_if": (data.n_items, features),
            **layer_shapes([settings.factors + features, *hidden, 1]),
        }


class NeuMfSettings(RefitSettings, IterativeSettings):
    """Settings of `NeuMf`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "neumf"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 8, 16, 32, 64),
        "mlp_factors": ("choice", 16, 32, 64, 128),
        "learning_rate": ("log", 3e-4, 1e-2),
    }

    factors: int = Field(64, ge=1, description="Factors whose products are added up (GMF).")
    mlp_factors: int = Field(32, ge=1, description="Factors of each side that enter the MLP.")
    hidden_layers: int = Field(
        3, ge=1, description="Hidden layers of the MLP, each half as wide as what it reads."
    )
    negatives: int = Field(4, ge=1, description="Random unseen items for each interaction.")
    # Published are minibatches of 256 and a rate of 1e-3. Four times as many samples and, by the
    # square-root rule of Adam, twice the rate learn as much in an epoch, in a third of the time.
    batch: int = Field(1024, ge=1, description="Interactions and negatives of a minibatch.")
    learning_rate: float = Field(2e-3, gt=0, description="Learning rate of the pre-training.")
    pretraining: int = Field(10, ge=0, description="Epochs in which GMF and MLP learn apart.")
    joint_rate: float = Field(0.1, gt=0, description="Learning rate after the pre-training.")
    alpha: float = Field(
        0.5, ge=0, le=1, description="Weight of GMF, that of MLP is the rest; 1 is GMF alone."
    )
    patience: int = Field(
        5,
        ge=1,
        description="Epochs after the pre-training without a better validation before training "
        "ends.",
    )

    @property
    def least_epochs(self) -> int:
        """The pre-training is whole."""
        return self.pretraining

    def rate_after(self, cuts: int, epochs: int = 0) -> float:
        """That of the pre-training, and then the joint one."""
        return self.learning_rate if epochs < self.pretraining else self.joint_rate


class NeuMf(Iterative, RankingBaseline):
    """Ranks items by alpha * x_GMF + (1 - alpha) * x_MLP, where

        x_GMF = h · (p_u * q_i) + b,
        x_MLP = g([p'_u, q'_i]),

    and g is a network of rectified linear layers, each half as wide as the one before, with a
    linear output. Both are the logits of an interaction.

    An epoch takes every interaction as a 1, and for each of them `negatives` items that the user
    has not had as a 0, and lowers the cross-entropy, one minibatch after the other. In the first
    `pretraining` epochs GMF and MLP learn apart, by Adam. They have no parameter in common, so
    they do it side by side, from the same samples. Thereafter both learn from the cross-entropy of
    the weighted sum, by plain gradient descent. It is the sum that is validated, all along.

    He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering, WWW 2017.
    """

    name: ClassVar[str] = "NeuMF"
    training_state: ClassVar[tuple[str, ...]] = ("_learned", "_adam")
    settings_class = NeuMfSettings
    settings: NeuMfSettings
    user_uf_: Singles

    def _begin(self, data: TrainingData) -> Tensors:
        parameters = initial(self._rng(), self._shapes(data), deviation=0.01)
        self._learned = parameters
        self._adam, tensors = adam(parameters, self.settings.learning_rate)
        return tensors

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        rng, settings = self._rng(epoch), self.settings
        n, total = len(data.users_p), 0.0
        users_p = np.tile(data.users_p, 1 + settings.negatives)
        items_p = np.concatenate([data.items_p, unseen_items(data, users_p[n:], rng)])
        order_p = rng.permutation(len(users_p))
        is_apart = epoch < settings.pretraining
        assert self.rate is not None
        self._adam.param_groups[0]["lr"] = self.rate
        optimizer: torch.optim.Optimizer = self._adam
        if not is_apart:
            optimizer = torch.optim.SGD(self._learned.values(), self.rate)
        for start in range(0, len(order_p), settings.batch):
            own = order_p[start : start + settings.batch]
            happened_p = torch.from_numpy((own < n).astype(np.float32))
            logits = self._logits(users_p[own], items_p[own])
            if not is_apart:
                logits = [self._weighted(*logits)]
            loss = torch.stack([cross_entropy(each, happened_p) for each in logits]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(own)
        give_cold_users_the_mean(self.user_uf_, data)
        return total / len(order_p)

    def _weighted(self, gmf: Tensor, mlp: Tensor) -> Tensor:
        return self.settings.alpha * gmf + (1 - self.settings.alpha) * mlp

    def _logits(self, users_p: Index, items_p: Index) -> list[Tensor]:
        """(p,) of GMF and of MLP."""
        d, parameters = self.settings.mlp_factors, self._learned
        user_pf = embedding(torch.from_numpy(users_p), parameters["user_uf"])
        item_pf = embedding(torch.from_numpy(items_p), parameters["item_if"])
        products_pf = user_pf[:, d:] * item_pf[:, d:]
        gmf_p = (products_pf @ parameters["weight_f"]) + parameters["bias"]
        weight_ho = parameters["weight1_ho"]
        sums_po = product(user_pf[:, :d], weight_ho[:d]) + product(item_pf[:, :d], weight_ho[d:])
        return [gmf_p, perceptron(sums_po, parameters, "relu")]

    def _scores(self, users_b: np.ndarray) -> Singles:
        parameters, d = self._parameters(self.catalogue.data), self.settings.mlp_factors
        item_mf = parameters["item_if"]
        weight_ho, at_once = parameters["weight1_ho"], max(1, _CHUNK // len(item_mf))
        blocks = []
        with torch.inference_mode():
            # The products of the first layer are those of a user plus those of an item.
            item_mo = product(item_mf[:, :d], weight_ho[d:])
            for start in range(0, len(users_b), at_once):
                user_bf = parameters["user_uf"][users_b[start : start + at_once]]
                user_bo = product(user_bf[:, :d], weight_ho[:d])
                sums_po = (user_bo[:, None] + item_mo).flatten(0, 1)
                mlp_bm = perceptron(sums_po, parameters, "relu").view(len(user_bf), -1)
                weighted_bf = user_bf[:, d:] * parameters["weight_f"]
                gmf_bm = product(weighted_bf, item_mf[:, d:].T) + parameters["bias"]
                blocks.append(self._weighted(gmf_bm, mlp_bm))
        return torch.cat(blocks).numpy()

    def _shapes(self, data: TrainingData) -> Shapes:
        settings = self.settings
        features = settings.mlp_factors + settings.factors
        units = [max(1, 2 * settings.mlp_factors >> k) for k in range(settings.hidden_layers + 1)]
        return {
            "user_uf": (data.n_users, features),
            "item_if": (data.n_items, features),
            "weight_f": (settings.factors,),
            "bias": (1,),
            **layer_shapes([*units, 1]),
        }


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, n, _CHUNK))
