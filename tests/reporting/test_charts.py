from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cfuica.reporting import Chart, ReferenceLine, Series
from cfuica.reporting.charts import spread

numbers = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(points=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20), reference=numbers)
def test_the_axes_have_room_for_everything_that_is_drawn(points, reference) -> None:
    x, y = zip(*points, strict=True)
    chart = Chart("t", "x", "y", [Series("s", x, y)], [ReferenceLine("r", reference)])
    x_scale, y_scale = chart.scales()
    assert x_scale.low <= min(x) <= max(x) <= x_scale.high
    assert y_scale.low < min(*y, reference) <= max(*y, reference) < y_scale.high
    for scale in (x_scale, y_scale):
        assert len(scale.ticks) == len(scale.texts)
        assert scale.low < scale.high


def test_what_is_not_finite_is_not_drawn() -> None:
    chart = Chart(
        "t",
        "x",
        "y",
        [Series("s", [1, 2, math.inf, 4], [1.0, math.nan, 1.0, 2.0])],
        [ReferenceLine("a", math.nan), ReferenceLine("b", 0.5)],
    )
    assert chart.points() == [(1.0, 1.0), (4.0, 2.0)]
    assert list(chart.series[0].runs()) == [[(1.0, 1.0)], [(4.0, 2.0)]]
    assert [line.note for line in chart.finite_lines()] == ["b 0.5000"]


def test_notes_are_as_exact_as_an_rmse_and_no_longer() -> None:
    assert ReferenceLine("a", 0.98765).note == "a 0.9877"
    assert ReferenceLine("a", 1234567.8).note == "a 1.235e+06"


@given(heights=st.lists(st.floats(0, 100), max_size=6))
def test_notes_move_apart_inside_their_room_and_keep_their_order(heights) -> None:
    moved = spread(heights, gap=10, low=0, high=100)
    assert all(-1e-9 <= height <= 100 for height in moved)
    by_height = sorted(range(len(heights)), key=lambda place: heights[place])
    in_order = [moved[place] for place in by_height]
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(in_order))


def test_notes_that_have_room_stay_where_they_are() -> None:
    assert spread([30.0, 5.0, 60.0], gap=10, low=0, high=100) == [30.0, 5.0, 60.0]
