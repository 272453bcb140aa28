"""Metrics of ranks: small cases by hand, and what must never change them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.metrics.ranking_metrics import Ranks, ranking_metrics, sampled_hr


def metrics(ranks: list[list[int]], candidates: list[int], *cutoffs: int) -> dict[str, list[float]]:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in ranks])])
    flat = np.array([rank for row in ranks for rank in sorted(row)])
    values = ranking_metrics(Ranks(offsets, flat, np.array(candidates)), cutoffs)
    return {name: each.tolist() for name, each in values.items()}


def test_one_relevant_item_at_the_third_place():
    values = metrics([[3]], [5], 1, 3)
    assert values["hr@1"] == values["ndcg@1"] == values["mrr@1"] == values["map@1"] == [0.0]
    assert values["hr@3"] == values["recall@3"] == [1.0]
    assert values["precision@3"] == pytest.approx([1 / 3])
    assert values["ndcg@3"] == pytest.approx([1 / math.log2(4)])
    assert values["mrr@3"] == values["map@3"] == pytest.approx([1 / 3])
    assert values["auc"] == pytest.approx([2 / 4])


def test_several_relevant_items():
    # Of 3 relevant ones two are among the first 4 of 6.
    values = metrics([[6, 1, 4]], [6], 2, 4)
    assert values["hr@2"] == [1.0]
    assert values["recall@4"] == pytest.approx([2 / 3])
    assert values["precision@4"] == [0.5]
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert values["ndcg@4"] == pytest.approx([(1 + 1 / math.log2(5)) / ideal])
    # With 2 places the best that 3 relevant items can do is 2 of them.
    assert values["ndcg@2"] == pytest.approx([1 / (1 + 1 / math.log2(3))])
    assert values["map@4"] == pytest.approx([(1 / 1 + 2 / 4) / 3])
    assert values["mrr@4"] == [1.0]
    # Irrelevant ones at 2, 3, 5: above the relevant ones stand 0, 2 and 3 of them.
    assert values["auc"] == pytest.approx([1 - (0 + 2 + 3) / 9])


def test_where_everything_is_relevant_there_is_nothing_to_be_above_of():
    assert metrics([[1, 2]], [2], 5)["auc"] == [1.0]
    assert metrics([[1, 2]], [2], 5)["precision@5"] == [0.4]


users = st.lists(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.sets(st.integers(1, n), min_size=1), st.just(n))
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=50)
@given(users, st.randoms())
def test_users_do_not_depend_on_each_other_nor_on_the_order_of_their_ranks(users, random):
    order = random.sample(range(len(users)), len(users))
    ranks = [random.sample(sorted(each), len(each)) for each, _ in users]
    one = metrics(ranks, [n for _, n in users], 1, 3, 10)
    other = metrics([sorted(users[u][0]) for u in order], [users[u][1] for u in order], 1, 3, 10)
    for name, values in one.items():
        assert [values[u] for u in order] == other[name], name


@settings(deadline=None, max_examples=50)
@given(users)
def test_every_metric_is_from_0_to_1_and_best_where_the_relevant_ones_are_first(users):
    numbers = [n for _, n in users]
    worst = metrics([list(each) for each, _ in users], numbers, 2, 5)
    best = metrics([list(range(1, len(each) + 1)) for each, _ in users], numbers, 2, 5)
    for name, values in worst.items():
        pairs = zip(values, best[name], strict=True)
        assert all(0 <= value <= top + 1e-12 <= 1 + 2e-12 for value, top in pairs)
    for name in ("auc", "hr@2", "ndcg@5", "mrr@2"):
        assert best[name] == pytest.approx([1.0] * len(users))


@settings(deadline=None, max_examples=50)
@given(users)
def test_more_places_never_hurt(users):
    values = metrics([list(each) for each, _ in users], [n for _, n in users], 2, 5)
    for name in ("hr", "recall", "mrr", "map"):
        pairs = zip(values[f"{name}@2"], values[f"{name}@5"], strict=True)
        assert all(few <= many for few, many in pairs)


@settings(max_examples=60, deadline=None)
@given(users, st.randoms(use_true_random=False))
def test_some_of_the_relevant_items_rank_as_if_the_others_were_no_candidates(asked, random):
    offsets = np.concatenate([[0], np.cumsum([len(ranks) for ranks, _ in asked])])
    flat = np.array([rank for ranks, _ in asked for rank in sorted(ranks)])
    chosen = np.array([random.random() < 0.6 for _ in flat])
    ranks = Ranks(offsets, flat, np.array([n for _, n in asked])).only(chosen)
    expected, candidates = [], []
    for (own, n), mine in zip(asked, np.split(chosen, offsets[1:-1]), strict=True):
        stays = {rank for rank, is_in in zip(sorted(own), mine, strict=True) if is_in}
        left = [rank for rank in range(1, n + 1) if rank in stays or rank not in own]
        if stays:
            expected += [left.index(rank) + 1 for rank in sorted(stays)]
            candidates.append(len(left))
    assert ranks.ranks_t.tolist() == expected
    assert ranks.candidates_u.tolist() == candidates
    assert ranks.relevant_u.sum() == chosen.sum()


def test_a_sampled_hit_rate_is_the_mean_over_all_samples():
    candidates = [7, 7, 7, 7, 5, 3, 1]
    ranks = [1, 3, 4, 7, 5, 2, 1]
    given = Ranks(np.arange(8), np.array(ranks), np.array(candidates))
    expected = []
    for rank, n in zip(ranks, candidates, strict=True):
        others = [other for other in range(1, n + 1) if other != rank]
        drawn = list(itertools.combinations(others, min(4, n - 1)))
        expected.append(np.mean([sum(o < rank for o in each) < 2 for each in drawn]))
    assert sampled_hr(given, 2, 4) == pytest.approx(expected, abs=1e-12)
    assert sampled_hr(given, 2, 100) == pytest.approx([float(r <= 2) for r in ranks], abs=1e-12)
