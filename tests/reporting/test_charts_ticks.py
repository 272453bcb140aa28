from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.reporting.charts import nice_ticks, tick_labels


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.0, 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.83, 1.12, ["0.85", "0.90", "0.95", "1.00", "1.05", "1.10"]),
        (0, 4000, ["0", "1,000", "2,000", "3,000", "4,000"]),
        (-1.0, 1.0, ["-1.0", "-0.5", "0.0", "0.5", "1.0"]),
        (0, 2.5e7, ["0", "5,000,000", "10,000,000", "15,000,000", "20,000,000", "25,000,000"]),
    ],
)
def test_ticks_are_numbers_people_would_choose(low, high, labels) -> None:
    assert tick_labels(nice_ticks(low, high, target=6)) == labels


def test_an_axis_that_counts_has_whole_ticks() -> None:
    assert nice_ticks(1, 3, target=8, whole=True) == [1, 2, 3]
    assert nice_ticks(0, 100, target=5, whole=True) == [0, 20, 40, 60, 80, 100]
    assert nice_ticks(0, 200, target=8, whole=True) == [0, 50, 100, 150, 200]
    assert nice_ticks(0, 12, target=6, whole=True) == [0, 2, 4, 6, 8, 10, 12]
    assert nice_ticks(0, 15, target=6, whole=True) == [0, 5, 10, 15]


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6), target=st.integers(5, 12))
def test_ticks_lie_inside_rise_and_have_different_labels(low, span, target) -> None:
    ticks = nice_ticks(low, low + span, target=target)
    slack = 1e-6 * span
    assert 2 <= len(ticks) <= target + 1
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)
    assert ticks == sorted(ticks)
    assert len(set(tick_labels(ticks))) == len(ticks)
