"""Arrays that grow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfuica.live.interactions import GrowingArray


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=12), st.integers(0, 3))
def test_what_is_there_stays_while_rows_are_appended(appended, size):
    array = GrowingArray(np.arange(size))
    expected = list(range(size))
    for count, value in appended:
        array.append(count, value)
        expected += [value] * count
        assert array.size == len(expected)
        assert array.values.tolist() == expected


def test_rows_of_more_than_one_number_grow_too():
    array = GrowingArray(np.ones((2, 3), np.float32))
    array.extend(1)
    assert array.values.shape == (3, 3)
    assert array.values.dtype == np.float32
    assert np.array_equal(array.values[:2], np.ones((2, 3)))
