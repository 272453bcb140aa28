"""What a chart shows, whoever draws it: `svg` for pages, `png` for everything else.

Curves as standalone SVG, drawn without a plotting library.

Markers and dashes say once more what the colours say.

Bars as standalone SVG: how much there is of each of a few things.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from cfuica.reporting.drawing import (
    COLOURS,
    DASHES,
    WIDTH,
    Axis,
    Frame,
    Scale,
    document,
    draw_line,
    draw_text,
    nice_ticks,
    px,
    scale_of,
    text_width,
)

_MOST_MARKERS = 40  # a line of more points is drawn without markers


@dataclass(frozen=True)
class Series:
    """One curve: ``y[i]`` at ``x[i]``. Points that are not finite leave a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    @property
    def has_markers(self) -> bool:
        """Whether the points are few enough to be marked one by one."""
        return len(self.x) <= _MOST_MARKERS

    def runs(self) -> Iterator[list[tuple[float, float]]]:
        """The unbroken stretches of finite points."""
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r} has {len(self.x)} x and {len(self.y)} y values")
        run: list[tuple[float, float]] = []
        for x, y in zip(self.x, self.y, strict=True):
            if math.isfinite(x) and math.isfinite(y):
                run.append((float(x), float(y)))
            elif run:
                yield run
                run = []
        if run:
            yield run


@dataclass(frozen=True)
class ReferenceLine:
    """A horizontal line to compare with, e.g. a baseline's RMSE."""

    name: str
    y: float

    @property
    def note(self) -> str:
        """What stands beside it: four digits, no more decimals than RMSEs are quoted with."""
        number = f"{self.y:.4f}" if abs(self.y) < 10 else f"{self.y:,.4g}"
        return f"{self.name} {number}"


@dataclass(frozen=True)
class Chart:
    """Curves over one pair of axes. Reference lines that are not finite are left out."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    reference_lines: Sequence[ReferenceLine] = ()

    def finite_lines(self) -> list[ReferenceLine]:
        """The reference lines that can be drawn."""
        return [line for line in self.reference_lines if math.isfinite(line.y)]

    def points(self) -> list[tuple[float, float]]:
        """Every point that can be drawn."""
        return [point for one in self.series for run in one.runs() for point in run]

    def scales(self) -> tuple[Scale, Scale]:
        """The x and y axes: from the first point to the last, and all heights with some air."""
        points = self.points()
        xs = [x for x, _ in points]
        ys = [y for _, y in points] + [line.y for line in self.finite_lines()]
        counts = all(x.is_integer() for x in xs)
        return (
            scale_of(xs, margin=0.0, target=10, whole=counts),
            scale_of(ys, margin=0.06, target=8),
        )


def spread(heights: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """The heights, moved as little as a simple sweep can so that they lie ``gap`` apart."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    spread = list(heights)
    above = -math.inf
    for place in order:
        spread[place] = above = max(spread[place], above + gap, low)
    below = high + gap
    for place in reversed(order):
        spread[place] = below = min(spread[place], below - gap)
    return spread


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


_GAP = 0.25  # between two bars, as a share of their distance


def bar_chart(bars: Sequence[tuple[str, float]], *, title: str, x_label: str, y_label: str) -> str:
    """Draw a bar per (label, height from 0 up) and return the SVG document as a string.

    The same input gives the same string. Where labels have no room, only some are written.
    """
    highest = max((height for _, height in bars), default=0.0) or 1.0
    ticks = nice_ticks(0.0, highest, target=8)
    frame = Frame.beside(ticks, (0.0, highest))
    x_axis = Axis(0.0, max(len(bars), 1), frame.left, frame.right)
    distance = x_axis(1.0) - x_axis(0.0)
    widest = max((text_width(label, 12) for label, _ in bars), default=0.0)
    every = max(int(-(-(widest + 8) // distance)), 1)

    parts = list(frame.draw(ticks, x_label, y_label))
    for place, (label, height) in enumerate(bars):
        top = frame.y_axis(height)
        x = x_axis(place) + distance * _GAP / 2
        parts.append(
            f'<rect class="bar c0" x="{px(x)}" y="{px(top)}" '
            f'width="{px(distance * (1 - _GAP))}" '
            f'height="{px(frame.bottom - top)}">'
            f"<title>{escape(label)}: {height:,g}</title></rect>"
        )
        if place % every == 0:
            parts.extend(frame.draw_tick(x_axis(place + 0.5), label))
    if not bars:
        parts.append(draw_text(frame.middle, frame.centre, "nothing to show", "label middle"))
    return document(title, parts)
