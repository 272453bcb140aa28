"""Our metrics against those of an independent library, ir-measures (trec_eval)."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, P, R, Success, nDCG

from cfuica.data.matrix import Csr
from cfuica.metrics.ranking_metrics import RankingTest, answer
from tests.evaluation.given_scores import GivenScores

THEIRS = {"hr": Success, "recall": R, "precision": P, "ndcg": nDCG, "mrr": RR, "map": AP}


@pytest.mark.parametrize("among", ["all unseen", "candidates"])
@pytest.mark.parametrize("seed", range(3))
def test_random_cases_are_measured_alike(seed, among):
    random = np.random.default_rng(seed)
    n_users, n_items, cutoffs = 40, 60, (1, 3, 10, 25)
    # No ties: what becomes of them is ours alone.
    scores_um = np.stack([random.permutation(n_items) for _ in range(n_users)]).astype(np.float32)
    dealt = [random.permutation(n_items) for _ in range(n_users)]
    relevant = [items[: random.integers(1, 9)] for items in dealt]
    seen = [items[20 : random.integers(20, 50)] for items in dealt]
    rows = compressed(relevant)
    users_u = np.arange(n_users, dtype=np.int32)
    ranked = [np.setdiff1d(np.arange(n_items), each) for each in seen]
    if among == "candidates":
        others = np.array([items[10:50] for items in dealt], np.int32)
        ranked = [np.union1d(*each) for each in zip(relevant, others, strict=True)]
        ranking_test = RankingTest.among("test", users_u, rows, others[None])
    else:
        ranking_test = RankingTest.among_unseen(
            "test", users_u, rows, seen=compressed(seen), catalogue_m=np.ones(n_items, np.bool_)
        )
    ours = answer(ranking_test, GivenScores(scores_um), cutoffs).per_user
    judged = [
        ir_measures.Qrel(str(u), str(item), 1) for u in range(n_users) for item in relevant[u]
    ]
    run = [
        ir_measures.ScoredDoc(str(u), str(item), float(scores_um[u, item]))
        for u in range(n_users)
        for item in ranked[u]
    ]
    asked = {THEIRS[name] @ k: f"{name}@{k}" for name in THEIRS for k in cutoffs}
    found = 0
    for each in ir_measures.iter_calc(list(asked), judged, run):
        assert ours[asked[each.measure]][int(each.query_id)] == pytest.approx(each.value, abs=1e-6)
        found += 1
    assert found == len(asked) * n_users
    for u in range(n_users):
        good = scores_um[u, relevant[u]]
        bad = scores_um[u, np.setdiff1d(ranked[u], relevant[u])]
        assert ours["auc"][u] == pytest.approx((good[:, None] > bad).mean())


def compressed(rows: list[np.ndarray]) -> Csr:
    row = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    return Csr.of_pairs(row, np.concatenate(rows), len(rows))
