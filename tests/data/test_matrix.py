"""Compressed rows by user and by item."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import InteractionMatrix
from cfuica.errors import DataError


@st.composite
def interactions(draw):
    """(cells {(user, item): label} in any order, users, items, labels)."""
    n_users, n_items, n_labels = draw(st.integers(1, 8)), draw(st.integers(1, 8)), 5
    cells = draw(
        st.dictionaries(
            st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1)),
            st.integers(0, n_labels - 1),
        )
    )
    order = draw(st.permutations(list(cells)))
    return {pair: cells[pair] for pair in order}, n_users, n_items, n_labels


def _matrix(cells, n_users, n_items, n_labels):
    users, items = [u for u, _ in cells], [i for _, i in cells]
    labels = list(cells.values())
    return InteractionMatrix.from_triplets(
        users, items, labels, n_users=n_users, n_items=n_items, n_labels=n_labels
    )


def _cells(rows, *, flip=False):
    found = {}
    for row in range(rows.n_rows):
        part = slice(rows.offsets[row], rows.offsets[row + 1])
        assert np.all(np.diff(rows.indices[part]) > 0), "members must ascend within a row"
        for member, label in zip(rows.indices[part], rows.labels[part], strict=True):
            found[(int(member), row) if flip else (row, int(member))] = int(label)
    return found


@settings(max_examples=100, deadline=None)
@given(interactions())
def test_both_orders_hold_the_same_cells(given_cells):
    cells, n_users, n_items, n_labels = given_cells
    matrix = _matrix(*given_cells)
    assert _cells(matrix.by_user) == cells
    assert _cells(matrix.by_item, flip=True) == cells
    assert (matrix.n_users, matrix.n_items, matrix.n_labels) == (n_users, n_items, n_labels)
    assert matrix.n_interactions == len(cells)
    for rows in (matrix.by_user, matrix.by_item):
        assert (rows.offsets.dtype, rows.indices.dtype, rows.labels.dtype) == (
            np.int64,
            np.int32,
            np.uint8,
        )
    users, items, labels = matrix.triplets()
    assert (users.dtype, items.dtype, labels.dtype) == (np.int32, np.int32, np.uint8)
    assert list(zip(users.tolist(), items.tolist(), strict=True)) == sorted(cells)
    assert [cells[pair] for pair in sorted(cells)] == labels.tolist()


@settings(max_examples=50, deadline=None)
@given(interactions(), st.data())
def test_merging_two_halves_gives_the_whole(given_cells, data):
    cells, *sizes = given_cells
    pairs = list(cells)
    cut = data.draw(st.integers(0, len(pairs)))
    first = _matrix({pair: cells[pair] for pair in pairs[:cut]}, *sizes)
    second = _matrix({pair: cells[pair] for pair in pairs[cut:]}, *sizes)
    merged, whole = first.merged(second), _matrix(*given_cells)
    assert merged.sha256() == whole.sha256()
    assert _cells(merged.by_item, flip=True) == cells


def test_hash_ignores_order_and_nothing_else():
    base = _matrix({(0, 1): 2, (1, 0): 3}, 2, 2, 5)
    assert base.sha256() == _matrix({(1, 0): 3, (0, 1): 2}, 2, 2, 5).sha256()
    others = [
        _matrix({(0, 1): 2, (1, 0): 4}, 2, 2, 5),
        _matrix({(0, 1): 2, (1, 1): 3}, 2, 2, 5),
        _matrix({(0, 1): 2, (1, 0): 3}, 3, 2, 5),
        _matrix({(0, 1): 2, (1, 0): 3}, 2, 3, 5),
        _matrix({(0, 1): 2, (1, 0): 3}, 2, 2, 6),
        _matrix({(0, 1): 2, (0, 0): 3}, 2, 2, 5),
    ]
    assert len({base.sha256(), *(other.sha256() for other in others)}) == 7


def _of(users, items, labels, n_labels=5):
    return InteractionMatrix.from_triplets(
        users, items, labels, n_users=3, n_items=4, n_labels=n_labels
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([0, 3], [0, 0], [0, 0]), "user index 3 at position 1 is out of range: expected 0 to 2"),
        (([0, -1], [0, 0], [0, 0]), "user index -1 at position 1"),
        (([0], [4], [0]), "item index 4 at position 0 is out of range: expected 0 to 3"),
        (([0], [0], [5]), "label index 5 at position 0 is out of range: expected 0 to 4"),
        (([0], [0], [0], 256), "n_labels is 256"),
        (([0], [0], [0], 0), "n_labels is 0"),
        (([0, 1], [0], [0]), "2 users, 1 items and 1 labels"),
        (([0.5], [0], [0]), "user indices must be .* integers"),
        (
            ([2, 0, 2], [3, 0, 3], [0, 0, 1]),
            "1 interactions repeat .* user index 2 and item index 3",
        ),
    ],
)
def test_wrong_triplets_are_refused(arguments, says):
    with pytest.raises(DataError, match=says):
        _of(*arguments)


def test_merging_needs_equal_shapes_and_disjoint_pairs():
    matrix = _of([0], [0], [0])
    with pytest.raises(DataError, match=r"\(3, 4, 5\) cannot be merged with one of \(3, 4, 6\)"):
        matrix.merged(_of([1], [0], [0], n_labels=6))
    with pytest.raises(DataError, match="repeat"):
        matrix.merged(_of([0], [0], [1]))


def test_a_matrix_takes_few_bytes_beside_its_own():
    n = 200_000
    cells = np.random.default_rng(0).permutation(1_000_000)[:n].astype(np.int32)
    triplets = cells // 1000, cells % 1000, (cells % 5).astype(np.uint8)
    sizes = {"n_users": 1000, "n_items": 1000, "n_labels": 5}
    InteractionMatrix.from_triplets(*triplets, **sizes)  # compiled
    tracemalloc.start()
    try:
        matrix = InteractionMatrix.from_triplets(*triplets, **sizes)
        matrix.sha256()
        assert tracemalloc.get_traced_memory()[1] < 12 * n  # its own are 10
    finally:
        tracemalloc.stop()


def test_arrays_of_any_kind_are_one_to_the_compiler():
    from cfuica.ops import compression

    sizes = {"n_users": 3, "n_items": 3, "n_labels": 2}
    cells = np.array([[0, 0, 1], [1, 2, 0], [2, 1, 1]], np.int32)
    expected = InteractionMatrix.from_triplets(*cells.T.copy(), **sizes).sha256()
    kernels = (compression.offsets, compression.scattered)
    before = [len(kernel.signatures) for kernel in kernels]
    frozen = cells.T.copy()
    frozen.flags.writeable = False
    for triplets in (cells.T, cells.T.astype(np.int64), frozen):
        assert InteractionMatrix.from_triplets(*triplets, **sizes).sha256() == expected
    assert [len(kernel.signatures) for kernel in kernels] == before


def test_more_cells_than_a_word_can_number_are_refused():
    with pytest.raises(DataError, match=r"536,870,912 x 268,435,456 .* 2\*\*56 cells"):
        InteractionMatrix.from_triplets([0], [0], [0], n_users=2**29, n_items=2**28, n_labels=5)


def test_a_shared_item_of_neighbouring_users_is_no_repeat():
    matrix = _of([0, 2, 2], [3, 3, 0], [0, 1, 2])
    assert _cells(matrix.by_user) == {(0, 3): 0, (2, 0): 2, (2, 3): 1}
    empty = _of([], [], [])
    assert empty.n_interactions == 0
    assert (empty.n_users, empty.n_items) == (3, 4)
