"""Labels that few people gave are folded into their neighbours."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.inference.explain import FEWEST_RATERS, fold, may_be_shown


def group_sizes(counts: list[int]) -> list[int]:
    bounds = [*fold(np.array(counts)), len(counts)]
    return [sum(counts[first:end]) for first, end in pairwise(bounds)]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_every_group_is_large_enough_or_the_only_one(counts):
    starts = fold(np.array(counts))
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert starts[-1] < len(counts)
    assert len(starts) == 1 or min(group_sizes(counts)) >= FEWEST_RATERS


@given(st.lists(st.integers(FEWEST_RATERS, 30), min_size=1, max_size=8))
def test_labels_that_enough_people_gave_stay_apart(counts):
    assert fold(np.array(counts)) == list(range(len(counts)))


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        ([4, 5, 6], [9, 6]),
        ([6, 5, 4], [6, 9]),
        ([2, 3, 40, 50], [5, 40, 50]),
        ([9, 3, 8], [9, 11]),
        ([8, 3, 8], [11, 8]),
        ([30, 1, 1, 1, 30], [33, 30]),
        ([3, 100, 3], [106]),
        ([0, 9], [9]),
        ([1, 2, 1], [4]),
        ([0, 0], [0]),
    ],
)
def test_the_smallest_group_goes_to_its_smaller_neighbour(counts, sizes):
    assert group_sizes(counts) == sizes


def test_nothing_is_told_of_a_few_people():
    assert [count for count in range(7) if may_be_shown(count)] == [0, 5, 6]
