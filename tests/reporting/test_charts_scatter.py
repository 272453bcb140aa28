"""Scatter charts and dot plots."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from cfuica.reporting.charts import Chart, Series, scatter_chart

SVG = "{http://www.w3.org/2000/svg}"


def dots(svg: str) -> list[tuple[str, float, float]]:
    """Class and place of each dot, without those of the legend."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}circle")
    places = [
        (one.get("class", ""), float(one.get("cx", 0)), float(one.get("cy", 0))) for one in found
    ]
    return places[len({look for look, *_ in places}) :]


def test_each_finite_point_is_a_dot_in_its_place() -> None:
    svg = scatter_chart(
        Chart("t", "x", "y", [Series("a", [0, 1, 2], [0, 5, math.nan]), Series("b", [2], [10])])
    )
    (_, x0, y0), (look, x1, y1), (other, x2, y2) = dots(svg)
    assert x0 < x1 < x2
    assert math.isclose(x1 - x0, x2 - x1, rel_tol=1e-3)
    assert math.isclose(y0 - y1, y1 - y2, rel_tol=1e-3)
    assert "f0" in look
    assert "hollow" in other
    assert "hollow" not in look


def test_a_dot_plot_has_a_named_row_for_each_point_from_the_top() -> None:
    rows = ["first", "second <&", "third"]
    svg = scatter_chart(Chart("t", "x", "", [Series("a", [3, 1, 2], range(3))]), rows=rows)
    (_, x0, y0), (_, x1, y1), (_, x2, y2) = dots(svg)
    assert y0 < y1 < y2
    assert x1 < x2 < x0
    texts = {
        text.text: float(text.get("y", 0))
        for text in ElementTree.fromstring(svg).iter(f"{SVG}text")
    }
    for name, y in zip(rows, (y0, y1, y2), strict=True):
        assert math.isclose(texts[name], y + 4, abs_tol=0.1)


def test_without_points_it_says_so_and_one_point_needs_no_span() -> None:
    assert "no points yet" in scatter_chart(Chart("t", "x", "y", [Series("a", [], [])]))
    assert len(dots(scatter_chart(Chart("t", "x", "y", [Series("a", [1], [1])])))) == 1
    assert not re.search("nan|inf", scatter_chart(Chart("t", "x", "y", [Series("a", [1], [1])])))
