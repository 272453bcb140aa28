"""Rows that change, against dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.live import interactions
from cfuica.live.interactions import LiveRows
from tests.model.reference import matrix_of, random_cells

N_ROWS, N_MEMBERS, N_LABELS = 6, 9, 4
changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "take", "extend"]),
        st.integers(0, N_ROWS + 3),
        st.integers(0, N_MEMBERS - 1),
        st.integers(0, N_LABELS - 1),
    ),
    max_size=80,
)


@pytest.fixture(autouse=True)
def _no_spare_room(monkeypatch):
    """So that a few changes pack the pool anew."""
    monkeypatch.setattr(interactions, "_SPARE_ENTRIES", 8)


def content(rows: LiveRows) -> list[dict[int, int]]:
    found = []
    for row in range(rows.n_rows):
        indices, labels = rows.row(row)
        assert indices.dtype == np.int32
        assert labels.dtype == np.uint8
        assert (np.diff(indices) > 0).all()
        found.append(dict(zip(indices.tolist(), labels.tolist(), strict=True)))
    return found


@settings(max_examples=150, deadline=None)
@given(changes, st.integers(0, 30), st.integers(0, 99))
def test_rows_hold_what_was_put_and_not_taken(changes, observed, seed):
    cells = random_cells(N_ROWS, N_MEMBERS, N_LABELS, observed, seed)
    given = matrix_of(cells, N_ROWS, N_MEMBERS, N_LABELS).by_user
    before = given.indices.copy(), given.labels.copy()
    rows = LiveRows(given)
    expected: list[dict[int, int]] = [{} for _ in range(N_ROWS)]
    for (row, member), label in cells.items():
        expected[row][member] = label
    for change, row, member, label in changes:
        if change == "extend":
            rows.extend(row % 3)
            expected += [{} for _ in range(row % 3)]
        elif row < len(expected) and change == "put":
            assert rows.put(row, member, label) == expected[row].get(member)
            expected[row][member] = label
        elif row < len(expected):
            assert rows.take(row, member) == expected[row].pop(member, None)

    assert content(rows) == expected
    assert content(LiveRows(rows.compressed())) == expected
    assert rows.lengths.tolist() == [len(row) for row in expected]
    rows_p, members_p = np.divmod(np.arange(len(expected) * N_MEMBERS), N_MEMBERS)
    assert rows.find(rows_p, members_p).tolist() == [
        expected[row].get(member, -1) for row, member in zip(rows_p, members_p, strict=True)
    ]
    # What was given belongs to somebody else.
    assert np.array_equal(given.indices, before[0])
    assert np.array_equal(given.labels, before[1])


def test_a_pool_without_room_is_packed_anew():
    rng = np.random.default_rng(0)
    rows = LiveRows(matrix_of({}, N_ROWS, 500, N_LABELS).by_user)
    expected: list[dict[int, int]] = [{} for _ in range(N_ROWS)]
    for _ in range(3000):
        row, member = int(rng.integers(N_ROWS)), int(rng.integers(500))
        if rng.random() < 0.2:
            assert rows.take(row, member) == expected[row].pop(member, None)
        else:
            label = int(rng.integers(N_LABELS))
            assert rows.put(row, member, label) == expected[row].get(member)
            expected[row][member] = label
    assert content(rows) == expected


def test_a_row_that_was_handed_out_does_not_change():
    rows = LiveRows(matrix_of({(0, 1): 2}, 1, 9, 4).by_user)
    rows.put(0, 5, 3)  # from here on the pool is the rows' own
    indices, labels = rows.row(0)
    rows.put(0, 1, 0)
    rows.put(0, 0, 1)
    rows.take(0, 5)
    assert indices.tolist() == [1, 5]
    assert labels.tolist() == [2, 3]
