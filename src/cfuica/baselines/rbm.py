"""Restricted Boltzmann machines of ratings.

Shape suffixes: p ratings or pairs, c cases and n inputs (see `cases.py`), k labels, h hidden units,
1 a single label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from cfuica.baselines.cases import CaseModel, minibatches, pairs_between
from cfuica.baselines.contract import Floats, Index, Learning, Shapes, Singles, TrainingData
from cfuica.baselines.iterative import IterativeSettings
from cfuica.data.vocabulary import MAX_DISTINCT, LabelScale
from cfuica.ops.decode import pair_products, weighted_sums
from cfuica.ops.encode import activate
from cfuica.ops.tables import SideName, SidePairs
from cfuica.training.checkpoint import Tensors
from cfuica.training.trainer import Trained

# Momentum and Gibbs steps of the first epochs, and of those that follow.
FIRST_EPOCHS, FIRST, LATER = 50, (0.6, 1), (0.9, 3)
LEARNED = ("weight_nkh", "bias_nk", "bias_h")


class RbmSettings(IterativeSettings):
    """Settings of `Rbm`; the defaults are those published for MovieLens 1M."""

    task: ClassVar[str] = "rating"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "hidden_units": ("choice", 100, 200, 500),
        "batch_size": ("choice", 50, 100, 500),
        "learning_rate": ("log", 0.01, 0.3),
        "l2": ("log", 0.01, 10.0),
    }

    hidden_units: int = Field(500, ge=1, description="Hidden units.")
    batch_size: int = Field(500, ge=1, description="Users or items of a minibatch.")
    l2: float = Field(0.1, ge=0, description="L2 penalty on the weights, for each minibatch.")
    learning_rate: float = Field(
        0.1, gt=0, description="Learning rate of a minibatch's mean, times 0.95 every 5 epochs."
    )
    epochs: int = Field(200, ge=1, description="Passes over the train set at most.")
    patience: int = Field(
        10, ge=1, description="Epochs without a better validation before training ends."
    )
    initial_deviation: float = Field(
        0.01, gt=0, description="Standard deviation of the initial weights."
    )

    def rate_after(self, cuts: int, epochs: int = 0) -> float:
        """It falls every 5 epochs."""
        return self.learning_rate * 0.95 ** (epochs // 5)


class Rbm(CaseModel):
    """Predicts the mean rating that a restricted Boltzmann machine expects.

    A case has binary hidden units g and, for each of its ratings, one visible unit per label, of
    which one is on. Inputs without a rating have no visible units. With k_n the label of input n,

        p(g, k) ~ exp(sum_n b_nk_n + sum_h g_h (c_h + sum_n W_nk_nh)),

    and the free energy of the ratings, in which all g are summed out, is

        F(k) = -sum_n b_nk_n - sum_h softplus(c_h + sum_n W_nk_nh).

    Contrastive divergence of T steps draws g given k and then k given g, T times, and descends
    along the gradient of F(ratings) - F(drawn), with momentum, and of l2 / 2 |W|^2 for each
    minibatch. T is 1 and the momentum 0.6 in the first 50 epochs, then 3 and 0.9. The labels are
    the distinct ratings, or bins where there are more than 20. A prediction sets g to its mean
    given all ratings of the case, and is the mean of the labels given g.

    Salakhutdinov, Mnih, Hinton: Restricted Boltzmann Machines for Collaborative Filtering, ICML
    2007.
    """

    settings_class = RbmSettings
    training_state: ClassVar[tuple[str, ...]] = ("_moves",)
    settings: RbmSettings
    value_k_: Floats  # The rating that each label stands for.

    def _learn(self, learning: Learning) -> Trained:
        # A label for each rating of a history, be it of the train or of the validation set.
        self.value_k_ = _label_values(learning.everything.data)
        return super()._learn(learning)

    def _begin(self, data: TrainingData) -> Tensors:
        own, n_labels = self.by_case(data), len(self.value_k_)
        shape = (own.n_items, n_labels, self.settings.hidden_units)
        column_p = own.items_p * n_labels + _labels(own, self.value_k_)
        count_nk = np.bincount(column_p, minlength=shape[0] * n_labels).reshape(shape[:2])
        # Every input begins with one rating more, spread like those of all, and every label too.
        share_k = (count_nk.sum(0) + 1.0) / (count_nk.sum() + n_labels)
        count_n = count_nk.sum(1)
        bias_nk = np.log((count_nk + share_k) / (count_n[:, None] + 1.0))
        weight_nkh = self._rng().normal(0.0, self.settings.initial_deviation, shape)
        weight_nkh[count_n == 0] = 0.0
        arrays = dict(zip(LEARNED, (weight_nkh, bias_nk, np.zeros(shape[2])), strict=True))
        learned = {name: torch.from_numpy(a.astype(np.float32)) for name, a in arrays.items()}
        self._moves = {f"move.{name}": torch.zeros_like(each) for name, each in learned.items()}
        fixed = {"value_k": torch.from_numpy(self.value_k_), "range": torch.from_numpy(own.range)}
        return {**learned, **fixed, **self._moves}

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        rng, settings = self._rng(epoch), self.settings
        momentum, steps = FIRST if epoch < FIRST_EPOCHS else LATER
        assert self.rate is not None
        own, parameters = self.by_case(data), self._parameters(data)
        learned = [parameters[name].requires_grad_() for name in LEARNED]
        labels_p, loss = _labels(own, self.value_k_), 0.0
        for cases_b, numbers_p, rows_p in minibatches(own, settings.batch_size, rng):
            given_p = labels_p[numbers_p]
            pairs = pairs_between(rows_p, own.items_p[numbers_p], len(cases_b), own.n_items)
            drawn_p, p_pk = self._drawn(parameters, pairs, given_p, steps, rng)
            given, _ = self._free_energy(parameters, pairs, given_p)
            drawn, _ = self._free_energy(parameters, pairs, drawn_p)
            loss -= float(p_pk[np.arange(len(given_p)), given_p].log().sum())
            gradients = torch.autograd.grad(given - drawn, learned)
            with torch.no_grad():
                for name, parameter, gradient in zip(LEARNED, learned, gradients, strict=True):
                    if name == "weight_nkh":
                        gradient += settings.l2 * parameter
                    move = self._moves[f"move.{name}"].mul_(momentum)
                    parameter += move.sub_(gradient, alpha=self.rate / len(cases_b))
        return loss / len(labels_p)

    @torch.no_grad()
    def _drawn(
        self,
        parameters: Tensors,
        pairs: SidePairs,
        drawn_p: Index,
        steps: int,
        rng: np.random.Generator,
    ) -> tuple[Index, Tensor]:
        """Labels (p,) after so many Gibbs steps from these, and the distributions (p, k) that the
        last step drew them from."""
        for _ in range(steps):
            _, mean_ch = self._free_energy(parameters, pairs, drawn_p)
            is_on_ch = rng.random(mean_ch.shape, np.float32) < mean_ch
            p_pk = self._distribution(parameters, pairs, torch.from_numpy(is_on_ch).float())
            drawn_p = (p_pk.cumsum(1).numpy() < rng.random((len(p_pk), 1))).sum(1)
            drawn_p = drawn_p.clip(max=p_pk.shape[1] - 1)  # The sum of all may be just below 1.
        return drawn_p, p_pk

    def _sums(self, parameters: Tensors, pairs: SidePairs, labels_p: Index) -> tuple[Tensor, Index]:
        """What the visible units that are on add to each hidden unit (c, h); and which these are,
        of all inputs and labels (p,)."""
        weight_nkh = parameters["weight_nkh"]
        n_inputs, n_labels, units = weight_nkh.shape
        on_p = pairs.row_of_pair * n_labels + labels_p
        n_cases = len(pairs.by_query.offsets) - 1
        on = pairs_between(pairs.query_of_pair, on_p, n_cases, n_inputs * n_labels)
        ones_p1 = np.ones((len(on_p), 1), np.float32)
        return weighted_sums(weight_nkh.reshape(-1, 1, units), on, ones_p1), on_p

    def _free_energy(
        self, parameters: Tensors, pairs: SidePairs, labels_p: Index
    ) -> tuple[Tensor, Singles]:
        """F, summed over the cases; and the mean of the hidden units (c, h)."""
        sums_ch, on_p = self._sums(parameters, pairs, labels_p)
        logit_ch = sums_ch + parameters["bias_h"]
        visible_p = parameters["bias_nk"].flatten().index_select(0, torch.from_numpy(on_p))
        energy = -visible_p.double().sum() - functional.softplus(logit_ch).double().sum()
        return energy, torch.sigmoid(logit_ch.detach()).numpy()

    def _distribution(self, parameters: Tensors, pairs: SidePairs, hidden_ch: Tensor) -> Tensor:
        """The distribution over the labels of each pair (p, k), given hidden units."""
        inputs_p = torch.from_numpy(pairs.row_of_pair)
        logit_pk = pair_products(parameters["weight_nkh"], pairs, hidden_ch)
        return (logit_pk + parameters["bias_nk"].index_select(0, inputs_p)).double().softmax(1)

    def _encode(self, parameters: Tensors, own: TrainingData) -> Tensor:
        pairs = pairs_between(own.users_p, own.items_p, own.n_users, own.n_items)
        sums_ch, _ = self._sums(parameters, pairs, _labels(own, self.value_k_))
        return activate(sums_ch, parameters["bias_h"], "sigmoid")

    def _decode(self, parameters: Tensors, pairs: SidePairs, hidden_ch: Tensor) -> Tensor:
        return (self._distribution(parameters, pairs, hidden_ch) * parameters["value_k"]).sum(1)

    def _shapes(self, data: TrainingData) -> Shapes:
        n_inputs = data.n_items if self.cases == "users" else data.n_users
        # That of all ratings, which a saved model has too.
        n_labels, units = len(_label_values(data)), self.settings.hidden_units
        return {
            "weight_nkh": (n_inputs, n_labels, units),
            "bias_nk": (n_inputs, n_labels),
            "bias_h": (units,),
            "value_k": (n_labels,),
            "range": (2,),
        }


def _label_values(data: TrainingData) -> Floats:
    """The ratings (k,) that the labels stand for, ascending."""
    distinct_k = np.unique(data.ratings_p)
    if len(distinct_k) <= MAX_DISTINCT:
        return distinct_k
    return np.array(LabelScale.of(pl.Series("rating", data.ratings_p)).values)


def _labels(data: TrainingData, value_k: Floats) -> Index:
    """The label (p,) whose value is nearest to each rating."""
    return np.searchsorted((value_k[1:] + value_k[:-1]) / 2, data.ratings_p, side="right")


class UserRbmSettings(RbmSettings):
    """Settings of `UserRbm`."""

    model: ClassVar[str] = "u-rbm"
    l2: float = Field(1.0, ge=0, description="L2 penalty on the weights, for each minibatch.")


class UserRbm(Rbm):
    """U-RBM: users are the cases."""

    name: ClassVar[str] = "U-RBM"
    cases: ClassVar[SideName] = "users"
    settings_class = UserRbmSettings


class ItemRbmSettings(RbmSettings):
    """Settings of `ItemRbm`."""

    model: ClassVar[str] = "i-rbm"


class ItemRbm(Rbm):
    """I-RBM: items are the cases."""

    name: ClassVar[str] = "I-RBM"
    cases: ClassVar[SideName] = "items"
    settings_class = ItemRbmSettings
