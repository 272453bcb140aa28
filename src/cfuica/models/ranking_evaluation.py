"""The ranking metrics of a recommender on a test set: values, intervals, users, warm and cold.

`evaluate_ranking` tests any recommender on a table of interactions; it is what
`Recommender.evaluate_ranking` calls. `evaluated` answers a `RankingTest` that was made elsewhere,
such as that of a protocol. Both give a `RankingEvaluation`.

Shape suffixes: u test users, t relevant items of all users, m all items, b users of a block.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.frames import as_table
from cfuica.data.matrix import Csr
from cfuica.data.splits import GIVEN
from cfuica.data.vocabulary import LiveVocabulary, Vocabulary
from cfuica.errors import DataError, SettingsError
from cfuica.inference.recommend import BLOCK_BYTES, ItemScorer
from cfuica.metrics.intervals import Interval, intervals
from cfuica.metrics.ranking_metrics import (
    Popularity,
    RankingResult,
    RankingTest,
    Ranks,
    Scorer,
    answer,
    ranking_metrics,
)

if TYPE_CHECKING:
    from cfuica.data.table import Interactions
    from cfuica.inference.recommend import By
    from cfuica.models.recommender import Recommender, Unknown

CUTOFFS = (5, 10, 20)
# "users" or "items" to "warm" or "cold" to its metrics; `n` is how many users there are, or how
# many test interactions of such items.
WarmAndCold = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True, eq=False)
class RankingEvaluation:
    """The ranking metrics of a system on one test."""

    ranking_test: RankingTest
    result: RankingResult
    intervals: dict[str, Interval]  # The value of each metric, such as `hr@10`, and its interval.
    seconds: float  # Scoring, ranking and measuring; not loading, not the intervals.
    user_ids: pl.Series  # Of the test users.
    cutoffs: tuple[int, ...]
    notes: tuple[str, ...] = ()
    cold: int | None = None  # Fewer interactions than this are a cold user's or item's.
    warm_and_cold: WarmAndCold | None = None

    def __getitem__(self, name: str) -> Interval:
        """The value of a metric by its name, such as `ndcg@10`, with its interval."""
        return self.intervals[name]

    def __repr__(self) -> str:
        names = (f"hr@{self.cutoffs[-1]}", f"ndcg@{self.cutoffs[-1]}", "auc")
        shown = ", ".join(f"{name} {self[name].value:.4f}" for name in names)
        return f"RankingEvaluation({self.ranking_test.n_users:,} users: {shown}, ...)"

    @property
    def per_user(self) -> pl.DataFrame:
        """user, n (how many test items) and each metric that a single user has."""
        return pl.DataFrame(
            {
                "user": self.user_ids,
                "n": self.ranking_test.relevant.sizes,
                **self.result.per_user,
            }
        )

    def as_json(self) -> dict[str, Any]:
        """The metrics by name, with the protocol and the number of users."""
        groups = {} if self.warm_and_cold is None else {"warm_and_cold": self.warm_and_cold}
        return {
            "protocol": self.ranking_test.protocol,
            "users": self.ranking_test.n_users,
            "seconds": self.seconds,
            **{name: asdict(each) for name, each in self.intervals.items()},
            **groups,
        }


class ScorerOfAll(ABC):
    """A `Scorer` that scores candidates by scoring all items."""

    @abstractmethod
    def scores(self, users_b: NDArray[np.int32]) -> NDArray[np.float32]:
        """(B, M)"""

    def candidate_scores(
        self, users_b: NDArray[np.int32], items_bc: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """(B, C)"""
        scores_bc = np.empty(items_bc.shape, np.float32)
        # Few users at a time: a row of all items is larger than one of candidates.
        for start in range(0, users_b.size, 256):
            part = slice(start, start + 256)
            scores_bm = self.scores(users_b[part])
            scores_bc[part] = np.take_along_axis(scores_bm, items_bc[part].astype(np.int64), axis=1)
        return scores_bc


@dataclass(frozen=True, eq=False)
class ListScorer(ScorerOfAll):
    """A `Scorer` of what a recommender ranks by; seen items are scored like all others."""

    scorer: ItemScorer
    n_items: int

    def scores(self, users_b: NDArray[np.int32]) -> NDArray[np.float32]:
        """(B, M)"""
        items = np.arange(self.n_items, dtype=np.int32)
        scores_bm = np.empty((users_b.size, self.n_items), np.float32)
        size = max(1, BLOCK_BYTES // (4 * self.n_items * self.scorer.numbers_per_item))
        for start in range(0, users_b.size, size):
            part = slice(start, start + size)
            found_bm, _ = self.scorer.block(users_b[part], items, seen_too=False)
            scores_bm[part] = found_bm[:, : self.n_items]
        return scores_bm


@dataclass(frozen=True, eq=False)
class _WithUnknownItems(ScorerOfAll):
    """The scores of a system, and minus infinity for items that it does not know."""

    scorer: Scorer
    n_items: int

    def scores(self, users_b: NDArray[np.int32]) -> NDArray[np.float32]:
        found_bm = self.scorer.scores(users_b)
        scores_bm = np.full((users_b.size, self.n_items), -np.inf, np.float32)
        scores_bm[:, : found_bm.shape[1]] = found_bm
        return scores_bm


def evaluate_ranking(
    model: Recommender,
    test: Interactions | Any,
    *,
    at: Sequence[int] = CUTOFFS,
    by: By | None = None,
    cold: int | None = None,
    unknown: Unknown = "serve",
) -> RankingEvaluation:
    """Rank the items of each user's test interactions among all items that the user has not had.

    The catalogue has every item of an interaction, of the model's or of the test.
    """
    frame = as_table(test).frame
    ids = model.catalogue.ids
    tested = Vocabulary.from_ids(frame["user"])
    # Each unknown user is a test user of its own, with the index that all of them share.
    users_u = model._indices("users", tested.ids, unknown)
    model._indices("items", frame["item"], unknown)  # refused where they are not served
    items, n_items = _with_unknown(frame["item"], ids["items"])
    seen = Csr.of_pairs(*model.catalogue.pairs(), ids["users"].n_indices)
    relevant = Csr.of_pairs(tested.encode(frame["user"]), items, users_u.size)
    catalogue_m = np.zeros(n_items, np.bool_)
    catalogue_m[seen.indices] = catalogue_m[relevant.indices] = True
    own = seen.take(users_u)
    check_unobserved(relevant, own)
    ranking_test = RankingTest.among_unseen(
        GIVEN, users_u, relevant, seen=own, catalogue_m=catalogue_m
    )
    scorer, notes = model._list_scorer(by), []
    unknown_items = n_items - ids["items"].n_indices
    if unknown_items:
        scorer = _WithUnknownItems(scorer, n_items)
    unknown_users = int(np.count_nonzero(users_u == ids["users"].unknown_index))
    if unknown_users or unknown_items:
        notes.append(
            f"{unknown_users:,} of {users_u.size:,} test users and {unknown_items:,} test items "
            f"are unknown to the model: such users have no history, such items rank last."
        )
    return evaluated(
        ranking_test,
        scorer,
        seen=seen,
        n_items=n_items,
        n_users=ids["users"].size,
        user_ids=ids["users"].shown(tested.ids),
        cutoffs=at,
        cold=cold,
        notes=tuple(notes),
    )


def _with_unknown(items: pl.Series, vocabulary: LiveVocabulary) -> tuple[NDArray[np.int64], int]:
    """Indices with one of its own, behind all others, for each unknown item; and how many there
    are then."""
    found, n_items = vocabulary.encode(items).astype(np.int64), vocabulary.n_indices
    unknown = np.flatnonzero(found < 0)
    if unknown.size:
        own = items.gather(unknown).rank("dense").to_numpy().astype(np.int64)
        found[unknown] = n_items - 1 + own
        n_items += int(own.max())
    return found, n_items


def check_unobserved(
    relevant: Csr, seen: Csr, whose: str = "The model", which: str = "of the test set"
) -> None:
    """Refuse a test of interactions that a model knows already; both have a row per test user."""
    observed = relevant.indices.size - relevant.without(seen).indices.size
    if observed:
        raise DataError(
            f"{whose} has observed {observed:,} of the {relevant.indices.size:,} interactions "
            f"{which}, so they test nothing any more; evaluate before it observes them (cfuica "
            f"observe --out writes another model), leave them out of the test, or train again."
        )


def evaluated(
    ranking_test: RankingTest,
    scorer: Scorer,
    *,
    seen: Csr,
    n_items: int,
    n_users: int | None = None,
    user_ids: pl.Series,
    cutoffs: Sequence[int] = CUTOFFS,
    cold: int | None = None,
    notes: tuple[str, ...] = (),
) -> RankingEvaluation:
    """The metrics of a system on a test.

    `seen` has a row per user, the items that the system learned from, of `n_items` that there are.
    `n_users` is how many users there are, where some rows are of none.
    `cold` asks for the metrics of warm and of cold users and items: a cold one has fewer
    interactions in `seen` than this.
    """
    if cold is not None and cold < 1:
        raise SettingsError(
            f"cold is {cold}, but a cold user or item has fewer interactions than it; give at "
            f"least 1, which are those without any."
        )
    # A cut-off of the whole catalogue looks at the whole list; there are no longer ones.
    longest = n_items
    if ranking_test.catalogue_m is not None:
        longest = int(np.count_nonzero(ranking_test.catalogue_m))
    lowered = tuple(sorted({min(k, longest) for k in cutoffs}))
    if too_long := [k for k in cutoffs if k > longest]:
        notes += (
            f"The catalogue has {longest:,} items, so the cut-off "
            f"{', '.join(map(str, too_long))} is lowered to it.",
        )
    popularity = Popularity.of(seen, n_items)
    if n_users is not None:
        popularity = replace(popularity, n_users=n_users)
    # One user first: compiling the kernels is not part of ranking.
    answer(of_first_user(ranking_test), scorer, lowered, popularity=popularity)
    start = time.perf_counter()
    result = answer(ranking_test, scorer, lowered, popularity=popularity)
    seconds = time.perf_counter() - start
    # Coverage has no interval: a resample of the users has fewer different lists, so its coverage
    # is always lower.
    alone = {name: Interval(value) for name, value in result.of_all.items()}
    groups = None
    if cold is not None:
        is_cold_u = seen.sizes[ranking_test.users_u] < cold
        groups = _warm_and_cold(result, is_cold_u, popularity.counts_m < cold, lowered)
    found = {**intervals(result.per_user), **alone}
    return RankingEvaluation(
        ranking_test, result, found, seconds, user_ids, lowered, notes, cold, groups
    )


def _warm_and_cold(
    result: RankingResult,
    is_cold_u: NDArray[np.bool_],
    is_cold_m: NDArray[np.bool_],
    cutoffs: Sequence[int],
) -> WarmAndCold:
    """The means over warm and over cold users; and over the users of warm and of cold test items,
    each kind without the user's test items of the other kind."""
    users, items = {}, {}
    for name, is_cold in (("warm", False), ("cold", True)):
        own_u = is_cold_u == is_cold
        users[name] = _means(result.per_user, own_u, int(own_u.sum()))
        draws, count = [], 0
        for ranks in result.ranks:
            assert ranks.items_t is not None
            own_t = is_cold_m[ranks.items_t] == is_cold
            count = int(own_t.sum())
            draws.append(_of_items(ranks, own_t, cutoffs))
        mean = {each: np.mean([draw[each] for draw in draws], axis=0) for each in draws[0]}
        items[name] = _means(mean, slice(None), count)
    return {"users": users, "items": items}


def _of_items(
    ranks: Ranks, own_t: NDArray[np.bool_], cutoffs: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    return ranking_metrics(ranks.only(own_t), cutoffs) if own_t.any() else {}


def _means(values: dict[str, NDArray[np.float64]], own: Any, n: int) -> dict[str, float]:
    if not n:
        return {"n": 0}
    return {"n": n, **{name: float(each[own].mean()) for name, each in values.items()}}


def of_first_user(ranking_test: RankingTest) -> RankingTest:
    """The test of the first user alone."""
    seen, candidates_duc = ranking_test.seen, ranking_test.candidates_duc
    row = np.zeros(1, np.int64)
    return replace(
        ranking_test,
        users_u=ranking_test.users_u[:1],
        relevant=ranking_test.relevant.take(row),
        candidates_duc=None if candidates_duc is None else candidates_duc[:, :1],
        seen=None if seen is None else seen.take(row),
    )
