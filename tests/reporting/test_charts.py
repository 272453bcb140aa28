from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cfuica.reporting.charts import HEIGHT, WIDTH, Chart, Series, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def draw(series, **labels) -> ET.Element:
    names = {"title": "RMSE", "x_label": "epoch", "y_label": "stars", **labels}
    # ElementTree refuses anything that is not well-formed.
    return ET.fromstring(line_chart(Chart(**names, series=series)))


def texts(chart: ET.Element) -> list[str]:
    return [element.text or "" for element in chart.iter(f"{SVG}text")]


def curves(chart: ET.Element) -> list[list[tuple[float, float]]]:
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
        for line in chart.iter(f"{SVG}polyline")
    ]


def ticks(chart: ET.Element) -> list[tuple[float, str]]:
    """Place and text of the ticks of the horizontal axis."""
    return [
        (float(text.get("x", "nan")), text.text or "")
        for text in chart.iter(f"{SVG}text")
        if text.get("class") == "middle"
    ]


def test_shows_title_labels_and_names() -> None:
    chart = draw([Series("validation", [1, 2, 3], [1.0, 0.9, 0.88])])
    assert {"RMSE", "epoch", "stars", "validation"} <= set(texts(chart))
    assert chart.get("role") == "img"
    assert chart.get("aria-label") == "RMSE"


def test_a_falling_curve_runs_down_the_picture_from_left_to_right() -> None:
    (curve,) = curves(draw([Series("s", [1, 2, 3], [1.0, 0.9, 0.8])]))
    xs, ys = zip(*curve, strict=True)
    assert list(xs) == sorted(xs)
    assert list(ys) == sorted(ys)
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2, abs=0.02)


def test_text_is_escaped() -> None:
    hostile = "<script>&\"'"
    series = [Series(hostile, [0, 1], [0, 1])]
    chart = draw(series, title=hostile, x_label=hostile)
    assert texts(chart).count(hostile) == 3
    assert not list(chart.iter(f"{SVG}script"))


def test_needs_nothing_from_outside() -> None:
    chart = line_chart(Chart("t", "x", "y", [Series("s", [0, 1], [0, 1])]))
    assert re.findall(r"https?://[^\"']+", chart) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|href|url\(|@import", chart)


def test_points_that_are_not_finite_leave_a_gap() -> None:
    y = [1.0, 0.9, math.nan, 0.8, math.inf, 0.7, 0.6]
    chart = draw([Series("s", range(7), y)])
    first, lone, last = curves(chart)
    assert len(first) == 2
    assert len(last) == 2
    # A line of no length, which round ends make visible: the lone point is not lost.
    assert lone == [lone[0]] * 2
    assert ".curve{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}" in (
        chart.findtext(f"{SVG}style", "")
    )


@pytest.mark.parametrize("series", [[], [Series("s", [], [])], [Series("s", [1], [math.nan])]])
def test_a_chart_without_points_says_so(series) -> None:
    assert "no points yet" in texts(draw(series))


def test_epochs_have_whole_ticks() -> None:
    shown = texts(draw([Series("s", [1, 2, 3], [0.1, 0.2, 0.3])]))
    assert {"1", "2", "3"} <= set(shown)
    assert "1.5" not in shown


@given(first=st.integers(0, 10**9), steps=st.integers(1, 10**9))
@example(first=9_000_000, steps=990_000)
def test_ticks_of_large_counts_do_not_overlap(first, steps) -> None:
    places = ticks(draw([Series("s", [first, first + steps], [0, 1])]))
    assert places
    for (left, text), (right, following) in pairwise(places):
        # Seven pixels a character, as wide fonts are.
        assert right - left >= 7 * (len(text) + len(following)) / 2


def test_no_two_of_many_curves_look_alike() -> None:
    chart = draw([Series(str(n), [0, 1], [n, n + 1]) for n in range(18)])
    looks = [line.get("class") for line in chart.iter(f"{SVG}polyline")]
    assert len(set(looks)) == 18


def test_the_same_input_gives_the_same_picture() -> None:
    def picture() -> str:
        return line_chart(Chart("t", "x", "y", [Series("s", [0, 1, 2], [1.0, 0.5, 0.25])]))

    assert picture() == picture()


def test_a_series_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        draw([Series("s", [0, 1], [0])])


@given(
    points=st.lists(
        st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9, allow_subnormal=False)),
        min_size=1,
        max_size=20,
    )
)
@example(points=[(0.0, 0.0), (0.0, 5e-324)])
@example(points=[(0.0, 0.0)])
@example(points=[(5e-324, 0.0)])
def test_points_stay_inside_the_axes_and_texts_inside_the_picture(points) -> None:
    x, y = zip(*points, strict=True)
    chart = draw([Series("s", x, y)])
    # The first of each kind: the axis comes before its ticks.
    lines = {line.get("class"): line for line in reversed(list(chart.iter(f"{SVG}line")))}
    left, right, bottom = (float(lines["axis"].get(name, "nan")) for name in ("x1", "x2", "y1"))
    places = [point for curve in curves(chart) for point in curve]
    assert places
    assert all(left <= px <= right and 76 <= py <= bottom for px, py in places)
    at = [(float(t.get("x", "0")), float(t.get("y", "0"))) for t in chart.iter(f"{SVG}text")]
    assert all(0 <= px <= WIDTH and 0 <= py <= HEIGHT for px, py in at)
