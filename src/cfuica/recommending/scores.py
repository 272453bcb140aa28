"""What an item is ranked by: its predicted distribution and its support become one number.

Every score is a rating on the scale of the data:

    expected   the mean of the predicted distribution, what `predict` says.
    lower      the mean of the worst tenth of the predicted distribution: what the user would
               think of it if it turned out badly. Where the model is unsure, it is lower.
    blend      the expected rating, pulled towards what the user is expected to give a typical
               item, the more the fewer people have rated this one: an item with as many ratings
               as the average item has goes half of the way.

`lower` is a mean over the tail and not mean - z * deviation because that can leave the scale, and
can rank an item lower for being certainly better. `benchmarks/recommending.py` chose the constants
and the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfuica.errors import SettingsError
from cfuica.kernels import score as kernel
from cfuica.kernels.threads import run_rows

By = Literal["expected", "lower", "blend"]
DEFAULT_BY: By = "blend"

# The share of the distribution that counts as turning out badly.
WORST_SHARE = 0.1

Distributions: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(P, K) activations and (K,) rating values to (P, K) float32 calibrated distributions."""


def check_by(by: str) -> None:
    """An error unless `by` is one of the three."""
    if by not in get_args(By):
        known = ", ".join(repr(name) for name in get_args(By))
        raise SettingsError(f"by is {by!r}, but items are recommended by one of {known}.")


def scores(
    activation_bmk: NDArray[np.float32],
    values_k: NDArray[np.float32],
    support_m: NDArray[np.integer],
    distributions: Distributions,
    by: By = DEFAULT_BY,
) -> NDArray[np.float32]:
    """The scores (B, M) of a block of users and all M items.

    `values_k` (ascending) are the ratings that the labels stand for, `support_m` is how many users
    rated each item. Only `lower` asks for `distributions` (`Calibration.distributions`):
    calibration keeps the mean of every distribution.
    """
    if by == "lower":
        return worst_rating(activation_bmk, values_k, distributions)
    expected_bm = expected_rating(activation_bmk, values_k)
    return blended(expected_bm, support_m) if by == "blend" else expected_bm


def expected_rating(
    activation_bmk: NDArray[np.float32], values_k: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The mean rating (B, M) under the softmax of the activations."""
    out_bm = np.empty(activation_bmk.shape[:2], np.float32)
    run_rows(kernel.expected, len(out_bm), activation_bmk, values_k, out_bm)
    return out_bm


def worst_rating(
    activation_bmk: NDArray[np.float32],
    values_k: NDArray[np.float32],
    distributions: Distributions,
    share: float = WORST_SHARE,
) -> NDArray[np.float32]:
    """The mean rating (B, M) over the lowest `share` of each calibrated distribution."""
    flat_pk = activation_bmk.reshape(-1, activation_bmk.shape[2])
    probability_bmk = distributions(flat_pk, values_k).reshape(activation_bmk.shape)
    out_bm = np.empty(activation_bmk.shape[:2], np.float32)
    run_rows(kernel.worst, len(out_bm), probability_bmk, values_k, np.float32(share), out_bm)
    return out_bm


def blended(
    expected_bm: NDArray[np.float32],
    support_m: NDArray[np.integer],
    weight: float = 1.0,
) -> NDArray[np.float32]:
    """Expected ratings (B, M), each pulled towards its row's mean over all behaviours.

    score = typical + n / (n + c) * (expected - typical), where n is the item's support, c is
    `weight` times the mean support of the items that anybody rated, and typical is the row's mean
    of expected ratings weighted by support. The mean is the user's own, and not that of all
    ratings, because to somebody strict everything is below that: pulled up to it, what nobody
    knows would be ranked first.
    """
    total = int(support_m.sum())
    if total == 0:  # nobody rated anything: no item is more typical than another
        return expected_bm
    added = weight * total / np.count_nonzero(support_m)
    share_m = (support_m / total).astype(np.float32)
    trust_m = (support_m / (support_m + added)).astype(np.float32)
    out_bm = np.empty_like(expected_bm)
    run_rows(kernel.pull, len(out_bm), expected_bm, share_m, trust_m, out_bm)
    return out_bm
