"""Biased matrix factorisation, trained by alternating least squares.

Shape suffixes: p ratings, n rows of the side that is solved, u users, i items, f features (the
bias first, then the factors).
"""

from __future__ import annotations

from typing import ClassVar

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
from cfuica.inference.similar import Similarity
from cfuica.ops.tables import SIDES, SideName

_INITIAL_WIDTH = 0.1  # of the factors that the first sweep starts from


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
        self.mean_ = float(ratings_p.mean())
        self.range_ = (float(ratings_p.min()), float(ratings_p.max()))
        centred_p = ratings_p - self.mean_
        generator = np.random.default_rng(self.seed)
        self.item_if_ = np.zeros((n_items, 1 + self.factors))
        self.item_if_[:, 1:] = _INITIAL_WIDTH * generator.standard_normal((n_items, self.factors))
        for _ in range(self.sweeps):
            self.user_uf_ = self._solved(users_p, n_users, self.item_if_[items_p], centred_p)
            self.item_if_ = self._solved(items_p, n_items, self.user_uf_[users_p], centred_p)

    def _solved(self, rows_p: Index, n_rows: int, other_pf: Floats, centred_p: Floats) -> Floats:
        """Bias and factors (n, f) of one side, given the other side's at each rating."""
        order_p = np.argsort(rows_p, kind="stable")
        ends_n = np.cumsum(np.bincount(rows_p, minlength=n_rows))
        regressors_pf = other_pf[order_p]
        target_p = centred_p[order_p] - regressors_pf[:, 0]
        regressors_pf[:, 0] = 1.0  # the other side's bias is explained, this side's comes here

        n_features = 1 + self.factors
        gram_nff = np.zeros((n_rows, n_features, n_features))
        moment_nf = np.zeros((n_rows, n_features))
        begin = 0
        for row, end in enumerate(ends_n):
            regressors_rf = regressors_pf[begin:end]
            np.matmul(regressors_rf.T, regressors_rf, out=gram_nff[row])
            np.matmul(target_p[begin:end], regressors_rf, out=moment_nf[row])
            begin = end
        gram_nff += np.diag([self.bias_l2, *[self.l2] * self.factors])
        # An empty row's moments are 0: any regular matrix gives its answer, 0.
        gram_nff[gram_nff[:, 0, 0] == 0.0] = np.eye(n_features)
        solved_nf1 = np.linalg.solve(gram_nff, moment_nf[:, :, np.newaxis])
        return np.asarray(solved_nf1[:, :, 0], dtype=np.float64)

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        user_pf, item_pf = self.user_uf_[users_p], self.item_if_[items_p]
        taste_p: Floats = np.einsum("pf,pf->p", user_pf[:, 1:], item_pf[:, 1:])
        return np.clip(self.mean_ + user_pf[:, 0] + item_pf[:, 0] + taste_p, *self.range_)

    def _shapes(self, *, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        rows = {"user_uf": n_users, "item_if": n_items}
        return {"mean": (), "range": (2,)} | {k: (n, 1 + self.factors) for k, n in rows.items()}

    def _similarity(self, axis: SideName) -> Similarity:
        rows_nf = self.user_uf_ if axis == "users" else self.item_if_
        is_comparable_n = (self.catalogue.support(axis) > 0) & (self.factors > 0)
        factors_nf = rows_nf[:, 1:].astype(np.float32)
        return Similarity.of_vectors(factors_nf, is_comparable_n, reason=UNRATED)
