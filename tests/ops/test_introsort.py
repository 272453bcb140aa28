"""The order that numpy's argsort had before it used vector instructions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cfuica.ops.introsort import SMALL, argsort, last_of_each
from cfuica.ops.runtime import run_rows


def killer(n: int) -> np.ndarray:
    """Values whose median of three is always near the end, so that heapsort must take over."""
    half, values = n // 2, np.zeros(n, np.int64)
    for i in range(1, half + 1):
        if i % 2 == 1:
            values[i - 1] = i
            if i < half:
                values[i] = half + i
        values[half + i - 1] = 2 * i
    return values


@settings(deadline=None)  # compiling takes its time
@given(arrays.arrays(np.int64, st.integers(0, 300), elements=st.integers(0, 40)))
def test_it_is_what_numpy_has_where_it_has_no_vector_instructions(values):
    # numpy 2.4 sorts arguments of 16 bits with the same loop as ever.
    assert argsort(values).tolist() == np.argsort(values.astype(np.int16)).tolist()


@pytest.mark.parametrize("divisor", [1, 2, 7])
def test_what_makes_quicksort_go_deep_is_left_to_heapsort(divisor):
    values = killer(4000) // divisor
    assert argsort(values).tolist() == np.argsort(values.astype(np.int16)).tolist()


def test_a_short_row_is_in_stable_order_and_a_longer_one_is_not():
    short, longer = np.zeros(SMALL + 1, np.int64), np.zeros(SMALL + 2, np.int64)
    assert argsort(short).tolist() == list(range(SMALL + 1))
    assert argsort(longer).tolist() != list(range(SMALL + 2))


def test_values_written_down_from_numpy_1_23():
    values = np.array([i * 7919 % 5 for i in range(60)], np.int64)
    assert argsort(values).tolist() == ORDER


def test_the_last_of_each_row():
    times = np.array([3, 9, 9, 1, 5], np.int64)
    offsets, last = np.array([0, 3, 3, 5], np.int64), np.zeros(3, np.int64)
    run_rows(last_of_each, 3, offsets, times, last)
    assert last.tolist() == [2, -1, 4]


ORDER = [
    0, 55, 50, 15, 5, 45, 25, 40, 20, 10, 35, 30, 24, 39, 44, 49, 54, 34, 19, 29, 9, 4, 14, 59,
    3, 48, 28, 58, 13, 53, 33, 43, 23, 8, 38, 18, 47, 52, 7, 42, 17, 2, 12, 32, 27, 57, 22, 37,
    1, 56, 51, 16, 46, 6, 36, 11, 31, 26, 21, 41,
]  # fmt: skip
