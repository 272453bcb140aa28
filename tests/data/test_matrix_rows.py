from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import Csr

sets = st.lists(st.sets(st.integers(0, 9)), min_size=4, max_size=4)


def rows_of(given: list[set[int]]) -> Csr:
    pairs = [(row, item) for row, items in enumerate(given) for item in items]
    rows, items = ([pair[at] for pair in pairs] for at in (0, 1))
    return Csr.of_pairs(rows, items, len(given))


def sets_of(rows: Csr) -> list[set[int]]:
    parts = np.split(rows.indices, rows.offsets[1:-1])
    assert all((np.diff(part) > 0).all() for part in parts)
    return [set(part.tolist()) for part in parts]


@settings(deadline=None, max_examples=50)
@given(sets, sets)
def test_rows_are_sets(one, other):
    a, b = rows_of(one), rows_of(other)
    assert sets_of(a) == one
    assert sets_of(a.union(b)) == [x | y for x, y in zip(one, other, strict=True)]
    assert sets_of(a.without(b)) == [x - y for x, y in zip(one, other, strict=True)]
    assert a.sizes.tolist() == [len(x) for x in one]
    assert a.row_of_entry().tolist() == [r for r, x in enumerate(one) for _ in x]


@settings(deadline=None, max_examples=50)
@given(sets, st.lists(st.integers(0, 3), max_size=6))
def test_rows_are_taken_in_any_order_and_more_than_once(given, wanted):
    taken = rows_of(given).take(np.array(wanted, np.int64))
    assert (sets_of(taken) if wanted else []) == [given[row] for row in wanted]


def test_pairs_may_repeat_and_be_in_any_order():
    rows = Csr.of_pairs([2, 0, 2, 2], [7, 1, 3, 7], 4)
    assert sets_of(rows) == [{1}, set(), {3, 7}, set()]
    assert rows.indices.dtype == np.int32
