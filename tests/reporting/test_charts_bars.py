from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.reporting.charts import HEIGHT, WIDTH, Chart, Series, bar_chart, line_chart, stacked

SVG = "{http://www.w3.org/2000/svg}"
LABELS = {"title": "Ratings", "x_label": "stars", "y_label": "interactions"}


def draw(bars: list[tuple[str, float]]) -> ET.Element:
    return ET.fromstring(bar_chart(bars, **LABELS))


def texts(chart: ET.Element) -> list[str]:
    return [element.text or "" for element in chart.iter(f"{SVG}text")]


def boxes(chart: ET.Element) -> list[dict[str, float]]:
    return [
        {name: float(rect.get(name, "nan")) for name in ("x", "y", "width", "height")}
        for rect in chart.iter(f"{SVG}rect")
        if "bar" in rect.get("class", "")
    ]


def test_bars_stand_side_by_side_on_one_line_and_are_as_high_as_they_are_many() -> None:
    first, second, third = boxes(draw([("1", 10), ("2", 30), ("3", 0)]))
    assert second["height"] == pytest.approx(3 * first["height"], abs=0.05)
    assert third["height"] == 0
    assert first["y"] + first["height"] == pytest.approx(second["y"] + second["height"], abs=0.02)
    assert first["x"] + first["width"] < second["x"]


def test_the_chart_names_its_bars_and_axes_and_escapes_them() -> None:
    hostile = "<script>&\"'"
    shown = texts(draw([(hostile, 1), ("5", 2)]))
    assert {hostile, "5", "Ratings", "stars", "interactions"} <= set(shown)


def test_labels_without_room_are_left_out_but_bars_are_not() -> None:
    chart = draw([(f"from {n} to {n + 1}", n) for n in range(20)])
    assert len(boxes(chart)) == 20
    ticks = [t for t in texts(chart) if t.startswith("from ")]
    assert 3 <= len(ticks) < 20


def test_counts_have_whole_ticks() -> None:
    shown = texts(draw([("1", 1), ("2", 2)]))
    assert {"0", "1", "2"} <= set(shown)
    assert not any("." in text for text in shown)


def test_bars_without_a_count_have_no_height() -> None:
    assert boxes(draw([("1", 0)]))[0]["height"] == 0


@given(
    st.lists(
        st.tuples(st.text("ab 1", max_size=9), st.integers(0, 10**12)), min_size=1, max_size=30
    )
)
def test_everything_stays_inside_the_picture(bars: list[tuple[str, float]]) -> None:
    for box in boxes(draw(bars)):
        assert 0 <= box["x"] <= box["x"] + box["width"] <= WIDTH
        assert 0 <= box["y"] <= box["y"] + box["height"] <= HEIGHT


def test_charts_stack_into_one_document_without_covering_each_other() -> None:
    charts = [
        bar_chart([("1", 1)], **LABELS),
        line_chart(Chart("t", "x", "y", [Series("s", [0, 1], [0, 1])])),
    ]
    root = ET.fromstring(stacked(charts))
    height = float(root.get("viewBox", "").split()[3])
    inner = list(root.findall(f"{SVG}svg"))
    assert [float(one.get("y", "nan")) for one in inner] == [0, HEIGHT + 16]
    assert height == 2 * HEIGHT + 16
    assert not re.search(r"<script|href|url\(|@import", stacked(charts))
