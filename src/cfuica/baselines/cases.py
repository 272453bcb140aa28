"""Models of ratings that encode cases: users by their ratings of items, or items by those of users.

A case has ratings of some inputs. A model makes hidden units of them, and from these the rating of
any input. Written for users as cases, it serves items as well, whose inputs are the users.

Shape suffixes: p ratings or pairs, c cases, n inputs, h hidden units.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from cfuica.baselines.contract import Floats, Index, RatingBaseline, TrainingData
from cfuica.baselines.iterative import Iterative
from cfuica.data.matrix import Csr
from cfuica.ops import sampling
from cfuica.ops.tables import Grouping, SideName, SidePairs
from cfuica.training.checkpoint import Tensors

Numbers = npt.NDArray[np.integer[Any]]


class CaseModel(Iterative, RatingBaseline):
    """Predicts the rating of an input from the hidden units of a case (`_encode`, `_decode`)."""

    cases: ClassVar[SideName]
    # Two indices, their order, and the logits of some labels.
    numbers_per_item: ClassVar[int] = 32

    # The hidden units of all cases, of the interactions that they were last predicted from.
    _encoded: tuple[TrainingData, torch.Tensor] | None = None

    def _finite_epoch(self, data: TrainingData, epoch: int, rate: float | None) -> float:
        self._encoded = None  # What they were made with changes now.
        return super()._finite_epoch(data, epoch, rate)

    def by_case(self, data: TrainingData) -> TrainingData:
        """The same ratings with cases in the place of users, sorted by them."""
        if self.cases == "users":
            return data
        order_p = np.argsort(data.items_p, kind="stable")
        return TrainingData(
            users_p=data.items_p[order_p],
            items_p=data.users_p[order_p],
            ratings_p=data.ratings_p[order_p],
            n_users=data.n_items,
            n_items=data.n_users,
        )

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        cases_p, inputs_p = (users_p, items_p) if self.cases == "users" else (items_p, users_p)
        data = self.catalogue.data
        parameters = self._parameters(data)
        with torch.no_grad():
            if self._encoded is None or self._encoded[0] is not data:
                self._encoded = data, self._encode(parameters, self.by_case(data))
            sizes = data.n_users, data.n_items
            n_cases, n_inputs = sizes if self.cases == "users" else reversed(sizes)
            pairs = pairs_between(cases_p, inputs_p, n_cases, n_inputs)
            predicted_p = self._decode(parameters, pairs, self._encoded[1])
        low, high = parameters["range"].tolist()
        clipped_p: Floats = predicted_p.double().clip(low, high).numpy()
        return clipped_p

    @abstractmethod
    def _encode(self, parameters: Tensors, own: TrainingData) -> torch.Tensor:
        """Hidden units (c, h) of all cases from their ratings."""

    @abstractmethod
    def _decode(
        self, parameters: Tensors, pairs: SidePairs, hidden_ch: torch.Tensor
    ) -> torch.Tensor:
        """Predicted ratings (p,) of pairs."""


def pairs_between(cases_p: Numbers, inputs_p: Numbers, n_cases: int, n_inputs: int) -> SidePairs:
    """Pairs as the ops see them: a query for each case, a row for each input."""
    query_p, row_p = cases_p.astype(np.int32), inputs_p.astype(np.int32)
    return SidePairs(
        rows=np.arange(n_inputs, dtype=np.int32),
        query_of_pair=query_p,
        row_of_pair=row_p,
        by_row=Grouping(*sampling.group(row_p, n_inputs)),
        by_query=Grouping(*sampling.group(query_p, n_cases)),
    )


def minibatches(
    own: TrainingData, size: int, rng: np.random.Generator
) -> Iterator[tuple[Index, Index, Index]]:
    """The cases (b) with ratings in random order, about so many at a time; with the numbers of
    their ratings (p) in the data, and which case of the minibatch each one is of (p)."""
    histories = own.histories
    numbers = Csr(histories.offsets, np.arange(len(own.items_p), dtype=np.int32))
    cases = rng.permutation(np.flatnonzero(histories.sizes))
    for cases_b in np.array_split(cases, -(-len(cases) // size)):
        ratings = numbers.take(cases_b)
        yield cases_b, ratings.indices.astype(np.intp), ratings.row_of_entry()
