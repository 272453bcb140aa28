"""CF-NADE: ratings of a user, or of an item, predicted one after the other from those before.

A *case* is what the network encodes, a user or an item, and a *row* is what has parameters, an item
or a user. So the user form and the item form are one class.

Shape suffixes: p ratings or pairs, q cases that are encoded, r rows, k labels, j labels with the
column of the rated ones in front, h hidden units, l layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from pydantic import Field
from torch import Tensor

from cfuica.baselines.cases import pairs_between
from cfuica.baselines.contract import (
    Floats,
    Index,
    Learning,
    RatingBaseline,
    Shapes,
    Singles,
    TrainingData,
)
from cfuica.baselines.iterative import FallingRateSettings, Iterative
from cfuica.data.matrix import InteractionMatrix, LabelledCsr
from cfuica.data.vocabulary import LabelScale
from cfuica.model.network import softmax
from cfuica.ops import decode, encode, sampling
from cfuica.ops.adam import adam_step
from cfuica.ops.loss import rating_loss
from cfuica.ops.runtime import zeros
from cfuica.ops.tables import Bags, Grouping, RowTable, SideName
from cfuica.training.checkpoint import Tensors
from cfuica.training.trainer import Trained

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
PENALISED = ("input_rjh", "hidden_h1h", "output_rkh")


class CfNadeSettings(FallingRateSettings):
    """Settings of `CfNade`: those of the published experiment."""

    task: ClassVar[str] = "rating"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "hidden": ("choice", 64, 128, 256, 512),
        "learning_rate": ("log", 3e-4, 1e-2),
        "l2": ("log", 1e-3, 0.1),
    }

    learning_rate: float = Field(1e-3, gt=0, description="Adam's rate before the first cut.")
    epochs: int = Field(1000, ge=1, description="Passes over the train set at most.")
    patience: int = Field(
        60, ge=1, description="Epochs without a better validation before the rate is cut."
    )
    hidden: int = Field(500, ge=1, description="Units of each of the two hidden layers.")
    l2: float = Field(0.02, ge=0, description="L2 penalty on all weights but biases.")
    batch: int = Field(512, ge=1, description="Users, or items, per minibatch.")
    average: float = Field(
        0.995, ge=0, lt=1, description="Decay of the moving average of the parameters, per step."
    )


class CfNade(Iterative, RatingBaseline):
    """CF-NADE-S with two hidden layers and the ordinal loss; a user or an item is a case.

    A case with ratings k_1 .. k_d of the rows r_1 .. r_d is encoded, and the label of another row r
    predicted, by

        h1 = tanh(c1 + sum over t of A[r_t] + W[r_t, 1] + .. + W[r_t, k_t]),   h2 = tanh(c2 + h1 U),
        s_k = s_{k-1} + V[r, k] . h2 + b[r, k],    p(k) = softmax of s over the labels k.

    The sums up to k are label sharing ("S"); A is what having rated says, whatever the rating. The
    prediction is the mean rating under p.

    A minibatch takes some cases, draws an order of the D ratings of each and a number d of 0 to
    D - 1, and predicts the last D - d from the first d. Adam minimises

        mean over cases of D / (D - d) * the sum of their ordinal losses + l2 * |A, W, U, V|^2,

    which estimates the loss of predicting each rating from those before it. A moving average of the
    parameters is validated and predicts. Biases b start from the log of how often each row had each
    label, with one imaginary rating that is distributed as all ratings are. A row without ratings
    keeps that and has weights of 0.

    Here A is column 0 of the table W, which every label has in its sum.

    Zheng, Tang, Ding, Zhou: A Neural Autoregressive Approach to Collaborative Filtering, ICML 2016.
    """

    cases: ClassVar[SideName]
    numbers_per_item: ClassVar[int] = 32  # as of `CaseModel`
    training_state: ClassVar[tuple[str, ...]] = ("_tensors", "_tables")
    settings: CfNadeSettings
    scale: LabelScale | None = None
    input_rjh_: Singles  # In use: the sums over labels.
    output_rkh_: Singles
    output_bias_rk1_: Singles
    hidden_h1h_: Singles
    hidden_bias_l1h_: Singles
    _ratings: tuple[TrainingData, LabelledCsr] | None = None

    def _learn(self, learning: Learning) -> Trained:
        self.scale = None
        self._scale(learning.everything.data)  # all that the model will read
        return super()._learn(learning)

    def _begin(self, data: TrainingData) -> Tensors:
        rng, by_case = self._rng(), self._by_case(data)
        self._tensors: Tensors = {"steps": torch.zeros(())}
        shapes = self._shapes(data)
        n_rows, n_labels, _ = shapes["output_rkh"]
        cells_p = by_case.indices * n_labels + by_case.labels
        counts_rk = np.bincount(cells_p, minlength=n_rows * n_labels).reshape(n_rows, n_labels)
        share_k = counts_rk.sum(0) + 1.0
        share_k /= share_k.sum()
        for name, shape in shapes.items():
            start = np.zeros(shape, np.float32)
            if name in PENALISED:  # Glorot-uniform
                bound = math.sqrt(6 / (shape[0] + shape[-1]))
                start = ((2 * rng.random(shape, np.float32) - 1) * np.float32(bound)).cumsum(1)
            if name in ("input_rjh", "output_rkh"):
                start[counts_rk.sum(1) == 0] = 0.0
            if name == "output_bias_rk1":
                start[:, :, 0] = np.log(counts_rk + share_k)
            own = torch.from_numpy(start)
            self._tensors |= {name: own.clone(), f"now.{name}": own}
            self._tensors |= {f"mean.{name}": zeros(*shape), f"square.{name}": zeros(*shape)}
        self._tables = {name: RowTable(self._tensors[f"now.{name}"], share=True) for name in shapes}
        return self._tensors

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        rng, by_case, size = self._rng(epoch), self._by_case(data), self.settings.batch
        order = rng.permutation(np.flatnonzero(by_case.sizes)).astype(np.int32)
        total = 0.0
        for start in range(0, len(order), size):
            cases_q = order[start : start + size]
            loss = self._loss(by_case, cases_q, rng)
            loss.backward()
            self._step()
            total += loss.item() * len(cases_q)
        return total / len(data.users_p)

    def _loss(self, by_case: LabelledCsr, cases_q: np.ndarray, rng: np.random.Generator) -> Tensor:
        """The loss of a minibatch without the penalty."""
        n_rows, n_columns, _ = self.input_rjh_.shape
        offsets, entries = _entries(by_case, cases_q, n_columns)
        sizes_q = np.diff(offsets)
        query_p = np.repeat(np.arange(len(cases_q), dtype=np.int32), sizes_q)
        entries = entries[np.lexsort((rng.random(len(entries)), query_p))]
        split_q = rng.integers(0, sizes_q)
        is_context_p = np.arange(len(entries)) - offsets[query_p] < split_q[query_p]
        inputs, targets = entries[is_context_p], entries[~is_context_p]
        offsets = np.append(0, np.cumsum(split_q))
        readers = Grouping(*sampling.transpose(offsets, inputs, n_rows * n_columns))
        rows_p, columns_p = np.divmod(targets, n_columns)
        query_p = query_p[~is_context_p]
        logits_pk = self._logits(self._tables, Bags(offsets, inputs, readers), query_p, rows_p)
        weight_q = sizes_q / (sizes_q - split_q) / len(cases_q)
        labels_p = (columns_p - 1).astype(np.uint8)
        return rating_loss(logits_pk, labels_p, 1.0, weight_q[query_p].astype(np.float32))

    def _logits(
        self, tables: Mapping[str, RowTable], bags: Bags, query_p: np.ndarray, rows_p: np.ndarray
    ) -> Tensor:
        """(P, K) logits of rows and queries, which are encoded from their bags."""
        n_rows, _, hidden = tables["input_rjh"].values.shape
        bias_lh = decode.gather(tables["hidden_bias_l1h"], np.arange(2))[:, 0]
        weight_hh = decode.gather(tables["hidden_h1h"], np.arange(hidden))[:, 0]
        sums_qh = encode.bag_sums(tables["input_rjh"], bags)
        first_qh = encode.activate(sums_qh, bias_lh[0], "tanh")
        sums_qh = decode.linear(first_qh, weight_hh, weight_hh.new_zeros(()))
        second_qh = encode.activate(sums_qh, bias_lh[1], "tanh")
        pairs = pairs_between(query_p, rows_p, bags.n_rows, n_rows)
        bias_pk = decode.row_bias(tables["output_bias_rk1"], pairs)
        return decode.decode(tables["output_rkh"], pairs, second_qh) + bias_pk

    @torch.no_grad()
    def _step(self) -> None:
        """Adam's step, in the form of the published experiments, and that of the average."""
        tensors, settings = self._tensors, self.settings
        tensors["steps"] += 1
        steps = tensors["steps"].item()
        assert self.rate is not None
        rate = self.rate * math.sqrt(1 - BETA2**steps) / (1 - BETA1**steps)
        for name, table in self._tables.items():
            adam_step(
                table.values,
                tensors[f"mean.{name}"],
                tensors[f"square.{name}"],
                table.gradient,
                share=True,
                penalty=settings.l2 if name in PENALISED else 0.0,
                scale=1.0,
                limit=math.inf,
                rate=rate,
                beta1=BETA1,
                beta2=BETA2,
                epsilon=EPSILON,
            )
            table.gradient = None
            tensors[name].lerp_(table.values, 1 - settings.average)

    @torch.no_grad()
    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        data = self.catalogue.data
        tables = {name: RowTable(each) for name, each in self._parameters(data).items()}
        both = users_p.astype(np.int32), items_p.astype(np.int32)
        cases_p, rows_p = both if self.cases == "users" else reversed(both)
        cases_q, query_p = np.unique(cases_p, return_inverse=True)
        scale = self._scale(data)
        bags = Bags(*_entries(self._by_case(data), cases_q, scale.size + 1))
        logits_pk = self._logits(tables, bags, query_p.astype(np.int32), rows_p)
        expected_p: Floats = (softmax(logits_pk.double().numpy()) * scale.values).sum(1)
        return expected_p

    def _by_case(self, data: TrainingData) -> LabelledCsr:
        """The rated rows of each case with their labels; those of the last data are kept."""
        if self._ratings is None or self._ratings[0] is not data:
            scale = self._scale(data)
            matrix = InteractionMatrix.from_triplets(
                data.users_p,
                data.items_p,
                scale.encode(data.ratings_p),
                n_users=data.n_users,
                n_items=data.n_items,
                n_labels=scale.size,
            )
            self._ratings = data, matrix.by(self.cases)
        return self._ratings[1]

    def _scale(self, data: TrainingData) -> LabelScale:
        """The labels. A model that is being loaded finds them in the ratings that it knows."""
        if self.scale is None:
            ratings = pl.Series("rating", data.ratings_p)
            only_one = ratings.n_unique() == 1
            self.scale = LabelScale((ratings[0],)) if only_one else LabelScale.of(ratings)
        return self.scale

    def _shapes(self, data: TrainingData) -> Shapes:
        n_rows = data.n_items if self.cases == "users" else data.n_users
        labels, hidden = self._scale(data).size, self.settings.hidden
        return {
            "input_rjh": (n_rows, labels + 1, hidden),
            "hidden_h1h": (hidden, 1, hidden),
            "hidden_bias_l1h": (2, 1, hidden),
            "output_rkh": (n_rows, labels, hidden),
            "output_bias_rk1": (n_rows, labels, 1),
        }


def _entries(
    by_case: LabelledCsr, cases_q: np.ndarray, n_columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """The ratings of cases as compressed rows of entries of W, whose column 0 is A."""
    none_q = np.full(len(cases_q), -1, np.int32)
    columns_p = by_case.labels + np.uint8(1)
    offsets, entries = sampling.whole_contexts(
        by_case.offsets, by_case.indices, columns_p, cases_q, none_q, n_columns
    )
    return offsets, entries


class UserCfNadeSettings(CfNadeSettings):
    """Settings of `UserCfNade`."""

    model: ClassVar[str] = "u-cf-nade-s"


class UserCfNade(CfNade):
    """CF-NADE of users: the ratings of a user, one item after the other."""

    name: ClassVar[str] = "U-CF-NADE-S"
    cases: ClassVar[SideName] = "users"
    settings_class = UserCfNadeSettings


class ItemCfNadeSettings(CfNadeSettings):
    """Settings of `ItemCfNade`."""

    model: ClassVar[str] = "i-cf-nade-s"


class ItemCfNade(CfNade):
    """CF-NADE of items: the ratings of an item, one user after the other."""

    name: ClassVar[str] = "I-CF-NADE-S"
    cases: ClassVar[SideName] = "items"
    settings_class = ItemCfNadeSettings
