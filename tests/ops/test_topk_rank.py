"""Ranks against a plain definition: every irrelevant candidate with at least the score is above."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import topk
from cfuica.ops.runtime import run_rows


def plain_ranks(relevant: list[float], irrelevant: list[float]) -> list[int]:
    """By sorting: scores downwards, irrelevant ones first among equals."""
    both = [(-score, 1) for score in relevant] + [(-score, 0) for score in irrelevant]
    return [place + 1 for place, (_, is_relevant) in enumerate(sorted(both)) if is_relevant]


scores = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 0.5, 2.0, 3.0])


@settings(deadline=None, max_examples=60)  # compiling takes its time
@given(st.data(), st.integers(1, 5), st.integers(1, 12))
def test_ranks_among_all_unseen_are_those_of_the_definition(data, rows, n_items):
    scores_bm = np.array(
        data.draw(st.lists(st.lists(scores, min_size=n_items, max_size=n_items), min_size=rows,
                           max_size=rows)), np.float32,
    )  # fmt: skip
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=n_items, max_size=n_items)))
    items = st.integers(0, n_items - 1)
    relevant = [sorted(data.draw(st.sets(items, min_size=1))) for _ in range(rows)]
    seen = [sorted(data.draw(st.sets(items)) - set(relevant[b])) for b in range(rows)]
    ranks, candidates = np.zeros(sum(map(len, relevant)), np.int64), np.zeros(rows, np.int64)
    run_rows(topk.among_all, rows, scores_bm, allowed, *compressed(seen), *compressed(relevant),
             ranks, candidates)  # fmt: skip
    offsets = compressed(relevant)[0]
    for b in range(rows):
        others = [
            m for m in range(n_items) if allowed[m] and m not in seen[b] and m not in relevant[b]
        ]
        expected = plain_ranks(list(scores_bm[b, relevant[b]]), list(scores_bm[b, others]))
        assert ranks[offsets[b] : offsets[b + 1]].tolist() == expected
        assert candidates[b] == len(others) + len(relevant[b])


def compressed(rows):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return offsets, np.array([item for row in rows for item in row], np.int32)


@settings(deadline=None, max_examples=60)  # compiling takes its time
@given(st.data(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 9))
def test_ranks_among_candidates_are_those_of_the_definition(data, rows, draws, n):
    values = st.lists(scores, min_size=n, max_size=n)
    scores_bdc = np.array([[data.draw(values) for _ in range(draws)] for _ in range(rows)])
    relevant = [data.draw(st.integers(1, n)) for _ in range(rows)]
    count_bd = np.array([[data.draw(st.integers(r, n)) for _ in range(draws)] for r in relevant])
    offsets = np.concatenate([[0], np.cumsum(relevant)]).astype(np.int64)
    ranks_dt = np.zeros((draws, offsets[-1]), np.int64)
    run_rows(
        topk.among_candidates, rows, scores_bdc.astype(np.float32), count_bd, offsets, ranks_dt
    )
    for b in range(rows):
        for d in range(draws):
            row = list(scores_bdc[b, d])
            expected = plain_ranks(row[: relevant[b]], row[relevant[b] : count_bd[b, d]])
            assert ranks_dt[d, offsets[b] : offsets[b + 1]].tolist() == expected


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_number_of_threads_changes_nothing(threads, monkeypatch):
    monkeypatch.setenv("CFUICA_THREADS", threads)
    scores_bm = np.random.default_rng(0).integers(0, 9, (50, 40)).astype(np.float32)
    offsets, ranks, candidates = np.arange(51), np.zeros(50, np.int64), np.zeros(50, np.int64)
    relevant = (np.arange(50) % 40).astype(np.int32)
    nothing = np.zeros(51, np.int64), np.empty(0, np.int32)
    run_rows(topk.among_all, 50, scores_bm, np.ones(40, np.bool_), *nothing, offsets, relevant,
             ranks, candidates)  # fmt: skip
    own = scores_bm[np.arange(50), relevant]
    assert ranks.tolist() == (scores_bm >= own[:, None]).sum(axis=1).tolist()
    assert (candidates == 40).all()


@settings(deadline=None, max_examples=150)  # compiling takes its time
@given(st.data(), st.integers(1, 40), st.integers(0, 6), st.integers(0, 3))
def test_the_top_k_are_those_of_a_sorted_walk(data, n_items, n, n_groups):
    some = st.one_of(scores, st.just(np.nan))
    score_m = np.array(data.draw(st.lists(some, min_size=n_items, max_size=n_items)), np.float32)
    items = st.integers(0, n_items - 1)
    candidates, seen = (sorted(data.draw(st.sets(items))) for _ in range(2))
    group = st.sets(st.integers(0, n_groups - 1)) if n_groups else st.just(set())
    groups = [sorted(data.draw(group)) for _ in range(n_items)]
    limits = data.draw(st.lists(st.integers(1, 2), min_size=n_groups, max_size=n_groups))
    indices_bn, count_b = np.zeros((2, n), np.int32), np.zeros(2, np.int64)
    run_rows(topk.top_k, 2, np.stack((score_m, score_m)), np.array(candidates, np.int32),
             *compressed([seen, seen]), *compressed(groups), np.array(limits, np.int64),
             indices_bn, count_b)  # fmt: skip
    left, expected = list(limits), []
    listed = [item for item in candidates if item not in seen and not np.isnan(score_m[item])]
    for item in sorted(listed, key=lambda m: (-score_m[m], m)):
        if len(expected) < n and all(left[g] for g in groups[item]):
            expected.append(item)
            for g in groups[item]:
                left[g] -= 1
    for b in range(2):
        assert indices_bn[b, : count_b[b]].tolist() == expected


def test_a_full_group_of_many_better_items_does_not_end_the_search():
    score_m = -np.arange(50, dtype=np.float32)
    groups = [[0]] * 49 + [[]]
    indices_bn, count_b = np.zeros((1, 2), np.int32), np.zeros(1, np.int64)
    run_rows(topk.top_k, 1, score_m[None], np.arange(50, dtype=np.int32), *compressed([[]]),
             *compressed(groups), np.array([1]), indices_bn, count_b)  # fmt: skip
    assert indices_bn[0].tolist() == [0, 49]
    assert count_b[0] == 2
