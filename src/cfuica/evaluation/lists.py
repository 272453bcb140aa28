"""Metrics of what is recommended, whether anybody wants it or not.

`lists_un` (U, n) are the items recommended to each user, best first, -1 where a list is shorter.
The popularity of an item is the number of users who did it in training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfuica.evaluation.ranking import Values
from cfuica.evaluation.rows import ItemRows

Lists = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Popularity:
    """What the users did in training."""

    counts_m: npt.NDArray[np.int64]
    """(M,) how many users did each item."""
    n_users: int
    of_histories: float
    """The popularity of what a user did, averaged over each user's behaviours, then over users."""

    @classmethod
    def of(cls, done: ItemRows, n_items: int) -> Popularity:
        """Of what each user did."""
        counts_m = np.bincount(done.members, minlength=n_items)
        sizes_u = done.sizes
        sums_u = np.bincount(
            done.row_of_member(), weights=counts_m[done.members], minlength=done.n_rows
        )
        active_u = sizes_u > 0
        means = sums_u[active_u] / sizes_u[active_u]
        return cls(counts_m, done.n_rows, float(means.mean()) if means.size else 0.0)


def coverage(lists_un: Lists, k: int, n_items: int) -> float:
    """The share of the `n_items` of the catalogue that is among the first k of anybody's list."""
    first = lists_un[:, :k]
    return np.unique(first[first >= 0]).size / n_items


def novelty(lists_un: Lists, k: int, popularity: Popularity) -> Values:
    """(U,) the mean of -log2(popularity / number of users) over the first k, in bits.

    An item that nobody did counts as if one user had; an empty list is 0.
    """
    share_m = np.maximum(popularity.counts_m, 1) / max(popularity.n_users, 1)
    return _mean_over_lists(lists_un, k, -np.log2(share_m))


def popularity_bias(lists_un: Lists, k: int, popularity: Popularity) -> Values:
    """(U,) the mean popularity of the first k, relative to that of what users did in training.

    1: as popular as what people do; above 1: more popular. The mean over a list is divided by
    `Popularity.of_histories`, the same number for all users. An empty list is 0.
    """
    relative_m = popularity.counts_m / (popularity.of_histories or 1.0)
    return _mean_over_lists(lists_un, k, relative_m)


def _mean_over_lists(lists_un: Lists, k: int, values_m: Values) -> Values:
    first = lists_un[:, :k]
    there = first >= 0
    values = np.where(there, values_m[np.where(there, first, 0)], 0.0)
    means: Values = values.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return means
