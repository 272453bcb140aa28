from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cfuica.reporting import Chart, ReferenceLine, Series, line_chart
from cfuica.reporting.drawing import HEIGHT, WIDTH

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
    assert len(list(chart.iter(f"{SVG}circle"))) == 5 + 1


def test_a_long_curve_has_no_markers() -> None:
    chart = draw([Series("s", range(500), [1 / (1 + x) for x in range(500)])])
    assert not list(chart.iter(f"{SVG}circle"))
    assert len(curves(chart)[0]) == 500


@pytest.mark.parametrize("series", [[], [Series("s", [], [])], [Series("s", [1], [math.nan])]])
def test_a_chart_without_points_says_so(series) -> None:
    assert "no points yet" in texts(draw(series))


def test_epochs_have_whole_ticks() -> None:
    shown = texts(draw([Series("s", [1, 2, 3], [0.1, 0.2, 0.3])]))
    assert {"1", "2", "3"} <= set(shown)
    assert "1.5" not in shown


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
        draw([Series("s", [0, 1], [0])])


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
def test_everything_stays_inside_the_picture(points, reference) -> None:
    x, y = zip(*points, strict=True)
    chart = draw([Series("s", x, y)], [ReferenceLine("r", reference)])
    places = [point for curve in curves(chart) for point in curve]
    places += [
        (float(c.get("cx", "nan")), float(c.get("cy", "nan"))) for c in chart.iter(f"{SVG}circle")
    ]
    places += [(float(t.get("x", "0")), float(t.get("y", "0"))) for t in chart.iter(f"{SVG}text")]
    assert all(0 <= px <= WIDTH and 0 <= py <= HEIGHT for px, py in places)
