"""From questions and somebody's scores to metrics, block by block of users.

Shape suffixes as in `questions`; t relevant items of all users.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfuica.errors import CfuicaError
from cfuica.evaluation.bootstrap import Interval, intervals
from cfuica.evaluation.lists import Popularity, coverage, novelty, popularity_bias
from cfuica.evaluation.questions import Questions, Scorer
from cfuica.evaluation.ranking import Ranks, Values, checked_cutoffs, ranking_metrics
from cfuica.evaluation.rows import ItemRows
from cfuica.kernels import rank, select
from cfuica.kernels.threads import run_rows

# Scores held at a time: this bounds the memory, however many users and items there are.
_SCORES = 1 << 23


@dataclass(frozen=True, eq=False)
class RankingResult:
    """Every metric of one system under one protocol."""

    protocol: str
    per_user: dict[str, Values]
    """Name, such as `hr@10`, to (U,) values; what is reported is their mean."""
    of_all: dict[str, float]
    """Metrics of all lists together (`coverage@10`), which no single user has a value of."""

    @property
    def n_users(self) -> int:
        return int(next(iter(self.per_user.values())).size)

    def value(self, name: str) -> float:
        """Of a metric by its name."""
        return self.of_all[name] if name in self.of_all else float(self.per_user[name].mean())

    def intervals(self, *, seed: int = 0) -> dict[str, Interval]:
        """Every metric with its confidence interval over users.

        Coverage has none: a resample of the users has fewer different lists, so that the coverage
        of resamples is always lower and says nothing about that of all.
        """
        alone = {name: Interval(value) for name, value in self.of_all.items()}
        return {**intervals(self.per_user, seed=seed), **alone}


def answer(
    questions: Questions,
    scorer: Scorer,
    cutoffs: Iterable[int],
    *,
    popularity: Popularity | None = None,
    block: int | None = None,
) -> RankingResult:
    """Rank what is asked by the scorer's scores, `block` users at a time, and measure it.

    With several draws of candidates a user's value is the mean over draws. Metrics of lists
    (coverage, novelty, popularity bias) are of questions without candidates, for lists out of a
    hundred random items tell of the draw and not of the system; the latter two need `popularity`.
    """
    cutoffs = checked_cutoffs(cutoffs)
    if questions.candidates_duc is not None:
        ranks = _among_candidates(questions, questions.candidates_duc, scorer, block)
        draws = [ranking_metrics(each, cutoffs) for each in ranks]
        per_user = {name: np.mean([values[name] for values in draws], axis=0) for name in draws[0]}
        return RankingResult(questions.protocol, per_user, {})
    one, lists_un = _among_unseen(questions, scorer, cutoffs[-1], block)
    per_user, of_all = ranking_metrics(one, cutoffs), {}
    assert questions.catalogue_m is not None
    n_items = int(np.count_nonzero(questions.catalogue_m))
    for k in cutoffs:
        of_all[f"coverage@{k}"] = coverage(lists_un, k, n_items)
        if popularity is not None:
            per_user[f"novelty@{k}"] = novelty(lists_un, k, popularity)
            per_user[f"popularity_bias@{k}"] = popularity_bias(lists_un, k, popularity)
    return RankingResult(questions.protocol, per_user, of_all)


def _among_candidates(
    questions: Questions, candidates_duc: npt.NDArray[np.int32], scorer: Scorer, block: int | None
) -> list[Ranks]:
    """The ranks of each draw."""
    draws, users, n = candidates_duc.shape
    relevant = questions.relevant
    ranks_dt = np.empty((draws, relevant.members.size), np.int64)
    count_ud = np.ascontiguousarray(np.count_nonzero(candidates_duc >= 0, axis=2).T)
    for start, stop in _blocks(users, block or max(1, _SCORES // (draws * n))):
        # All draws of a user at once: whatever is computed for the user is computed once.
        items_bdc = candidates_duc[:, start:stop].transpose(1, 0, 2)
        items_bc = np.ascontiguousarray(np.maximum(items_bdc, 0).reshape(stop - start, draws * n))
        scores_bc = _checked(scorer.candidate_scores(questions.users_u[start:stop], items_bc))
        run_rows(
            rank.among_candidates,
            stop - start,
            scores_bc.reshape(stop - start, draws, n),
            count_ud[start:stop],
            relevant.offsets[start : stop + 1],
            ranks_dt,
        )
    return [Ranks(relevant.offsets, ranks_dt[d], count_ud[:, d]) for d in range(draws)]


def _among_unseen(
    questions: Questions, scorer: Scorer, n: int, block: int | None
) -> tuple[Ranks, npt.NDArray[np.int32]]:
    """The ranks, and (U, n) the best unseen items of each user."""
    seen, relevant, allowed_m = questions.seen, questions.relevant, questions.catalogue_m
    assert seen is not None
    assert allowed_m is not None
    n_items = allowed_m.size
    ranks_t = np.empty(relevant.members.size, np.int64)
    candidates_u = np.empty(questions.n_users, np.int64)
    lists_un = np.full((questions.n_users, n), -1, np.int32)
    # A relevant item is a candidate of its user, and of nobody else where it is not allowed.
    allowed = np.flatnonzero(allowed_m).astype(np.int32)
    for start, stop in _blocks(questions.n_users, block or max(1, _SCORES // n_items)):
        scores_bm = _checked(scorer.scores(questions.users_u[start:stop]))
        seen_b = seen.take(np.arange(start, stop))
        run_rows(
            rank.among_all,
            stop - start,
            scores_bm,
            allowed_m,
            seen_b.offsets,
            seen_b.members,
            relevant.offsets[start : stop + 1],
            relevant.members,
            ranks_t,
            candidates_u[start:stop],
        )
        lists_un[start:stop] = _best(scores_bm, n, allowed, seen_b)
    return Ranks(relevant.offsets, ranks_t, candidates_u), lists_un


def _best(
    scores_bm: npt.NDArray[np.float32],
    n: int,
    allowed: npt.NDArray[np.int32],
    seen: ItemRows,
) -> npt.NDArray[np.int32]:
    """(B, n) the best allowed items that are not seen, -1 behind them; a score of minus infinity
    is that of an item which is not recommended."""
    rows, n_items = scores_bm.shape
    width = min(n, allowed.size)
    items_bn, count_b = np.empty((rows, width), np.int32), np.empty(rows, np.int64)
    listed_bm = np.where(np.isneginf(scores_bm), np.float32(np.nan), scores_bm)
    nothing = np.empty(0, np.int32)
    run_rows(
        select.best,
        rows,
        listed_bm,
        allowed,
        seen.offsets,
        seen.members,
        np.zeros(n_items + 1, np.int64),
        nothing,
        nothing.astype(np.int64),
        items_bn,
        count_b,
    )
    lists_bn = np.full((rows, n), -1, np.int32)
    lists_bn[:, :width] = np.where(np.arange(width) < count_b[:, None], items_bn, -1)
    return lists_bn


def _checked(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """In one piece and without anything that cannot be ranked."""
    broken = int(np.count_nonzero(np.isnan(scores)))
    if broken:
        raise CfuicaError(
            f"{broken:,} of {scores.size:,} scores are not numbers and cannot be ranked; the "
            f"training that made this model has probably diverged, try a lower learning rate."
        )
    return np.ascontiguousarray(scores)


def _blocks(n: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, n)) for start in range(0, n, size)]
