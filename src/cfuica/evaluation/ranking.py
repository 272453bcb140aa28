"""Metrics of ranked lists, from the ranks of the relevant items alone.

For each of U users: R relevant items with ranks r_1 < ... < r_R (1 is best) among N candidates.
Every metric is a number per user, higher is better, and the mean over users is what is reported.
Gains are binary; with one relevant item HR and recall are the same, and MAP and MRR.

Shape suffixes: u users, t relevant items of all users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfuica.errors import DataError, SettingsError

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of each user's relevant items, which are at least one, as compressed rows."""

    offsets: npt.NDArray[np.int64]
    """(U + 1,)"""
    ranks_t: npt.NDArray[np.int64]
    """(T,) from 1; ascending and distinct within a row."""
    candidates_u: npt.NDArray[np.int64]
    """(U,) N, the relevant ones among them."""

    @classmethod
    def of(cls, offsets: npt.ArrayLike, ranks: npt.ArrayLike, candidates: npt.ArrayLike) -> Ranks:
        """Of rows in any order, checked."""
        offsets_ = np.asarray(offsets, np.int64)
        candidates_u = np.asarray(candidates, np.int64)
        sizes_u = np.diff(offsets_)
        if candidates_u.shape != sizes_u.shape:
            raise DataError(
                f"There are numbers of candidates for {candidates_u.size} users, but ranks of "
                f"{sizes_u.size}; give one number for each user."
            )
        if sizes_u.size == 0 or sizes_u.min() < 1:
            raise DataError(
                "There is a user without a relevant item, or no user at all; ask only about users "
                "who have one."
            )
        user_t = np.repeat(np.arange(sizes_u.size), sizes_u)
        ranks_t = np.asarray(ranks, np.int64)
        ranks_t = ranks_t[np.lexsort((ranks_t, user_t))]
        repeated = (np.diff(ranks_t) == 0) & (np.diff(user_t) == 0)
        if repeated.any() or ranks_t.min() < 1 or (ranks_t > candidates_u[user_t]).any():
            raise DataError(
                "The ranks of a user are not distinct numbers from 1 to the number of candidates; "
                "count ties against the relevant item, one place each."
            )
        return cls(offsets_, ranks_t, candidates_u)

    @property
    def relevant_u(self) -> npt.NDArray[np.int64]:
        """(U,) R."""
        return np.diff(self.offsets)

    def sums(self, values_t: npt.ArrayLike) -> Values:
        """(U,) the sum over each user's relevant items."""
        sums_u: Values = np.add.reduceat(np.asarray(values_t, np.float64), self.offsets[:-1])
        return sums_u

    def places(self) -> npt.NDArray[np.int64]:
        """(T,) from 1: how many relevant items stand at an item's rank or above it."""
        return np.arange(1, self.ranks_t.size + 1) - np.repeat(self.offsets[:-1], self.relevant_u)


def hr(ranks: Ranks, k: int) -> Values:
    """Hit rate: 1 where at least one relevant item is among the first k, else 0."""
    return (ranks.ranks_t[ranks.offsets[:-1]] <= k).astype(np.float64)


def recall(ranks: Ranks, k: int) -> Values:
    """The share of the relevant items that is among the first k: divided by R, also where k < R."""
    return _hits(ranks, k) / ranks.relevant_u


def precision(ranks: Ranks, k: int) -> Values:
    """The share of the first k that is relevant: divided by k, also where N < k."""
    return _hits(ranks, k) / k


def ndcg(ranks: Ranks, k: int) -> Values:
    """The sum of 1 / log2(r + 1) over the relevant among the first k, divided by its largest value.

    That is reached where the first min(R, k) are all relevant.
    """
    gain_t = np.where(ranks.ranks_t <= k, 1.0 / np.log2(ranks.ranks_t + 1.0), 0.0)
    best = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2.0, k + 2.0)))])
    best_u: Values = best[np.minimum(ranks.relevant_u, k)]
    return ranks.sums(gain_t) / best_u


def mrr(ranks: Ranks, k: int) -> Values:
    """1 / rank of the first relevant item where that is among the first k, else 0."""
    first_u = ranks.ranks_t[ranks.offsets[:-1]]
    return np.where(first_u <= k, 1.0 / first_u, 0.0)


def map_(ranks: Ranks, k: int) -> Values:
    """Average precision: the sum over relevant items among the first k of the precision at their
    rank, divided by R (as trec_eval has it), also where k < R."""
    precision_t = np.where(ranks.ranks_t <= k, ranks.places() / ranks.ranks_t, 0.0)
    return ranks.sums(precision_t) / ranks.relevant_u


def auc(ranks: Ranks) -> Values:
    """The share of pairs (relevant, irrelevant candidate) in which the relevant one is above.

    1 where no candidate is irrelevant: there is nothing to be above of.
    """
    wrong_u = ranks.sums(ranks.ranks_t - ranks.places())
    irrelevant_u = ranks.candidates_u - ranks.relevant_u
    return 1.0 - wrong_u / np.maximum(ranks.relevant_u * irrelevant_u, 1)


AT_CUTOFFS: Mapping[str, Callable[[Ranks, int], Values]] = {
    "hr": hr,
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "mrr": mrr,
    "map": map_,
}
"""What is computed for the first k."""


def ranking_metrics(ranks: Ranks, cutoffs: Iterable[int]) -> dict[str, Values]:
    """Name, such as `hr@10`, to (U,) values; `auc` has no cut-off."""
    values = {
        f"{name}@{k}": metric(ranks, k) for name, metric in AT_CUTOFFS.items() for k in cutoffs
    }
    return {**values, "auc": auc(ranks)}


def checked_cutoffs(cutoffs: Iterable[int]) -> tuple[int, ...]:
    """Each once, ascending; at least one, all of at least 1."""
    given = tuple(sorted(set(cutoffs)))
    if not given or given[0] < 1:
        raise SettingsError(
            f"The cut-offs are {', '.join(map(str, given)) or 'none'}, but a metric looks at the "
            f"first 1 or more of a list; give whole numbers of at least 1."
        )
    return given


def _hits(ranks: Ranks, k: int) -> Values:
    return ranks.sums(ranks.ranks_t <= k)
