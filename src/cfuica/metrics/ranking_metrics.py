"""Metrics of ranked lists: accuracy, from the ranks of relevant items; coverage and popularity.

Accuracy is of R relevant items with ranks r_1 < ... < r_R (1 is best) among N candidates, for each
of U users. Every metric is a number per user, higher is better, and the mean over users is
reported. Relevance is binary; with one relevant item HR equals recall, and MAP equals MRR.

Coverage, novelty and popularity bias are of `ranked_un` (U, n), the items recommended to each user,
best first, -1 where a list is shorter. The popularity of an item is the number of users who
interacted with it in training. `RankingScores` are the scores of a validation.

Shape suffixes: u users, t relevant items of all users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cfuica.data.matrix import Csr
from cfuica.errors import SettingsError
from cfuica.metrics.rating_metrics import RatingScores

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of each user's relevant items, at least one, as compressed rows."""

    offsets: npt.NDArray[np.int64]  # (U + 1,)
    ranks_t: npt.NDArray[np.int64]  # (T,) from 1; ascending and distinct within a row.
    candidates_u: npt.NDArray[np.int64]  # (U,) N, the relevant ones among them.

    @property
    def relevant_u(self) -> npt.NDArray[np.int64]:
        """(U,) R."""
        return np.diff(self.offsets)

    def sums(self, values_t: npt.ArrayLike) -> Values:
        """(U,) the sum over each user's relevant items."""
        sums_u: Values = np.add.reduceat(np.asarray(values_t, np.float64), self.offsets[:-1])
        return sums_u

    def places(self) -> npt.NDArray[np.int64]:
        """(T,) from 1: the number of relevant items at an item's rank or above it."""
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
    discounted_t = np.where(ranks.ranks_t <= k, 1.0 / np.log2(ranks.ranks_t + 1.0), 0.0)
    best = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2.0, k + 2.0)))])
    best_u: Values = best[np.minimum(ranks.relevant_u, k)]
    return ranks.sums(discounted_t) / best_u


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


# The metrics with a cut-off k.
AT_CUTOFFS: Mapping[str, Callable[[Ranks, int], Values]] = {
    "hr": hr,
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "mrr": mrr,
    "map": map_,
}


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


RankedLists = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Popularity:
    """The popularity of items in training."""

    counts_m: npt.NDArray[np.int64]  # (M,) the number of users of each item.
    n_users: int
    of_histories: float  # The mean popularity of a user's items, averaged over users.

    @classmethod
    def of(cls, seen: Csr, n_items: int) -> Popularity:
        """From the items of each user."""
        counts_m = np.bincount(seen.indices, minlength=n_items)
        sizes_u = seen.sizes
        sums_u = np.bincount(
            seen.row_of_entry(), weights=counts_m[seen.indices], minlength=seen.n_rows
        )
        active_u = sizes_u > 0
        means = sums_u[active_u] / sizes_u[active_u]
        return cls(counts_m, seen.n_rows, float(means.mean()) if means.size else 0.0)


def coverage(ranked_un: RankedLists, k: int, n_items: int) -> float:
    """The share of the `n_items` of the catalogue that is among the first k of any list."""
    first = ranked_un[:, :k]
    return np.unique(first[first >= 0]).size / n_items


def novelty(ranked_un: RankedLists, k: int, popularity: Popularity) -> Values:
    """(U,) the mean of -log2(popularity / number of users) over the first k, in bits.

    An item without users counts as if it had one; an empty list is 0.
    """
    share_m = np.maximum(popularity.counts_m, 1) / max(popularity.n_users, 1)
    return _mean_over_ranked_lists(ranked_un, k, -np.log2(share_m))


def popularity_bias(ranked_un: RankedLists, k: int, popularity: Popularity) -> Values:
    """(U,) the mean popularity of the first k, relative to that of the users' items in training.

    Above 1 the list is more popular than the histories. The mean over a list is divided by
    `Popularity.of_histories`, the same number for all users. An empty list is 0.
    """
    relative_m = popularity.counts_m / (popularity.of_histories or 1.0)
    return _mean_over_ranked_lists(ranked_un, k, relative_m)


def _mean_over_ranked_lists(ranked_un: RankedLists, k: int, values_m: Values) -> Values:
    first = ranked_un[:, :k]
    there = first >= 0
    values = np.where(there, values_m[np.where(there, first, 0)], 0.0)
    means: Values = values.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return means


@dataclass(frozen=True)
class RankingScores:
    """Validation scores: the ranks of `n` users' next items among all unseen items."""

    ndcg: float  # NDCG@10
    hr: float  # HR@10
    n: int

    measure: ClassVar[str] = "NDCG@10"
    sign: ClassVar[int] = -1

    @property
    def value(self) -> float:
        """The score that training is judged by."""
        return self.ndcg

    @property
    def named(self) -> dict[str, float]:
        """The scores by their usual names."""
        return {"NDCG@10": self.ndcg, "HR@10": self.hr}


# Each has a `measure`, its `value`, and a `sign`: sign * value is to be low.
Scores = RatingScores | RankingScores


def scores_of_record(record: dict[str, Any] | None) -> Scores | None:
    """The inverse of `asdict` and JSON."""
    if record is None:
        return None
    return RatingScores(**record) if "rmse" in record else RankingScores(**record)
