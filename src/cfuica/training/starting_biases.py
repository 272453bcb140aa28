"""Biases that training starts from: those of the model mean + user bias + item bias.

Users and items with a handful of ratings have too few for Adam, which moves a row with one rating
as fast as one with a hundred. Damped means give such rows what their ratings bear. As logits,

    b_item[k] = log q_k + d_item z_k,    b_user[k] = d_user z_k,

with d a damped mean of residuals in units of their variance, z_k the distance of label k from the
mean rating, and q the labels' distribution narrowed to the residual variance. So the network begins
with expected ratings of the bias model and with variances that are right.

Shape suffixes: n rows of a side, k labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix
from cfuica.model.network import Network
from cfuica.ops.tables import SideName
from cfuica.training.alternating_least_squares import factorise

_SWEEPS = 20
# In ratings. Chosen on what is left of MovieLens 100K when it is thinned to 5,000 and 20,000.
DAMPING: dict[SideName, float] = {"users": 6.0, "items": 4.0}
_TINY = 1e-12  # in place of a variance of 0


def starting_biases(matrix: InteractionMatrix, values_k: np.ndarray) -> dict[SideName, np.ndarray]:
    """Logits (n + 1, K) of each side; the last row is that of cold-start users or items."""
    values_k = np.asarray(values_k, np.float64)
    found = factorise(
        matrix.by_user,
        matrix.by_item,
        (values_k, values_k),
        factors=0,
        l2=0.0,
        bias_l2=(DAMPING["users"], DAMPING["items"]),
        sweeps=_SWEEPS,
        steps=1,
        dtype=np.float64,
    )
    user_n, item_n = found.users_nf[:, 0], found.items_nf[:, 0]
    mean, variance = found.mean, found.rmse**2
    spread_k = (values_k - mean) / max(variance, _TINY)
    counts_k = np.bincount(matrix.by_user.labels, minlength=len(values_k))
    prior_k = _narrowed(counts_k, values_k, mean, variance)
    return {
        "users": np.append(user_n, 0.0)[:, None] * spread_k,
        "items": np.append(item_n, 0.0)[:, None] * spread_k + prior_k,
    }


@torch.no_grad()
def add_biases(network: Network, biases: dict[SideName, np.ndarray]) -> Network:
    """Add logits (n + 1, K) to the biases of the network's sides; returns the network."""
    for name, side in network.sides.items():
        logits_nk = biases[name]
        if network.items is None:
            logits_nk = logits_nk + biases["items"][-1]  # the labels' distribution
        added_nk = torch.from_numpy(logits_nk).to(side.b.values)[:, :, None]
        side.b.values[: side.n_own_rows] += added_nk[:-1]
        side.b.values[side.n_own_rows :] += added_nk[-1]  # of clusters, and the shared one
    return network


def update_biases(
    networks: Mapping[str, Network],
    matrix: InteractionMatrix,
    everything: InteractionMatrix,
    values_k: np.ndarray,
) -> None:
    """Move trained biases that started from those of `matrix` by what those of `everything`, which
    has the validation set too, are away from them."""
    before, after = (starting_biases(each, values_k) for each in (matrix, everything))
    moved: dict[SideName, np.ndarray] = {name: after[name] - before[name] for name in before}
    for network in networks.values():
        add_biases(network, moved)


def _narrowed(
    counts_k: np.ndarray, values_k: np.ndarray, mean: float, variance: float
) -> np.ndarray:
    """Log-probabilities (K) with this mean and variance, as near as can be to these counts."""
    place_k = (values_k - mean) / max(variance, _TINY) ** 0.5
    moments_2k = np.stack((place_k, place_k**2))
    logs_k = np.log(counts_k + 1.0)
    theta = np.zeros(2)
    for _ in range(50):  # Newton's method in an exponential family
        p_k = np.exp(logs_k + theta @ moments_2k - (logs_k + theta @ moments_2k).max())
        p_k /= p_k.sum()
        expected = moments_2k @ p_k
        covariance = (moments_2k * p_k) @ moments_2k.T - np.outer(expected, expected)
        step = np.linalg.solve(covariance + 1e-6 * np.eye(2), np.array([0.0, 1.0]) - expected)
        theta += step * min(1.0, 0.5 / max(np.abs(step).max(), 1e-12))
    found_k: np.ndarray = logs_k + theta @ moments_2k
    found_k -= found_k.mean()
    return found_k
