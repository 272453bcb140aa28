"""Random items that a row does not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.splits import hashes
from cfuica.ops import sampling
from cfuica.ops.runtime import run_rows


def drawn(rows: list[set[int]], n_items: int, draws: int, wanted: int, seed: int = 0) -> np.ndarray:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    indices = np.array([item for row in rows for item in sorted(row)], np.int32)
    out = np.empty((len(rows), draws, wanted), np.int32)
    keys = hashes(len(rows) * draws, seed).reshape(len(rows), draws)
    run_rows(sampling.draw, len(rows), offsets, indices, n_items, keys, out)
    return out


@settings(deadline=None)  # compiling takes its time
@given(st.lists(st.sets(st.integers(0, 14)), min_size=1, max_size=5), st.integers(1, 16))
def test_each_draw_holds_distinct_items_that_the_row_has_not(rows, wanted):
    for row, of_row in zip(rows, drawn(rows, 15, 3, wanted), strict=True):
        for items in of_row:
            there = items[items >= 0]
            assert there.size == min(wanted, 15 - len(row)) == len(set(there))
            assert not set(there) & row
            assert (items[there.size :] == -1).all()


def test_every_unobserved_item_is_as_likely_as_another():
    counts = np.bincount(drawn([{0, 3}], 8, 6000, 2).ravel(), minlength=8)
    assert counts[[0, 3]].tolist() == [0, 0]
    # 2,000 expected of each; five standard deviations.
    assert abs(counts[[1, 2, 4, 5, 6, 7]] - 2000).max() < 5 * np.sqrt(6000 * 1 / 3 * 2 / 3)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_draws_depend_on_their_keys_alone(threads, monkeypatch):
    monkeypatch.setenv("CFUICA_THREADS", threads)
    many = drawn([{1}] * 20, 50, 2, 5)
    assert drawn([{1}], 50, 2, 5)[0].tolist() == many[0].tolist()
    assert drawn([{1}], 50, 2, 5, seed=1)[0].tolist() != many[0].tolist()
    assert len({tuple(row.ravel()) for row in many}) == 20
