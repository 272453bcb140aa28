from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import compression


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 2)), max_size=40))
def test_entries_are_sorted_by_row_and_index_and_keep_their_order_where_they_repeat(entries):
    rows, indices, labels = (
        np.array([entry[at] for entry in entries], kind)
        for at, kind in enumerate((np.int32, np.int32, np.uint8))
    )
    by_row, by_index = compression.offsets(rows, 5), compression.offsets(indices, 7)
    assert by_row.tolist() == [sum(row < end for row in rows) for end in range(6)]
    mixed = compression.scattered(by_index, indices, rows, labels)
    found = np.empty_like(mixed[0]), np.empty_like(mixed[1])
    compression.transpose(by_index, *mixed, by_row, *found)
    expected = sorted(entries, key=lambda entry: entry[:2])  # stable
    assert found[0].tolist() == [index for _, index, _ in expected]
    assert found[1].tolist() == [label for _, _, label in expected]
    pairs = [entry[:2] for entry in expected]
    twice = [one for one, other in zip(pairs[1:], pairs, strict=False) if one == other]
    count, *first = compression.repeats(by_row, found[0])
    assert count == len(twice)
    assert not twice or tuple(first) == twice[0]
