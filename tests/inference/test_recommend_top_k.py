"""The best of each row, against sorting everything and walking down."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.inference.filters import Groups
from cfuica.inference.recommend import top_k

EXAMPLES = settings(max_examples=150, deadline=None)


def walked(score_m, n, allowed, seen, groups_of_item, limits):
    """Items of one row: sort everything, walk down, pass over what may not be."""
    taken, count = [], dict.fromkeys(limits, 0)
    order = sorted(range(len(score_m)), key=lambda item: (-score_m[item], item))
    for item in order:
        groups = groups_of_item[item]
        is_full = any(count[group] >= limits[group] for group in groups)
        if len(taken) == n or not allowed[item] or item in seen or is_full:
            continue
        taken.append(item)
        for group in groups:
            count[group] += 1
    return taken


@st.composite
def problems(draw):
    rows, items = draw(st.integers(0, 5)), draw(st.integers(0, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Few different scores make ties.
    levels = draw(st.sampled_from([1, 3, 1000]))
    scores_bm = (rng.integers(-levels, levels, (rows, items)) / 7).astype(np.float32)
    allowed_m = rng.random(items) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    seen = [rng.permutation(items)[: rng.integers(0, items + 1)] for _ in range(rows)]
    brands = [None if rng.random() < 0.2 else f"b{rng.integers(4)}" for _ in range(items)]
    genres = [
        None if rng.random() < 0.1 else [f"g{g}" for g in rng.integers(0, 5, rng.integers(0, 4))]
        for _ in range(items)
    ]
    table = pl.DataFrame(
        {"brand": brands, "genres": genres},
        schema={"brand": pl.String, "genres": pl.List(pl.String)},
    )
    columns = draw(st.lists(st.sampled_from(["brand", "genres"]), unique=True))
    max_per = {column: draw(st.integers(1, 3)) for column in columns}
    return scores_bm, draw(st.integers(1, 30)), allowed_m, seen, table, max_per


@EXAMPLES
@given(problems())
def test_best_is_what_sorting_everything_and_walking_down_gives(problem):
    scores_bm, n, allowed_m, seen, table, max_per = problem
    lengths = [len(items) for items in seen]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFUICA_THREADS", "1")  # all rows in one call: none may leave a trace
        ranking = top_k(
            scores_bm,
            n,
            allowed_m=allowed_m,
            seen_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            seen_items=np.concatenate([np.empty(0, np.int32), *seen]).astype(np.int32),
            groups=Groups.of(table, max_per) if max_per else None,
        )
    groups_of_item = [
        {
            (column, value)
            for column in max_per
            for cell in (row[column],)
            for value in (cell if isinstance(cell, list) else [cell])
            if value is not None
        }
        for row in table.iter_rows(named=True)
    ]
    limits = {
        (column, value): max_per[column]
        for groups in groups_of_item
        for column, value in groups
    }  # fmt: skip
    got = list(zip(ranking.rows, ranking.ranks, ranking.items, ranking.scores, strict=True))
    expected = [
        (row, rank, item, scores_bm[row, item])
        for row in range(len(scores_bm))
        for rank, item in enumerate(
            walked(scores_bm[row], n, allowed_m, set(seen[row]), groups_of_item, limits), 1
        )
    ]
    assert got == expected


def test_without_rules_every_item_may_be_among_the_best():
    ranking = top_k(np.array([[1, 3, 2], [5, 4, 5]], np.float32), 2)
    assert ranking.rows.tolist() == [0, 0, 1, 1]
    assert ranking.ranks.tolist() == [1, 2, 1, 2]
    assert ranking.items.tolist() == [1, 2, 0, 2]
    assert ranking.scores.tolist() == [3, 2, 5, 5]


def test_a_score_that_is_no_number_is_never_recommended():
    ranking = top_k(np.array([[np.nan, 1, -np.inf, np.nan, np.inf]], np.float32), 5)
    assert ranking.items.tolist() == [4, 1, 2]


def test_asking_for_more_than_there_is_costs_no_memory():
    assert top_k(np.zeros((2, 3), np.float32), 10**12).items.tolist() == [0, 1, 2] * 2


def test_the_seen_items_of_a_block_may_be_a_part_of_all_rows():
    """Offsets need not start at 0: a block is a slice of the rows of all users."""
    offsets, items = np.array([0, 2, 3, 5]), np.array([0, 1, 2, 1, 2], np.int32)
    ranking = top_k(
        np.array([[3, 2, 1], [3, 2, 1]], np.float32), 3,
        seen_offsets=offsets[1:], seen_items=items,
    )  # fmt: skip
    assert ranking.rows.tolist() == [0, 0, 1]
    assert ranking.items.tolist() == [0, 1, 0]


def test_the_number_of_threads_changes_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    scores_bm = rng.integers(0, 40, (60, 90)).astype(np.float32)
    groups = Groups.of(pl.DataFrame({"brand": rng.integers(0, 9, 90)}), {"brand": 2})
    results = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        results.append(top_k(scores_bm, 12, groups=groups).items.tolist())
    assert results[0] == results[1]
