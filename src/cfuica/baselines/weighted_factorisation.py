"""Matrix factorisation of implicit feedback by least squares on all pairs: eALS and iALS.

An interaction is to have the score 1, every other pair the score 0, but with less weight. An epoch
solves every user given the items, then every item given the users. Each half is a least squares
problem for each row, and all pairs without an interaction enter it through one matrix.

Shape suffixes: n rows of the side that is solved or of the other one, i items, f factors, p
interactions of a row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from cfuica.baselines.contract import Floats, Singles, TrainingData
from cfuica.baselines.factorisation import FactorSettings, RankingFactorisation
from cfuica.baselines.iterative import RefitSettings, give_cold_users_the_mean
from cfuica.data.matrix import Csr
from cfuica.ops import coordinate_descent
from cfuica.ops.runtime import one_blas_thread, run_rows
from cfuica.ops.tables import OTHER, SIDES, SideName
from cfuica.training.checkpoint import Tensors


class WeightedFactorisation(RankingFactorisation):
    """Ranks items by p_u · q_i, learned in turns of users and items.

    An item without interactions has factors of 0; a user without interactions, the mean factors of
    the others.
    """

    training_state: ClassVar[tuple[str, ...]] = ("_rows",)
    _rows: Mapping[SideName, Csr]

    def _begin(self, data: TrainingData) -> Tensors:
        tensors, by_item = (
            super()._begin(data),
            Csr.of_pairs(data.items_p, data.users_p, data.n_items),
        )
        self._rows = {"users": data.histories, "items": by_item}
        tensors["item_if"][by_item.sizes == 0] = 0.0
        return tensors

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        factors: dict[SideName, Singles] = {"users": self.user_uf_, "items": self.item_if_}
        # The bits of a product of matrices depend on the number of BLAS threads.
        with one_blas_thread():
            for side in SIDES:
                loss_n = self._solve(side, factors[side], factors[OTHER[side]])
        # The losses of all items together lack the penalty on the users.
        penalty_n = self._l2("users") * np.square(self.user_uf_).sum(1)
        give_cold_users_the_mean(self.user_uf_, data)
        return float(loss_n.sum() + penalty_n.sum()) / len(data.users_p)

    @abstractmethod
    def _solve(self, side: SideName, own_nf: Singles, other_nf: Singles) -> Floats:
        """Minimise the loss over the rows of a side, in place; returns the part of each, less the
        penalty on the other side."""

    @abstractmethod
    def _l2(self, side: SideName) -> Singles:
        """(n,) the L2 penalty of each row."""


class EalsSettings(RefitSettings, FactorSettings):
    """Settings of `ElementwiseFactorisation`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "eals"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 16, 32, 64, 128),
        "missing_weight": ("log", 30.0, 3000.0),
        "popularity_exponent": ("uniform", 0.0, 1.0),
        "l2": ("log", 0.01, 50.0),
    }

    missing_weight: float = Field(
        512.0, gt=0, description="Weight of all items together as missing ones of a user."
    )
    popularity_exponent: float = Field(
        0.75, ge=0, description="Power of its popularity that an item's share of this weight has."
    )
    l2: float = Field(0.01, gt=0, description="L2 penalty on the factors.")
    initial_deviation: float = Field(
        0.01, gt=0, description="Standard deviation of the initial factors."
    )
    epochs: int = Field(500, ge=1, description="Passes over users and items at most.")
    patience: int = Field(
        10, ge=1, description="Epochs without a better validation before training ends."
    )


class ElementwiseFactorisation(WeightedFactorisation):
    """Ranks items by p_u · q_i, learned by element-wise alternating least squares.

    With n_i interactions of an item and the weight c_i = missing_weight * n_i^a / sum_j n_j^a
    (a is the popularity exponent), factors are to minimise

        sum over interactions (1 - p_u · q_i)^2 + sum over all other pairs c_i (p_u · q_i)^2
            + l2 * (|P|^2 + |Q|^2):

    a popular item that a user has not had was probably seen and left, so it has more weight. An
    epoch sets each number of each row, one after the other, to the best there is given all others.

    He, Zhang, Kan, Chua: Fast Matrix Factorization for Online Recommendation with Implicit
    Feedback, SIGIR 2016.
    """

    name: ClassVar[str] = "eALS"
    settings_class = EalsSettings
    settings: EalsSettings

    def _solve(self, side: SideName, own_nf: Singles, other_nf: Singles) -> Floats:
        rows, loss_n = self._rows[side], np.empty(len(own_nf))
        weights: dict[SideName, Singles] = {
            "users": np.ones(len(self.user_uf_), np.float32),
            "items": self._item_weights(),
        }
        missing_n = weights[OTHER[side]]
        gram_ff = other_nf.T @ (missing_n[:, None] * other_nf)
        run_rows(
            coordinate_descent.sweep, rows.n_rows, rows.offsets, rows.indices, other_nf, missing_n,
            gram_ff, weights[side], self._l2(side), own_nf, loss_n, work=rows.offsets,
        )  # fmt: skip
        return loss_n

    def _item_weights(self) -> Singles:
        """(i,) the weight of each item where it is missing."""
        count_i = self._rows["items"].sizes.astype(np.float64)
        power_i = np.where(count_i > 0, count_i**self.settings.popularity_exponent, 0.0)
        weight_i: Singles = (self.settings.missing_weight * power_i / power_i.sum()).astype(
            np.float32
        )
        return weight_i

    def _l2(self, side: SideName) -> Singles:
        return np.full(self._rows[side].n_rows, self.settings.l2, np.float32)


class IalsSettings(RefitSettings, FactorSettings):
    """Settings of `ImplicitFactorisation`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "ials"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "factors": ("choice", 32, 64, 128, 192),
        "unobserved_weight": ("log", 0.01, 3.0),
        "l2": ("log", 1e-3, 0.1),
    }

    factors: int = Field(192, ge=1, description="Factors of a user and of an item.")
    unobserved_weight: float = Field(0.3, gt=0, description="Weight of a pair's score being 0.")
    l2: float = Field(0.007, gt=0, description="L2 penalty on the factors, times a frequency.")
    frequency_exponent: float = Field(
        1.0, ge=0, le=1, description="Power of the frequency; 0: the same penalty for all rows."
    )
    initial_deviation: float = Field(
        0.007, gt=0, description="Standard deviation of the initial factors."
    )
    epochs: int = Field(50, ge=1, description="Passes over users and items at most.")


class ImplicitFactorisation(WeightedFactorisation):
    """Ranks items by p_u · q_i, learned by alternating least squares on implicit feedback.

    With a the unobserved weight, n_u and n_i the interactions of a user and of an item, N users, M
    items and v the frequency exponent, factors are to minimise

        sum over interactions (1 - p_u · q_i)^2 + a * sum over all pairs (p_u · q_i)^2
            + l2 * (sum_u (n_u + a M)^v |p_u|^2 + sum_i (n_i + a N)^v |q_i|^2).

    Each row is solved exactly: p_u = (sum of q_i q_i' over u's items + a Q'Q + its penalty)^-1
    times the sum of q_i over u's items; and items in the same way.

    Hu, Koren, Volinsky: Collaborative Filtering for Implicit Feedback Datasets, ICDM 2008. Penalty
    and defaults are those of Rendle, Krichene, Zhang, Koren: Revisiting the Performance of iALS on
    Item Recommendation Benchmarks, RecSys 2022.
    """

    name: ClassVar[str] = "iALS"
    settings_class = IalsSettings
    settings: IalsSettings

    def _solve(self, side: SideName, own_nf: Singles, other_nf: Singles) -> Floats:
        rows, l2_n, loss_n = self._rows[side], self._l2(side), np.zeros(len(own_nf))
        gram_ff = np.float32(self.settings.unobserved_weight) * (other_nf.T @ other_nf)
        unit_ff = np.eye(len(gram_ff), dtype=np.float32)

        def solve(start: int, stop: int) -> None:
            for row in range(start, stop):
                z_pf = other_nf[rows.indices[slice(*rows.offsets[row : row + 2])]]
                sum_f = z_pf.sum(0)
                own_nf[row] = np.linalg.solve(z_pf.T @ z_pf + gram_ff + l2_n[row] * unit_ff, sum_f)
                loss_n[row] = len(z_pf) - sum_f @ own_nf[row]  # of a row that is solved

        run_rows(solve, rows.n_rows, work=rows.offsets)
        return loss_n

    def _l2(self, side: SideName) -> Singles:
        settings, n_others = self.settings, self._rows[OTHER[side]].n_rows - 1
        frequency_n = self._rows[side].sizes + settings.unobserved_weight * n_others
        l2_n: Singles = settings.l2 * frequency_n**settings.frequency_exponent
        return l2_n.astype(np.float32)
