"""Evaluation of ranked lists: a test set, the scores of any system, and the metrics.

`RankingTest` holds the test users, their relevant items and their candidates. A `Scorer` is any
system that scores items for users. `answer` ranks the candidates by the scores, block by block of
users, and computes every metric.

Shape suffixes: u test users, d draws of candidates, c candidates of a user, m all items, b users of
a block, t relevant items of all users.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cfuica.data.matrix import Csr
from cfuica.errors import CfuicaError, DataError
from cfuica.metrics.bootstrap import Interval, intervals
from cfuica.metrics.ranking_metrics import (
    Popularity,
    Ranks,
    Values,
    checked_cutoffs,
    coverage,
    novelty,
    popularity_bias,
    ranking_metrics,
)
from cfuica.ops import topk
from cfuica.ops.runtime import run_rows


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

    def first(self, n: int) -> RankingTest:
        """The test of the first n users."""
        rows = np.arange(min(n, self.n_users))
        return replace(
            self,
            users_u=self.users_u[rows],
            relevant=self.relevant.take(rows),
            candidates_duc=None if self.candidates_duc is None else self.candidates_duc[:, rows],
            seen=None if self.seen is None else self.seen.take(rows),
        )

    def sha256(self) -> str:
        """The hash of the whole test: results are comparable where it is equal."""
        digest = hashlib.sha256(self.protocol.encode())
        arrays: dict[str, npt.NDArray[Any] | None] = {
            "users": self.users_u,
            "relevant offsets": self.relevant.offsets,
            "relevant": self.relevant.indices,
            "candidates": self.candidates_duc,
            "seen offsets": None if self.seen is None else self.seen.offsets,
            "seen": None if self.seen is None else self.seen.indices,
            "catalogue": self.catalogue_m,
        }
        for name, array in arrays.items():
            if array is not None:
                digest.update(f"\n{name} {array.shape}\n".encode())
                digest.update(array.astype("<i4").tobytes())
        return digest.hexdigest()


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

    protocol: str
    # Name, such as `hr@10`, to (U,) values; what is reported is their mean.
    per_user: dict[str, Values]
    # Metrics of all ranked lists together (`coverage@10`), which no single user has.
    of_all: dict[str, float]

    @property
    def n_users(self) -> int:
        return int(next(iter(self.per_user.values())).size)

    def value(self, name: str) -> float:
        """The value of a metric by its name."""
        return self.of_all[name] if name in self.of_all else float(self.per_user[name].mean())

    def intervals(self, *, seed: int = 0) -> dict[str, Interval]:
        """Every metric with its confidence interval over users.

        Coverage has none: a resample of the users has fewer different lists, so its coverage is
        always lower.
        """
        alone = {name: Interval(value) for name, value in self.of_all.items()}
        return {**intervals(self.per_user, seed=seed), **alone}


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
    cutoffs = checked_cutoffs(cutoffs)
    if ranking_test.candidates_duc is not None:
        ranks = _among_candidates(ranking_test, ranking_test.candidates_duc, scorer, block)
        draws = [ranking_metrics(each, cutoffs) for each in ranks]
        per_user = {name: np.mean([values[name] for values in draws], axis=0) for name in draws[0]}
        return RankingResult(ranking_test.protocol, per_user, {})
    one, ranked_un = _among_unseen(ranking_test, scorer, cutoffs[-1], block)
    per_user, of_all = ranking_metrics(one, cutoffs), {}
    assert ranking_test.catalogue_m is not None
    n_items = int(np.count_nonzero(ranking_test.catalogue_m))
    for k in cutoffs:
        of_all[f"coverage@{k}"] = coverage(ranked_un, k, n_items)
        if popularity is not None:
            per_user[f"novelty@{k}"] = novelty(ranked_un, k, popularity)
            per_user[f"popularity_bias@{k}"] = popularity_bias(ranked_un, k, popularity)
    return RankingResult(ranking_test.protocol, per_user, of_all)


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
    count_ud = np.ascontiguousarray(np.count_nonzero(candidates_duc >= 0, axis=2).T)
    for start, stop in _blocks(users, block or max(1, _SCORES // (draws * n))):
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
    return [Ranks(relevant.offsets, ranks_dt[d], count_ud[:, d]) for d in range(draws)]


def _among_unseen(
    ranking_test: RankingTest, scorer: Scorer, n: int, block: int | None
) -> tuple[Ranks, npt.NDArray[np.int32]]:
    """The ranks, and (U, n) the top n unseen items of each user."""
    seen, relevant, allowed_m = ranking_test.seen, ranking_test.relevant, ranking_test.catalogue_m
    assert seen is not None
    assert allowed_m is not None
    n_items = allowed_m.size
    ranks_t = np.empty(relevant.indices.size, np.int64)
    candidates_u = np.empty(ranking_test.n_users, np.int64)
    ranked_un = np.full((ranking_test.n_users, n), -1, np.int32)
    # A relevant item is a candidate of its user even where the catalogue does not list it.
    allowed = np.flatnonzero(allowed_m).astype(np.int32)
    for start, stop in _blocks(ranking_test.n_users, block or max(1, _SCORES // n_items)):
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
        ranked_un[start:stop] = _top_k(scores_bm, n, allowed, seen_b)
    return Ranks(relevant.offsets, ranks_t, candidates_u), ranked_un


def _top_k(
    scores_bm: npt.NDArray[np.float32],
    n: int,
    allowed: npt.NDArray[np.int32],
    seen: Csr,
) -> npt.NDArray[np.int32]:
    """(B, n) the top n allowed items that are not seen, -1 behind them; items with a score of minus
    infinity are not recommended."""
    rows, n_items = scores_bm.shape
    width = min(n, allowed.size)
    items_bn, count_b = np.empty((rows, width), np.int32), np.empty(rows, np.int64)
    listed_bm = np.where(np.isneginf(scores_bm), np.float32(np.nan), scores_bm)
    nothing = np.empty(0, np.int32)
    run_rows(
        topk.top_k,
        rows,
        listed_bm,
        allowed,
        seen.offsets,
        seen.indices,
        np.zeros(n_items + 1, np.int64),
        nothing,
        nothing.astype(np.int64),
        items_bn,
        count_b,
    )
    ranked_bn = np.full((rows, n), -1, np.int32)
    ranked_bn[:, :width] = np.where(np.arange(width) < count_b[:, None], items_bn, -1)
    return ranked_bn


def _checked(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The scores as a contiguous array; an error where some are NaN."""
    broken = int(np.count_nonzero(np.isnan(scores)))
    if broken:
        raise CfuicaError(
            f"{broken:,} of {scores.size:,} scores are not numbers and cannot be ranked; the "
            f"training that made this model has probably diverged, try a lower learning rate."
        )
    return np.ascontiguousarray(scores)


def _blocks(n: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, n)) for start in range(0, n, size)]
