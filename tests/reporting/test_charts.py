from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cfuica.reporting.charts import HEIGHT, WIDTH, Chart, ReferenceLine, Series, line_chart, spread

SVG = "{http://www.w3.org/2000/svg}"


def draw(series, reference_lines=(), **labels) -> ET.Element:
    names = {"title": "RMSE", "x_label": "epoch", "y_label": "stars", **labels}
    # ElementTree refuses anything that is not well-formed.
    return ET.fromstring(line_chart(Chart(**names, series=series, reference_lines=reference_lines)))


def texts(chart: ET.Element) -> list[str]:
    return [element.text or "" for element in chart.iter(f"{SVG}text")]


def curves(chart: ET.Element) -> list[list[tuple[float, float]]]:
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
        for line in chart.iter(f"{SVG}polyline")
    ]


def markers(chart: ET.Element) -> list[tuple[float, float]]:
    """Where they stand, those of the legend first."""
    paths = [path.get("d", "") for path in chart.iter(f"{SVG}path")]
    return [tuple(map(float, path[1:].split("m")[0].split())) for path in paths]


def ticks(chart: ET.Element) -> list[tuple[float, str]]:
    """Place and text of the ticks of the horizontal axis."""
    return [
        (float(text.get("x", "nan")), text.text or "")
        for text in chart.iter(f"{SVG}text")
        if text.get("class") == "middle"
    ]


def test_shows_title_labels_names_and_reference_values() -> None:
    chart = draw(
        [Series("validation", [1, 2, 3], [1.0, 0.9, 0.88])],
        [ReferenceLine("item mean", 0.98)],
    )
    assert {"RMSE", "epoch", "stars", "validation", "item mean 0.9800"} <= set(texts(chart))
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
    chart = draw(series, [ReferenceLine(hostile, 0.5)], title=hostile, x_label=hostile)
    assert texts(chart).count(hostile) == 3
    assert not list(chart.iter(f"{SVG}script"))


def test_needs_nothing_from_outside() -> None:
    chart = line_chart(Chart("t", "x", "y", [Series("s", [0, 1], [0, 1])]))
    assert re.findall(r"https?://[^\"']+", chart) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|href|url\(|@import", chart)


def test_points_that_are_not_finite_leave_a_gap() -> None:
    y = [1.0, 0.9, math.nan, 0.8, math.inf, 0.7, 0.6]
    chart = draw([Series("s", range(7), y)])
    assert [len(curve) for curve in curves(chart)] == [2, 2]
    # Five finite points and the sample in the legend: the lone one is not lost.
    assert len(markers(chart)) == 5 + 1


def test_a_long_curve_has_no_markers() -> None:
    chart = draw([Series("s", range(500), [1 / (1 + x) for x in range(500)])])
    assert not markers(chart)
    assert len(curves(chart)[0]) == 500


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


def test_notes_of_close_reference_lines_do_not_overlap() -> None:
    chart = draw(
        [Series("s", [0, 1], [0.0, 10.0])],
        [ReferenceLine(name, 5 + 0.01 * place) for place, name in enumerate("abcd")],
    )
    heights = sorted(
        float(element.get("y", "nan"))
        for element in chart.iter(f"{SVG}text")
        if element.get("class") == "note"
    )
    assert all(b - a >= 14.9 for a, b in pairwise(heights))


def test_no_two_of_many_curves_look_alike() -> None:
    chart = draw([Series(str(n), [0, 1], [n, n + 1]) for n in range(18)])
    looks = [line.get("class") for line in chart.iter(f"{SVG}polyline")]
    assert len(set(looks)) == 18


def test_the_same_input_gives_the_same_picture() -> None:
    def picture() -> str:
        return line_chart(Chart("t", "x", "y", [Series("s", [0, 1, 2], [1.0, 0.5, 0.25])]))

    assert picture() == picture()


def test_a_series_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="'s' has 2 x and 1 y"):
        Series("s", [0, 1], [0])


def test_reference_lines_that_are_not_finite_are_left_out() -> None:
    lines = [ReferenceLine("a", math.nan), ReferenceLine("b", 0.5)]
    shown = texts(draw([Series("s", [0, 1], [0, 1])], lines))
    assert "b 0.5000" in shown
    assert not any(text.startswith("a ") for text in shown)


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


@given(
    points=st.lists(
        st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9, allow_subnormal=False)),
        min_size=1,
        max_size=20,
    ),
    reference=st.floats(-1e9, 1e9) | st.just(math.nan),
)
@example(points=[(0.0, 0.0)], reference=5e-324)
@example(points=[(0.0, 0.0)], reference=math.nan)
@example(points=[(5e-324, 0.0)], reference=math.nan)
def test_points_stay_inside_the_axes_and_texts_inside_the_picture(points, reference) -> None:
    x, y = zip(*points, strict=True)
    chart = draw([Series("s", x, y)], [ReferenceLine("r", reference)])
    # The first of each kind: the axis comes before its ticks.
    lines = {line.get("class"): line for line in reversed(list(chart.iter(f"{SVG}line")))}
    left, right, bottom = (float(lines["axis"].get(name, "nan")) for name in ("x1", "x2", "y1"))
    places = [point for curve in curves(chart) for point in curve] + markers(chart)[1:]
    if "reference" in lines:
        places.append((left, float(lines["reference"].get("y1", "nan"))))
    assert all(left <= px <= right and 76 <= py <= bottom for px, py in places)
    at = [(float(t.get("x", "0")), float(t.get("y", "0"))) for t in chart.iter(f"{SVG}text")]
    assert all(0 <= px <= WIDTH and 0 <= py <= HEIGHT for px, py in at)
