"""Metrics of ranked lists, and their evaluation: a test set, the scores of any system, the metrics.

`RankingTest` holds the test users, their relevant items and their candidates. A `Scorer` is any
system that scores items for users. `answer` ranks the candidates by the scores, block by block of
users, and computes every metric.

Accuracy is of R relevant items with ranks r_1 < ... < r_R (1 is best) among N candidates, for each
of U users. Every metric is a number per user, higher is better, and the mean over users is
reported. Relevance is binary; with one relevant item HR equals recall, and MAP equals MRR.

Coverage, novelty and popularity bias are of `ranked_un` (U, n), the items recommended to each user,
best first, -1 where a list is shorter. The popularity of an item is the number of users who
interacted with it in training. `RankingScores` are the scores of a validation.

Shape suffixes: u test users, d draws of candidates, c candidates of a user, m all items, b users of
a block, t relevant items of all users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from cfuica.data.matrix import Csr
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.metrics.rating_metrics import RatingScores
from cfuica.ops import topk
from cfuica.ops.runtime import run_rows

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of each user's relevant items, at least one, as compressed rows."""

    offsets: npt.NDArray[np.int64]  # (U + 1,)
    ranks_t: npt.NDArray[np.int64]  # (T,) from 1; ascending and distinct within a row.
    candidates_u: npt.NDArray[np.int64]  # (U,) N, the relevant ones among them.
    items_t: npt.NDArray[np.int32] | None = None  # (T,) the relevant item at each rank.

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

    def only(self, chosen_t: npt.NDArray[np.bool_]) -> Ranks:
        """Those of some relevant items, as if the others were no candidates; users who have none
        of them are left out."""
        per_user_u = self.sums(chosen_t).astype(np.int64)
        has_u = per_user_u > 0
        offsets = np.append(0, np.cumsum(per_user_u[has_u]))
        candidates_u = (self.candidates_u - self.relevant_u + per_user_u)[has_u]
        some = Ranks(offsets, self.ranks_t[chosen_t], candidates_u)
        # An item moves up by the relevant ones above it that are no candidates any more.
        return replace(some, ranks_t=some.ranks_t - self.places()[chosen_t] + some.places())


def hr(ranks: Ranks, k: int) -> Values:
    """Hit rate: 1 where at least one relevant item is among the first k, else 0."""
    return (ranks.ranks_t[ranks.offsets[:-1]] <= k).astype(np.float64)


def recall(ranks: Ranks, k: int) -> Values:
    """The share of the relevant items that is among the first k: divided by R, also where k < R."""
    return ranks.sums(ranks.ranks_t <= k) / ranks.relevant_u


def precision(ranks: Ranks, k: int) -> Values:
    """The share of the first k that is relevant: divided by k, also where N < k."""
    return ranks.sums(ranks.ranks_t <= k) / k


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


def sampled_hr(ranks: Ranks, k: int, sampled: int) -> Values:
    """(U,) the expectation of HR@k among one relevant item and `sampled` random other candidates.

    Of the N - 1 others r - 1 are above the item. It is a hit where fewer than k of these are drawn,
    a number with a hypergeometric distribution.
    """
    above_u, others_u = ranks.ranks_t - 1, ranks.candidates_u - 1
    drawn_u = np.minimum(sampled, others_u)
    log_factorials = np.append(0.0, np.cumsum(np.log(np.arange(1.0, others_u.max() + 1))))

    def log_choices(n: npt.NDArray[np.int64], of: npt.ArrayLike) -> Values:
        some = np.clip(of, 0, n)
        found = log_factorials[n] - log_factorials[some] - log_factorials[n - some]
        return np.where(some == of, found, -np.inf)

    hits_u = np.zeros(above_u.size)
    for j in range(k):
        log_ways = log_choices(above_u, j) + log_choices(others_u - above_u, drawn_u - j)
        hits_u += np.exp(log_ways - log_choices(others_u, drawn_u))
    return hits_u


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


def coverage(ranked_un: npt.NDArray[np.int32], k: int, n_items: int) -> float:
    """The share of the `n_items` of the catalogue that is among the first k of any list."""
    first = ranked_un[:, :k]
    return np.unique(first[first >= 0]).size / n_items


def novelty(ranked_un: npt.NDArray[np.int32], k: int, popularity: Popularity) -> Values:
    """(U,) the mean of -log2(popularity / number of users) over the first k, in bits.

    An item without users counts as if it had one; an empty list is 0.
    """
    share_m = np.maximum(popularity.counts_m, 1) / max(popularity.n_users, 1)
    return _mean_over_ranked_lists(ranked_un, k, -np.log2(share_m))


def popularity_bias(ranked_un: npt.NDArray[np.int32], k: int, popularity: Popularity) -> Values:
    """(U,) the mean popularity of the first k, relative to that of the users' items in training.

    Above 1 the list is more popular than the histories. The mean over a list is divided by
    `Popularity.of_histories`, the same number for all users. An empty list is 0.
    """
    relative_m = popularity.counts_m / (popularity.of_histories or 1.0)
    return _mean_over_ranked_lists(ranked_un, k, relative_m)


def _mean_over_ranked_lists(ranked_un: npt.NDArray[np.int32], k: int, values_m: Values) -> Values:
    first = ranked_un[:, :k]
    there = first >= 0
    values = np.where(there, values_m[np.where(there, first, 0)], 0.0)
    means: Values = values.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return means


class Scorer(Protocol):
    """A system that scores items for users, by their indices; a higher score is better."""

    def scores(self, users_b: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """(B, M): the scores of all items."""
        ...

    def candidate_scores(
        self, users_b: npt.NDArray[np.int32], items_bc: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """(B, C): the scores of each user's candidates."""
        ...


@dataclass(frozen=True, eq=False)
class RankingTest:
    """The relevant items of U users, to be ranked among candidates or among all unseen items."""

    protocol: str
    users_u: npt.NDArray[np.int32]
    relevant: Csr  # U rows: each user's test items, at least one.
    # (D, U, C) the candidates of each of D draws: first the relevant items in the order of
    # `relevant`, then items that count as irrelevant, then -1 where there are fewer. None: every
    # unseen item of the catalogue.
    candidates_duc: npt.NDArray[np.int32] | None = None
    # U rows: items that are not ranked because the user has interacted with them; none is relevant.
    # Without candidates only.
    seen: Csr | None = None
    # (M,) the items that may be recommended. Without candidates only.
    catalogue_m: npt.NDArray[np.bool_] | None = None

    @classmethod
    def among_unseen(
        cls,
        protocol: str,
        users_u: npt.NDArray[np.int32],
        relevant: Csr,
        *,
        seen: Csr,
        catalogue_m: npt.NDArray[np.bool_],
    ) -> RankingTest:
        """The candidates are every item of the catalogue that the user has not seen, and the
        relevant items."""
        _check(users_u, relevant)
        return cls(
            protocol, users_u, relevant, seen=seen.without(relevant), catalogue_m=catalogue_m
        )

    @classmethod
    def among(
        cls,
        protocol: str,
        users_u: npt.NDArray[np.int32],
        relevant: Csr,
        others_duc: npt.NDArray[np.int32],
    ) -> RankingTest:
        """The relevant items among others (D, U, C'), -1 behind the last where there are fewer.

        Another may equal a relevant one, as in NCF's files: it then has its score, and counts as
        any irrelevant candidate with that score does.
        """
        _check(users_u, relevant)
        draws, users, n_others = others_duc.shape
        if users != users_u.size:
            raise DataError(
                f"There are candidates for {users} users, but {users_u.size} are tested; give "
                f"candidates to each."
            )
        sizes_u = relevant.sizes
        candidates_duc = np.full((draws, users, int(sizes_u.max()) + n_others), -1, np.int32)
        rows = relevant.row_of_entry()
        places = np.arange(rows.size) - relevant.offsets[rows]
        candidates_duc[:, rows, places] = relevant.indices
        behind_uc = sizes_u[:, None] + np.arange(n_others)
        candidates_duc[:, np.arange(users)[:, None], behind_uc] = others_duc
        return cls(protocol, users_u, relevant, candidates_duc)

    @property
    def n_users(self) -> int:
        """U."""
        return int(self.users_u.size)


def _check(users_u: npt.NDArray[np.int32], relevant: Csr) -> None:
    if users_u.size == 0:
        raise DataError("There is no test user: no user has an interaction to test on.")
    if relevant.n_rows != users_u.size or relevant.sizes.min() < 1:
        raise DataError(
            f"There are {relevant.n_rows} rows of relevant items for {users_u.size} users, and "
            f"each user needs at least one item; leave out who has none."
        )


# Scores held at a time: this bounds the memory, however many users and items there are.
_SCORES = 1 << 23


@dataclass(frozen=True, eq=False)
class RankingResult:
    """Every metric of one system under one protocol."""

    # Name, such as `hr@10`, to (U,) values; what is reported is their mean.
    per_user: dict[str, Values]
    # Metrics of all ranked lists together (`coverage@10`), which no single user has.
    of_all: dict[str, float]
    ranks: tuple[Ranks, ...] = ()  # Of each draw of candidates.

    def value(self, name: str) -> float:
        """The value of a metric by its name."""
        return self.of_all[name] if name in self.of_all else float(self.per_user[name].mean())


def answer(
    ranking_test: RankingTest,
    scorer: Scorer,
    cutoffs: Iterable[int],
    *,
    popularity: Popularity | None = None,
    block: int | None = None,
) -> RankingResult:
    """Rank the candidates by the scorer's scores, `block` users at a time; every metric of it.

    With several draws of candidates a user's value is the mean over draws. Metrics of ranked lists
    (coverage, novelty, popularity bias) are of tests without candidates, for the top of a hundred
    random items depends on the draw; the latter two need `popularity`.
    """
    cutoffs = sorted(set(cutoffs))
    if not cutoffs or cutoffs[0] < 1:
        raise SettingsError(
            f"The cut-offs are {', '.join(map(str, cutoffs)) or 'none'}, but a metric looks at the "
            f"first 1 or more of a list; give whole numbers of at least 1."
        )
    if ranking_test.candidates_duc is not None:
        ranks = _among_candidates(ranking_test, ranking_test.candidates_duc, scorer, block)
        draws = [ranking_metrics(each, cutoffs) for each in ranks]
        per_user = {name: np.mean([values[name] for values in draws], axis=0) for name in draws[0]}
        return RankingResult(per_user, {}, tuple(ranks))
    one, ranked_un = _among_unseen(ranking_test, scorer, cutoffs[-1], block)
    per_user, of_all = ranking_metrics(one, cutoffs), {}
    assert ranking_test.catalogue_m is not None
    n_items = int(np.count_nonzero(ranking_test.catalogue_m))
    for k in cutoffs:
        of_all[f"coverage@{k}"] = coverage(ranked_un, k, n_items)
        if popularity is not None:
            per_user[f"novelty@{k}"] = novelty(ranked_un, k, popularity)
            per_user[f"popularity_bias@{k}"] = popularity_bias(ranked_un, k, popularity)
    return RankingResult(per_user, of_all, (one,))


def _among_candidates(
    ranking_test: RankingTest,
    candidates_duc: npt.NDArray[np.int32],
    scorer: Scorer,
    block: int | None,
) -> list[Ranks]:
    """The ranks of each draw."""
    draws, users, n = candidates_duc.shape
    relevant = ranking_test.relevant
    ranks_dt = np.empty((draws, relevant.indices.size), np.int64)
    items_t, rows_of_all = np.empty_like(relevant.indices), relevant.row_of_entry()
    places_of_all = np.arange(rows_of_all.size) - relevant.offsets[rows_of_all]
    count_ud = np.ascontiguousarray(np.count_nonzero(candidates_duc >= 0, axis=2).T)
    size = block or max(1, _SCORES // (draws * n))
    for start in range(0, users, size):
        stop = min(start + size, users)
        # All draws of a user at once, so that a scorer encodes the user once.
        items_bdc = candidates_duc[:, start:stop].transpose(1, 0, 2)
        items_bc = np.ascontiguousarray(np.maximum(items_bdc, 0).reshape(stop - start, draws * n))
        scores_bc = _checked(scorer.candidate_scores(ranking_test.users_u[start:stop], items_bc))
        run_rows(
            topk.among_candidates,
            stop - start,
            scores_bc.reshape(stop - start, draws, n),
            count_ud[start:stop],
            relevant.offsets[start : stop + 1],
            ranks_dt,
        )
        own = slice(relevant.offsets[start], relevant.offsets[stop])
        rows_t, places_t = rows_of_all[own] - start, places_of_all[own]
        order_t = np.lexsort((-scores_bc[rows_t, places_t], rows_t))
        items_t[own] = relevant.indices[own][order_t]
    return [Ranks(relevant.offsets, ranks_dt[d], count_ud[:, d], items_t) for d in range(draws)]


def _among_unseen(
    ranking_test: RankingTest, scorer: Scorer, n: int, block: int | None
) -> tuple[Ranks, npt.NDArray[np.int32]]:
    """The ranks, and (U, n) the top n unseen items of each user, -1 behind them."""
    seen, relevant, allowed_m = ranking_test.seen, ranking_test.relevant, ranking_test.catalogue_m
    assert seen is not None
    assert allowed_m is not None
    n_items = allowed_m.size
    ranks_t = np.empty(relevant.indices.size, np.int64)
    items_t, rows_of_all = np.empty_like(relevant.indices), relevant.row_of_entry()
    candidates_u = np.empty(ranking_test.n_users, np.int64)
    ranked_un = np.full((ranking_test.n_users, n), -1, np.int32)
    # A relevant item is a candidate of its user even where the catalogue does not list it.
    allowed = np.flatnonzero(allowed_m).astype(np.int32)
    width = min(n, allowed.size)
    size = block or max(1, _SCORES // n_items)
    for start in range(0, ranking_test.n_users, size):
        stop = min(start + size, ranking_test.n_users)
        scores_bm = _checked(scorer.scores(ranking_test.users_u[start:stop]))
        seen_b = seen.take(np.arange(start, stop))
        run_rows(
            topk.among_all,
            stop - start,
            scores_bm,
            allowed_m,
            seen_b.offsets,
            seen_b.indices,
            relevant.offsets[start : stop + 1],
            relevant.indices,
            ranks_t,
            candidates_u[start:stop],
        )
        own = slice(relevant.offsets[start], relevant.offsets[stop])
        rows_t, own_t = rows_of_all[own] - start, relevant.indices[own]
        items_t[own] = own_t[np.lexsort((-scores_bm[rows_t, own_t], rows_t))]
        # Items with a score of minus infinity are not recommended.
        if (is_lowest_bm := np.isneginf(scores_bm)).any():
            scores_bm = np.where(is_lowest_bm, np.float32(np.nan), scores_bm)
        items_bn, count_b = np.empty((stop - start, width), np.int32), np.empty(stop - start, int)
        run_rows(
            topk.top_k,
            stop - start,
            scores_bm,
            allowed,
            seen_b.offsets,
            seen_b.indices,
            np.zeros(n_items + 1, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.int64),
            items_bn,
            count_b,
        )
        ranked_un[start:stop, :width] = np.where(np.arange(width) < count_b[:, None], items_bn, -1)
    return Ranks(relevant.offsets, ranks_t, candidates_u, items_t), ranked_un


def _checked(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The scores as a contiguous array; an error where some are NaN."""
    broken = int(np.count_nonzero(np.isnan(scores)))
    if broken:
        raise CfuicaError(
            f"{broken:,} of {scores.size:,} scores are not numbers and cannot be ranked; the "
            f"training that made this model has probably diverged, try a lower learning rate."
        )
    return np.ascontiguousarray(scores)


@dataclass(frozen=True)
class RankingScores:
    """Validation scores: the ranks of `n` users' next items among all unseen items."""

    ndcg: float  # NDCG@10
    hr: float  # HR@10
    n: int
    # HR@10 among the next item and 100 sampled ones, where training is judged by it.
    sampled_hr: float | None = None

    sign: ClassVar[int] = -1

    @property
    def measure(self) -> str:
        """The name of the score that training is judged by."""
        return "NDCG@10" if self.sampled_hr is None else "sampled HR@10"

    @property
    def value(self) -> float:
        """The score that training is judged by."""
        return self.ndcg if self.sampled_hr is None else self.sampled_hr

    @property
    def named(self) -> dict[str, float]:
        """The scores by their usual names."""
        return {self.measure: self.value, "NDCG@10": self.ndcg, "HR@10": self.hr}


# Each has a `measure`, its `value`, and a `sign`: sign * value is to be low.
Scores = RatingScores | RankingScores


def scores_of_record(record: dict[str, Any] | None) -> Scores | None:
    """The inverse of `asdict` and JSON."""
    if record is None:
        return None
    return RatingScores(**record) if "rmse" in record else RankingScores(**record)
