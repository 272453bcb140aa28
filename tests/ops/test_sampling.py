"""The integer loops, against a few lines of Python over sets and dictionaries."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.data.matrix import InteractionMatrix
from cfuica.ops import sampling
from tests.ops.shapes import EXAMPLES


@st.composite
def matrices(draw_):
    """A matrix and its cells {(user, item): label}; rows and columns may be empty."""
    n_users, n_items = draw_(st.integers(1, 8)), draw_(st.integers(1, 8))
    n_labels = draw_(st.sampled_from([1, 2, 5, 255]))
    cells = draw_(
        st.dictionaries(
            st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1)),
            st.integers(0, n_labels - 1),
        )
    )
    matrix = InteractionMatrix.from_triplets(
        np.array([u for u, _ in cells], np.int32),
        np.array([i for _, i in cells], np.int32),
        np.array(list(cells.values()), np.int32),
        n_users=n_users,
        n_items=n_items,
        n_labels=n_labels,
    )
    return matrix, cells


def some_of(size, data):
    """Distinct ids in any order, possibly none."""
    return np.array(data.draw(st.lists(st.integers(0, size - 1), unique=True)), np.int32)


def rows_of(offsets, values):
    return [values[start:stop].tolist() for start, stop in pairwise(offsets)]


def contexts(matrix, queries, is_open, keep=1.0, key=0):
    rows = matrix.by_user
    return sampling.contexts(
        rows.offsets, rows.indices, rows.labels, queries, is_open,
        np.broadcast_to(np.float64(keep), len(queries)), np.uint64(key), matrix.n_labels,
    )  # fmt: skip


@EXAMPLES
@given(matrices(), st.data())
def test_contexts_are_the_interactions_with_open_rows(given_matrix, data):
    matrix, cells = given_matrix
    queries = some_of(matrix.n_users, data)
    is_open = np.zeros(matrix.n_items, bool)
    is_open[some_of(matrix.n_items, data)] = True
    offsets, entries = contexts(matrix, queries, is_open)
    assert rows_of(offsets, entries) == [
        sorted(
            item * matrix.n_labels + label
            for (user, item), label in cells.items()
            if user == query and is_open[item]
        )
        for query in queries
    ]
    assert (offsets.dtype, entries.dtype) == (np.int64, np.int32)


@EXAMPLES
@given(matrices(), st.floats(-0.5, 1.5), st.integers(0, 2**64 - 1))
def test_thinned_contexts_are_a_part_of_the_whole_and_repeat_exactly(given_matrix, keep, key):
    matrix, _ = given_matrix
    queries = np.arange(matrix.n_users, dtype=np.int32)
    is_open = np.ones(matrix.n_items, bool)
    whole = rows_of(*contexts(matrix, queries, is_open))
    thinned = rows_of(*contexts(matrix, queries, is_open, keep, key))
    assert all(set(part) <= set(row) for part, row in zip(thinned, whole, strict=True))
    assert thinned == rows_of(*contexts(matrix, queries, is_open, keep, key))
    # A coin belongs to its interaction: who else is asked for does not change it.
    backwards = rows_of(*contexts(matrix, queries[::-1].copy(), is_open, keep, key))
    assert backwards == thinned[::-1]
    if keep <= 0:
        assert not any(thinned)
    if keep >= 1:
        assert thinned == whole


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.93])
def test_coins_fall_with_their_chance_and_independently(keep):
    """200 x 200 interactions, four keys: each share within 4 standard errors, and so the pairs'."""
    n = 200
    users, items = (axis.ravel() for axis in np.indices((n, n)))
    matrix = InteractionMatrix.from_triplets(
        users, items, np.zeros(n * n, np.int64), n_users=n, n_items=n, n_labels=1
    )
    kept = np.zeros((4, n, n))
    for number, key in enumerate([0, 1, 2, 2**63]):
        offsets, entries = contexts(
            matrix, np.arange(n, dtype=np.int32), np.ones(n, bool), keep, key
        )
        kept[number, np.repeat(np.arange(n), np.diff(offsets)), entries] = 1
    spread = (keep * (1 - keep) / n**2) ** 0.5
    assert (np.abs(kept.mean((1, 2)) - keep) < 4 * spread).all()
    # Neighbours within a row, within a column, and the same interaction under another key.
    centred = kept - keep
    for product in (
        centred[:, :, 1:] * centred[:, :, :-1],
        centred[:, 1:] * centred[:, :-1],
        centred[1:] * centred[:-1],
    ):
        assert abs(product.mean()) < 4 * keep * (1 - keep) / product.size**0.5


@EXAMPLES
@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6))
def test_transpose_lists_for_each_entry_the_queries_that_sum_it(bags):
    offsets = np.cumsum([0, *map(len, bags)]).astype(np.int64)
    entries = np.array([entry for bag in bags for entry in bag], np.int32)
    expected = [[q for q, bag in enumerate(bags) for e in bag if e == row] for row in range(10)]
    assert rows_of(*sampling.transpose(offsets, entries, 10)) == expected


@EXAMPLES
@given(st.lists(st.integers(0, 6), max_size=20))
def test_group_lists_equal_values_together_in_their_order(values):
    offsets, order = sampling.group(np.array(values, np.int32), 7)
    expected = [[p for p, value in enumerate(values) if value == g] for g in range(7)]
    assert rows_of(offsets, order) == expected


@EXAMPLES
@given(matrices(), st.data())
def test_observed_pairs_are_the_interactions_inside_the_block(given_matrix, data):
    matrix, cells = given_matrix
    users, items = some_of(matrix.n_users, data), some_of(matrix.n_items, data)
    position = np.full(matrix.n_items, -1, np.int32)
    position[items] = np.arange(len(items))
    rows = matrix.by_user
    user_p, item_p, label_p = sampling.observed_pairs(
        rows.offsets, rows.indices, rows.labels, users, position
    )
    found = {
        (int(users[u]), int(items[i])): int(label)
        for u, i, label in zip(user_p, item_p, label_p, strict=True)
    }
    inside = set(users.tolist()), set(items.tolist())
    expected = {
        pair: label
        for pair, label in cells.items()
        if pair[0] in inside[0] and pair[1] in inside[1]
    }
    assert found == expected
    assert len(label_p) == len(expected)


@EXAMPLES
@given(matrices(), st.data())
def test_whole_contexts_leave_out_the_one_index_named(given_matrix, data):
    matrix, cells = given_matrix
    queries = data.draw(st.lists(st.integers(0, matrix.n_users - 1), max_size=8))
    without = [data.draw(st.integers(-1, matrix.n_items - 1)) for _ in queries]
    rows = matrix.by_user
    offsets, entries = sampling.whole_contexts(
        rows.offsets, rows.indices, rows.labels, np.array(queries, np.int32),
        np.array(without, np.int32), matrix.n_labels,
    )  # fmt: skip
    assert rows_of(offsets, entries) == [
        sorted(
            item * matrix.n_labels + label
            for (user, item), label in cells.items()
            if user == query and item != left_out
        )
        for query, left_out in zip(queries, without, strict=True)
    ]
