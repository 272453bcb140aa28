"""Curves as standalone SVG, drawn without a plotting library.

Markers and dashes say once more what the colours say.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from cfuica.reporting.ticks import nice_ticks, tick_labels

_SMALLEST = 1e-300  # shares of numbers below it would be rounded to zero
_MOST_MARKERS = 40  # a line of more points is drawn without markers


@dataclass(frozen=True)
class Series:
    """One curve: ``y[i]`` at ``x[i]``. Points that are not finite leave a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class ReferenceLine:
    """A horizontal line to compare with, e.g. a baseline's RMSE."""

    name: str
    y: float


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    reference_lines: Sequence[ReferenceLine] = (),
) -> str:
    """Draw ``series`` and ``reference_lines`` and return the SVG document as a string.

    The same input gives the same string. Series without a finite point keep their place in the
    legend; a chart without any says so instead of failing, as a run may stop before its first
    validation.
    """
    for one in series:
        if len(one.x) != len(one.y):
            raise ValueError(f"series {one.name!r} has {len(one.x)} x and {len(one.y)} y values")
    lines = [line for line in reference_lines if math.isfinite(line.y)]
    points = [point for one in series for run in _runs(one) for point in run]

    legend_rows = _legend_rows(series)
    notes = [f"{line.name} {_short(line.y)}" for line in lines]
    widest = max((text_width(note, 12) for note in notes), default=0.0)
    margin = min(24.0 + widest, 0.45 * WIDTH)  # an endless name must not push the curves out

    xs = [x for x, _ in points]
    ys = [y for _, y in points] + [line.y for line in lines]
    counts = all(float(x).is_integer() for x in xs)
    y_span = _span(ys, margin=0.06)
    y_ticks = nice_ticks(*y_span, target=8)
    frame = Frame.beside(y_ticks, y_span, top=56.0 + 20 * len(legend_rows), margin=margin)
    x_low, x_high = _span(xs, margin=0.0)
    x_axis, y_axis = Axis(x_low, x_high, frame.left + 8, frame.right - 8), frame.y_axis
    x_ticks = nice_ticks(x_low, x_high, target=10, whole=counts)

    parts = [*_legend(series, legend_rows), *frame.draw(y_ticks, x_label, y_label)]
    for tick, text in zip(x_ticks, tick_labels(x_ticks), strict=True):
        parts.extend(frame.draw_tick(x_axis(tick), text))

    heights = _spread(
        [y_axis(line.y) for line in lines], gap=15, low=frame.top, high=frame.bottom - 2
    )
    for line, note, height in zip(lines, notes, heights, strict=True):
        y, edge = y_axis(line.y), frame.right
        parts.append(draw_line(frame.left, y, edge, y, "reference"))
        # A note that had to move aside stays tied to its line.
        parts.append(draw_line(edge, y, edge + 10, height, "tie"))
        parts.append(draw_text(edge + 13, height + 4, note, "note"))
    for place, one in enumerate(series):
        parts.extend(_curve(one, place, x_axis, y_axis))
    if not points:
        parts.append(draw_text(frame.middle, frame.centre, "no points yet", "label middle"))
    return document(title, parts)


def _runs(series: Series) -> Iterator[list[tuple[float, float]]]:
    """The unbroken stretches of finite points."""
    run: list[tuple[float, float]] = []
    for x, y in zip(series.x, series.y, strict=True):
        if math.isfinite(x) and math.isfinite(y):
            run.append((float(x), float(y)))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _curve(series: Series, place: int, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    runs = [[(x_axis(x), y_axis(y)) for x, y in run] for run in _runs(series)]
    few = _has_markers(series)
    look = f"curve {_look(place)}" if few else f"curve dense {_look(place)}"
    for run in runs:
        if len(run) > 1:
            path = " ".join(f"{px(x)},{px(y)}" for x, y in run)
            yield f'<polyline class="{look}" points="{path}"/>'
        # A lone point between two gaps has no line and would vanish without its marker.
        if few or len(run) == 1:
            yield from (_marker(x, y, place) for x, y in run)


def _has_markers(series: Series) -> bool:
    return len(series.x) <= _MOST_MARKERS


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
            if _has_markers(series[place]):
                yield _marker(x + 13, y, place)
            yield draw_text(x + 34, y + 4.5, series[place].name, "name")


def _span(values: Sequence[float], *, margin: float) -> tuple[float, float]:
    """Lowest and highest value, moved apart by ``margin`` of the span and never equal."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), _SMALLEST):
        half = 0.5 * abs(low) if _SMALLEST < abs(low) < 1 else max(0.5, 1e-3 * abs(low))
        return low - half, high + half
    return low - margin * (high - low), high + margin * (high - low)


def _spread(heights: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
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


def _short(value: float) -> str:
    """Four digits, and no more decimals than RMSEs are quoted with."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.4g}"
