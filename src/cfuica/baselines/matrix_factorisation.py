"""Biased matrix factorisation, trained by alternating least squares.

Shape suffixes: p ratings, n rows of the side that is solved, u users, i items, f features (the
bias first, then the factors).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cfuica.baselines.contract import (
    UNRATED,
    Floats,
    Index,
    RatingBaseline,
    at_least,
    not_negative,
    positive,
)
from cfuica.data.matrix import LabelledCsr
from cfuica.inference.similar import Similarity
from cfuica.ops.tables import SIDES, SideName
from cfuica.training.factorisation import factorise


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

    def __init__(
        self,
        factors: int = 10,
        *,
        l2: float = 12.0,
        bias_l2: float = 5.0,
        sweeps: int = 15,
        seed: int = 0,
    ) -> None:
        self.factors = at_least(0, "factors", factors)
        self.l2 = positive("l2", l2)  # 0 would leave rows with few ratings undetermined
        self.bias_l2 = not_negative("bias_l2", bias_l2)
        self.sweeps = at_least(1, "sweeps", sweeps)
        self.seed = at_least(0, "seed", seed)

    def _fit(
        self, users_p: Index, items_p: Index, ratings_p: Floats, *, n_users: int, n_items: int
    ) -> None:
        self.range_ = (float(ratings_p.min()), float(ratings_p.max()))
        # The number of a rating is its label, so that any rating will do.
        by_user, user_values = _rows(users_p, items_p, ratings_p, n_users)
        by_item, item_values = _rows(items_p, users_p, ratings_p, n_items)
        found = factorise(
            by_user,
            by_item,
            (user_values, item_values),
            factors=self.factors,
            l2=self.l2,
            bias_l2=self.bias_l2,
            sweeps=self.sweeps,
            steps=2 * (1 + self.factors),  # twice of what is enough without rounding
            seed=self.seed,
            dtype=np.float64,
        )
        self.mean_, self.user_uf_, self.item_if_ = found.mean, found.users_nf, found.items_nf

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        user_pf, item_pf = self.user_uf_[users_p], self.item_if_[items_p]
        taste_p: Floats = np.einsum("pf,pf->p", user_pf[:, 1:], item_pf[:, 1:])
        predicted_p: Floats = self.mean_ + user_pf[:, 0] + item_pf[:, 0] + taste_p
        return np.clip(predicted_p, *self.range_)

    def _shapes(self, *, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        rows = {"user_uf": n_users, "item_if": n_items}
        return {"mean": (), "range": (2,)} | {k: (n, 1 + self.factors) for k, n in rows.items()}

    def _similarity(self, axis: SideName) -> Similarity:
        rows_nf = self.user_uf_ if axis == "users" else self.item_if_
        is_comparable_n = (self.catalogue.support(axis) > 0) & (self.factors > 0)
        factors_nf = rows_nf[:, 1:].astype(np.float32)
        return Similarity.of_vectors(factors_nf, is_comparable_n, reason=UNRATED)


def _rows(
    rows_p: Index, others_p: Index, ratings_p: Floats, n_rows: int
) -> tuple[LabelledCsr, Floats]:
    """The ratings of each row, labelled by number, and the rating of each number."""
    order_p = np.argsort(rows_p, kind="stable")
    offsets = np.append(0, np.cumsum(np.bincount(rows_p, minlength=n_rows))).astype(np.int64)
    numbers: Any = np.arange(len(order_p))
    return LabelledCsr(offsets, others_p[order_p].astype(np.int32), numbers), ratings_p[order_p]
