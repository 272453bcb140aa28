"""Biased matrix factorisation by alternating least squares, for clusters and as a baseline.

A rating is predicted as mean + b_u + b_i + p_u . q_i. A sweep solves every user given the items,
then every item given the users; each is a ridge regression of its ratings (`least_squares.solve`).
On two cores a sweep over the 100 million ratings of Netflix with 100 factors takes under a minute.
Shape suffix f is the number of features: the bias first, then the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfuica.data.matrix import LabelledCsr
from cfuica.ops import least_squares
from cfuica.ops.runtime import run_rows

_INITIAL_WIDTH = 0.1  # of the factors that the first sweep starts from


@dataclass(frozen=True, eq=False)
class Factors:
    """A fitted factorisation; biases are relative to `mean`."""

    mean: float
    users_nf: np.ndarray
    items_nf: np.ndarray
    rmse: float  # On what it was fitted to.

    def predict(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) predicted ratings of pairs."""
        user_pf, item_pf = self.users_nf[users_p], self.items_nf[items_p]
        taste_p: np.ndarray = np.einsum("pf,pf->p", user_pf[:, 1:], item_pf[:, 1:])
        predicted_p: np.ndarray = self.mean + user_pf[:, 0] + item_pf[:, 0] + taste_p
        return predicted_p


def factorise(
    by_user: LabelledCsr,
    by_item: LabelledCsr,
    values: tuple[np.ndarray, np.ndarray],
    *,
    factors: int,
    l2: float,
    bias_l2: float | tuple[float, float],
    sweeps: int,
    steps: int,
    seed: int = 0,
    dtype: Any = np.float32,
    progress: Callable[[float], None] = lambda share: None,
) -> Factors:
    """Minimise the squared errors + bias_l2 (|b_U|^2 + |b_I|^2) + l2 (|P|^2 + |Q|^2); `bias_l2` may
    be one of users and one of items.

    `values` are the ratings of the labels of `by_user` and of those of `by_item`. At most `steps`
    conjugate gradients solve a row; with as many as features every row is solved exactly.
    """
    counts_k = np.bincount(by_user.labels, minlength=len(values[0]))
    mean = float(np.average(values[0], weights=counts_k))
    generator = np.random.default_rng(seed)
    users_nf, items_nf = (
        np.zeros((rows.n_rows, 1 + factors), dtype) for rows in (by_user, by_item)
    )
    items_nf[:, 1:] = _INITIAL_WIDTH * generator.standard_normal((by_item.n_rows, factors))
    each = bias_l2 if isinstance(bias_l2, tuple) else (bias_l2, bias_l2)
    l2_users, l2_items = (np.array([one, *[l2] * factors], dtype) for one in each)
    centred_users, centred_items = ((of_labels - mean).astype(dtype) for of_labels in values)
    for sweep in range(sweeps):
        for half, (rows, centred, other_nf, l2_f, own_nf) in enumerate(
            (
                (by_user, centred_users, items_nf, l2_users, users_nf),
                (by_item, centred_items, users_nf, l2_items, items_nf),
            )
        ):
            run_rows(
                least_squares.solve, rows.n_rows, rows.offsets, rows.indices, rows.labels, centred,
                other_nf, l2_f, steps, own_nf, work=rows.offsets,
            )  # fmt: skip
            progress((2 * sweep + half + 1) / (2 * sweeps))
    squares_n = np.empty(by_user.n_rows)
    run_rows(
        least_squares.errors, by_user.n_rows, by_user.offsets, by_user.indices, by_user.labels,
        centred_users, users_nf, items_nf, squares_n, work=by_user.offsets,
    )  # fmt: skip
    rmse = float(np.sqrt(squares_n.sum() / max(by_user.indices.size, 1)))
    return Factors(mean, users_nf, items_nf, rmse)
