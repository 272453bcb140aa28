"""The kernels that measure a ranking: which items are tested, among which, and their ranks."""

from __future__ import annotations

import numpy as np

from cfuica.doctor.differences import Differences, Steps, unequal
from cfuica.doctor.problem import ITEMS, USERS, Problem
from cfuica.evaluation.rows import ItemRows
from cfuica.kernels import absent, introsort, rank
from cfuica.kernels.threads import run_rows

DRAWS, WANTED, RELEVANT = 2, ITEMS // 2, 2


def _ranks(problem: Problem) -> Differences:
    """Whole numbers as scores, so that many tie: irrelevant items stand above relevant ones."""
    scores_bm = np.random.default_rng(2).integers(0, 9, (USERS, ITEMS)).astype(np.float32)
    relevant_bt = np.argsort(problem.label_ui, 1)[:, :RELEVANT].astype(np.int32)  # not done
    offsets = np.arange(USERS + 1, dtype=np.int64) * RELEVANT
    seen, allowed_m = problem.matrix.by_user, np.arange(ITEMS) % 5 > 0
    ranks_t, candidates_b = np.empty((2, USERS * RELEVANT), np.int64)
    candidates_b = candidates_b[:USERS]
    run_rows(
        rank.among_all,
        USERS,
        scores_bm,
        allowed_m,
        seen.offsets,
        seen.members,
        offsets,
        relevant_bt.ravel(),
        ranks_t,
        candidates_b,
    )
    is_other_bm = (problem.label_ui < 0) & allowed_m
    is_other_bm[np.arange(USERS)[:, None], relevant_bt] = False
    others = [row[is_other] for row, is_other in zip(scores_bm, is_other_bm, strict=True)]
    own_bt = np.take_along_axis(scores_bm, relevant_bt, 1)
    expected = [_by_sorting(*each) for each in zip(own_bt, others, strict=True)]

    scores_bdc = scores_bm.reshape(USERS, DRAWS, -1)
    count_bd = 3 + np.arange(USERS * DRAWS).reshape(USERS, DRAWS) % 20
    ranks_dt = np.empty((DRAWS, USERS * RELEVANT), np.int64)
    run_rows(rank.among_candidates, USERS, scores_bdc, count_bd, offsets, ranks_dt)
    drawn = [
        [
            _by_sorting(score_c[:RELEVANT], score_c[RELEVANT:count])
            for score_c, count in zip(scores_bdc[:, d], count_bd[:, d], strict=True)
        ]
        for d in range(DRAWS)
    ]
    return {
        "rank.among_all": unequal(
            (ranks_t, np.ravel(expected)), (candidates_b, is_other_bm.sum(1) + RELEVANT)
        ),
        "rank.among_candidates": unequal((ranks_dt, np.reshape(drawn, (DRAWS, -1)))),
    }


def _by_sorting(relevant: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Ranks, ascending: scores downwards, irrelevant ones first among equals."""
    is_relevant = np.repeat([True, False], [len(relevant), len(others)])
    order = np.lexsort((is_relevant, -np.append(relevant, others)))
    return np.flatnonzero(is_relevant[order]) + 1


def _absent(problem: Problem) -> Differences:
    """Distinct items that a user has not done; all of them where they are too few."""
    done = ItemRows(problem.matrix.by_user.offsets, problem.matrix.by_user.members)
    nearly_all = ItemRows.of_pairs(np.zeros(ITEMS - 3), np.arange(ITEMS - 3), USERS)
    done = done.union(nearly_all)
    keys_bd = np.arange(USERS * DRAWS, dtype=np.uint64).reshape(USERS, DRAWS)
    out_bdc = np.empty((USERS, DRAWS, WANTED), np.int32)
    run_rows(absent.draw, USERS, done.offsets, done.members, ITEMS, keys_bd, out_bdc)
    wrong = 0
    for b, drawn_dc in enumerate(out_bdc):
        own = set(done.members[done.offsets[b] : done.offsets[b + 1]].tolist())
        for drawn in drawn_dc:
            found = drawn[drawn >= 0].tolist()
            wrong += len(found) != min(WANTED, ITEMS - len(own))
            wrong += len(set(found) - own) != len(found) or max(found) >= ITEMS
    return {"absent.draw": float(wrong)}


def _last(problem: Problem) -> Differences:
    """A short row's last of equal times is the later one; in a long one all times differ here."""
    rng = np.random.default_rng(3)
    short, long = rng.integers(0, 3, (USERS, introsort.SMALL)), rng.permutation(1000)
    times = np.append(short, long)
    offsets = np.append(np.arange(USERS + 1) * introsort.SMALL, len(times))
    last = np.empty(USERS + 1, np.int64)
    run_rows(introsort.last_of_each, USERS + 1, offsets, times, last)
    expected = [np.flatnonzero(row == row.max())[-1] for row in (*short, long)]
    return {"introsort.last_of_each": unequal((last, offsets[:-1] + expected))}


STEPS: Steps = {
    ("rank.among_all", "rank.among_candidates"): _ranks,
    ("absent.draw",): _absent,
    ("introsort.last_of_each",): _last,
}
