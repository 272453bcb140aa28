"""Curves as standalone SVG, drawn without a plotting library.

Markers and dashes say once more what the colours say.
"""

import math
from collections.abc import Iterator, Sequence

from cfuica.reporting.chart import Chart, Series, spread
from cfuica.reporting.drawing import (
    COLOURS,
    DASHES,
    WIDTH,
    Axis,
    Frame,
    document,
    draw_line,
    draw_text,
    px,
    text_width,
)


def line_chart(chart: Chart) -> str:
    """Draw the chart and return the SVG document as a string.

    The same input gives the same string. Series without a finite point keep their place in the
    legend; a chart without any says so instead of failing, as a run may stop before its first
    validation.
    """
    lines = chart.finite_lines()
    x_scale, y_scale = chart.scales()
    legend_rows = _legend_rows(chart.series)
    widest = max((text_width(line.note, 12) for line in lines), default=0.0)
    margin = min(24.0 + widest, 0.45 * WIDTH)  # an endless name must not push the curves out
    span = (y_scale.low, y_scale.high)
    frame = Frame.beside(y_scale.ticks, span, top=56.0 + 20 * len(legend_rows), margin=margin)
    x_axis, y_axis = Axis(x_scale.low, x_scale.high, frame.left + 8, frame.right - 8), frame.y_axis

    parts = [
        *_legend(chart.series, legend_rows),
        *frame.draw(y_scale.ticks, chart.x_label, chart.y_label),
    ]
    for tick, text in zip(x_scale.ticks, x_scale.texts, strict=True):
        parts.extend(frame.draw_tick(x_axis(tick), text))

    heights = spread(
        [y_axis(line.y) for line in lines], gap=15, low=frame.top, high=frame.bottom - 2
    )
    for line, height in zip(lines, heights, strict=True):
        y, edge = y_axis(line.y), frame.right
        parts.append(draw_line(frame.left, y, edge, y, "reference"))
        # A note that had to move aside stays tied to its line.
        parts.append(draw_line(edge, y, edge + 10, height, "tie"))
        parts.append(draw_text(edge + 13, height + 4, line.note, "note"))
    for place, one in enumerate(chart.series):
        parts.extend(_curve(one, place, x_axis, y_axis))
    if not chart.points():
        parts.append(draw_text(frame.middle, frame.centre, "no points yet", "label middle"))
    return document(chart.title, parts)


def _curve(series: Series, place: int, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    runs = [[(x_axis(x), y_axis(y)) for x, y in run] for run in series.runs()]
    few = series.has_markers
    look = f"curve {_look(place)}" if few else f"curve dense {_look(place)}"
    for run in runs:
        if len(run) > 1:
            path = " ".join(f"{px(x)},{px(y)}" for x, y in run)
            yield f'<polyline class="{look}" points="{path}"/>'
        # A lone point between two gaps has no line and would vanish without its marker.
        if few or len(run) == 1:
            yield from (_marker(x, y, place) for x, y in run)


def _look(place: int) -> str:
    colour = place % len(COLOURS)
    dash = place // len(COLOURS) % len(DASHES)
    return f"c{colour} d{dash}"


def _marker(x: float, y: float, place: int) -> str:
    look = f'class="marker {_look(place)}"'
    shape = place % 4
    if shape == 0:
        return f'<circle {look} cx="{px(x)}" cy="{px(y)}" r="3.4"/>'
    if shape == 1:
        return f'<rect {look} x="{px(x - 3.2)}" y="{px(y - 3.2)}" width="6.4" height="6.4"/>'
    corners = (
        [(0, -4.4), (4, 3), (-4, 3)] if shape == 2 else [(0, -4.6), (4.6, 0), (0, 4.6), (-4.6, 0)]
    )
    path = " ".join(f"{px(x + dx)},{px(y + dy)}" for dx, dy in corners)
    return f'<polygon {look} points="{path}"/>'


def _legend_rows(series: Sequence[Series]) -> list[list[tuple[int, float]]]:
    """(place of the series, its x) row by row, as many in a row as fit."""
    rows: list[list[tuple[int, float]]] = []
    x = math.inf
    for place, one in enumerate(series):
        width = 34 + text_width(one.name, 13) + 18
        if x + width > WIDTH - 24:
            rows.append([])
            x = 24.0
        rows[-1].append((place, x))
        x += width
    return rows


def _legend(series: Sequence[Series], rows: list[list[tuple[int, float]]]) -> Iterator[str]:
    for row, entries in enumerate(rows):
        y = 56.0 + 20 * row
        for place, x in entries:
            yield draw_line(x, y, x + 26, y, f"curve {_look(place)}")
            if series[place].has_markers:
                yield _marker(x + 13, y, place)
            yield draw_text(x + 34, y + 4.5, series[place].name, "name")
