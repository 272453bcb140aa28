"""What an item is ranked by: its predicted distribution and its support become one number.

    expected   the mean of the predicted distribution: the rating that `predict` gives.
    lower      the mean of the worst tenth of the calibrated distribution: the rating if it turns
               out badly. The less sure the model is, the lower it is.
    blend      the expected rating and support: 2.5% of the rating scale (0.1 of 1 to 5 stars) more
               for each doubling of the users who rated the item, less for each halving. An item
               with as many ratings as the average item has keeps its expected rating; a popular
               one may have a score above the end of the scale.

`lower` is a mean over the tail and not mean - z * deviation, because that leaves the scale, and
can rank an item lower for being certainly better. `blend` grows with the logarithm of support,
because this left more different items in the lists than pulling items of little support towards a
mean did at the same accuracy, and because a strict user's items must not be pulled up to a mean.
`benchmarks/recommending.py` compares them and chose the constants and the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfuica.errors import SettingsError
from cfuica.kernels import score as kernel
from cfuica.kernels.threads import run_rows
from cfuica.model.prediction import expected_rating

By = Literal["expected", "lower", "blend"]
DEFAULT_BY: By = "blend"

# The share of the distribution that counts as turning out badly.
WORST_SHARE = 0.1
# What a doubling of its support is worth to an item, as a share of the rating scale.
DOUBLING = 0.025

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
    bonus_m: NDArray[np.float32],
    distributions: Distributions,
    by: By = DEFAULT_BY,
) -> NDArray[np.float32]:
    """The scores (B, M) of a block of users and M items.

    `values_k` (ascending) are the ratings that the labels stand for; `bonus_m` is the items'
    `support_bonus`, which only `blend` adds. Only `lower` asks for `distributions`
    (`Calibration.distributions`): calibration keeps the mean of every distribution.
    """
    if by == "lower":
        return worst_rating(activation_bmk, values_k, distributions)
    expected_bm = expected_rating(activation_bmk, values_k)
    if by == "blend":
        expected_bm += bonus_m
    return expected_bm


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


def support_bonus(
    support_m: NDArray[np.integer], values_k: NDArray[np.float32], doubling: float = DOUBLING
) -> NDArray[np.float32]:
    """What `blend` adds to the expected rating of each item, (M,).

    doubling * (v_K - v_1) * log2((n + 1) / (n' + 1)) for n ratings, where n' is the mean support
    of the items that anybody rated.
    """
    average = support_m.sum() / max(np.count_nonzero(support_m), 1)
    doublings_m = np.log2((support_m + 1.0) / (average + 1.0))
    scale = float(values_k[-1] - values_k[0])
    return np.asarray(doubling * scale * doublings_m, dtype=np.float32)
