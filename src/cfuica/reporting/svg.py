"""Learning curves as standalone SVG, drawn without a plotting library.

A chart is one string: it opens in a browser, goes into an HTML page as it is, and shows in a
README. It brings its own background and turns dark where the reader's system is dark. Colours are
Okabe and Ito's, which readers with colour vision deficiencies can tell apart; markers and dashes
say the same once more.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from cfuica.reporting.chart import Chart, Series, spread

WIDTH, HEIGHT = 760, 420
"""Size in user units; as a picture it scales to whatever room it is given."""

_CHARACTER = 0.56  # width of an average character as a share of the font size, a little generous
COLOURS = (  # on light, on dark
    ("#0072b2", "#4aa8e0"),
    ("#d55e00", "#ff8a3d"),
    ("#009e73", "#2fc79b"),
    ("#b0568a", "#e39ac4"),
    ("#b87f00", "#f0b93a"),
    ("#2f8fc4", "#8fd0f5"),
)
DASHES = ("", "7 4", "2 3")  # the next one when the colours have all been used


@dataclass(frozen=True)
class _Axis:
    """A linear map of values from [low, high] to pixels from [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def line_chart(chart: Chart) -> str:
    """Draw the chart and return the SVG document as a string.

    The same input gives the same string. Series without a finite point keep their place in the
    legend; a chart without any says so instead of failing, as a run may stop before its first
    validation.
    """
    lines = chart.finite_lines()
    x_scale, y_scale = chart.scales()
    legend_rows = _legend_rows(chart.series)
    widest = max((_text_width(line.note, 12) for line in lines), default=0.0)
    right = min(24.0 + widest, 0.45 * WIDTH)  # an endless name must not push the curves out
    top, bottom = 56.0 + 20 * len(legend_rows), HEIGHT - 58.0
    left = 46.0 + max(_text_width(text, 12) for text in y_scale.texts)
    x_axis = _Axis(x_scale.low, x_scale.high, left + 8, WIDTH - right - 8)
    y_axis = _Axis(y_scale.low, y_scale.high, bottom, top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'class="cfuica-chart" role="img" aria-label="{escape(chart.title)}">',
        f"<style>{_style()}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>',
        _text(24, 34, chart.title, "title"),
        *_legend(chart.series, legend_rows),
    ]
    for tick, text in zip(y_scale.ticks, y_scale.texts, strict=True):
        y = y_axis(tick)
        parts.append(_line(left, y, WIDTH - right, y, "grid"))
        parts.append(_text(left - 8, y + 4, text, "tick end"))
    for tick, text in zip(x_scale.ticks, x_scale.texts, strict=True):
        x = x_axis(tick)
        parts.append(_line(x, bottom, x, bottom + 5, "axis"))
        parts.append(_text(x, bottom + 20, text, "tick middle"))
    parts.append(_line(left, bottom, WIDTH - right, bottom, "axis"))
    middle = (left + WIDTH - right) / 2
    parts.append(_text(middle, HEIGHT - 16, chart.x_label, "label middle"))
    centre = (top + bottom) / 2
    parts.append(
        f'<text class="label middle" transform="translate(24 {_n(centre)}) rotate(-90)">'
        f"{escape(chart.y_label)}</text>"
    )

    heights = spread([y_axis(line.y) for line in lines], gap=15, low=top, high=bottom - 2)
    for line, height in zip(lines, heights, strict=True):
        y, edge = y_axis(line.y), WIDTH - right
        parts.append(_line(left, y, edge, y, "reference"))
        # A note that had to move aside stays tied to its line.
        parts.append(_line(edge, y, edge + 10, height, "tie"))
        parts.append(_text(edge + 13, height + 4, line.note, "note"))
    for place, one in enumerate(chart.series):
        parts.extend(_curve(one, place, x_axis, y_axis))
    if not chart.points():
        parts.append(_text(middle, centre, "no points yet", "label middle"))
    parts.append("</svg>")
    return "\n".join(parts)


def _curve(series: Series, place: int, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    runs = [[(x_axis(x), y_axis(y)) for x, y in run] for run in series.runs()]
    few = series.has_markers
    look = f"curve {_look(place)}" if few else f"curve dense {_look(place)}"
    for run in runs:
        if len(run) > 1:
            path = " ".join(f"{_n(x)},{_n(y)}" for x, y in run)
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
        return f'<circle {look} cx="{_n(x)}" cy="{_n(y)}" r="3.4"/>'
    if shape == 1:
        return f'<rect {look} x="{_n(x - 3.2)}" y="{_n(y - 3.2)}" width="6.4" height="6.4"/>'
    corners = (
        [(0, -4.4), (4, 3), (-4, 3)] if shape == 2 else [(0, -4.6), (4.6, 0), (0, 4.6), (-4.6, 0)]
    )
    path = " ".join(f"{_n(x + dx)},{_n(y + dy)}" for dx, dy in corners)
    return f'<polygon {look} points="{path}"/>'


def _legend_rows(series: Sequence[Series]) -> list[list[tuple[int, float]]]:
    """(place of the series, its x) row by row, as many in a row as fit."""
    rows: list[list[tuple[int, float]]] = []
    x = math.inf
    for place, one in enumerate(series):
        width = 34 + _text_width(one.name, 13) + 18
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
            yield _line(x, y, x + 26, y, f"curve {_look(place)}")
            if series[place].has_markers:
                yield _marker(x + 13, y, place)
            yield _text(x + 34, y + 4.5, series[place].name, "name")


def _style() -> str:
    """One style sheet for every chart, so that several in one page do not disturb each other."""

    def colours(scope: str, dark: int) -> str:
        return "".join(
            f"{scope} .curve.c{place}{{stroke:{pair[dark]}}}"
            f"{scope} .marker.c{place}{{fill:{pair[dark]}}}"
            for place, pair in enumerate(COLOURS)
        )

    def theme(paper: str, rim: str, ink: str, soft: str, grid: str, axis: str, dark: int) -> str:
        return (
            f"{_SCOPE} .paper{{fill:{paper};stroke:{rim}}}"
            f"{_SCOPE} .marker{{stroke:{paper};stroke-width:1.2}}"
            f"{_SCOPE} .title,{_SCOPE} .name{{fill:{ink}}}"
            f"{_SCOPE} .tick,{_SCOPE} .label,{_SCOPE} .note{{fill:{soft}}}"
            f"{_SCOPE} .grid{{stroke:{grid}}}"
            f"{_SCOPE} .axis,{_SCOPE} .tie{{stroke:{axis}}}"
            f"{_SCOPE} .reference{{stroke:{soft};stroke-width:1.3;stroke-dasharray:5 4}}"
            + colours(_SCOPE, dark)
        )

    return (
        f"{_SCOPE} text{{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',"
        "Arial,sans-serif}"
        f"{_SCOPE} .title{{font-size:17px;font-weight:600}}{_SCOPE} .name{{font-size:13px}}"
        f"{_SCOPE} .label{{font-size:13px}}"
        f"{_SCOPE} .middle{{text-anchor:middle}}{_SCOPE} .end{{text-anchor:end}}"
        f"{_SCOPE} .curve{{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}}"
        f"{_SCOPE} .dense{{stroke-width:1.4}}"
        + "".join(
            f"{_SCOPE} .curve.d{place}{{stroke-dasharray:{dash}}}"
            for place, dash in enumerate(DASHES)
            if dash
        )
        + theme("#ffffff", "#d9dee5", "#1c2430", "#586374", "#e8ecf1", "#9aa5b4", 0)
        + "@media (prefers-color-scheme:dark){"
        + theme("#12171f", "#2c3542", "#e8edf4", "#a3afbf", "#242c38", "#5f6c7e", 1)
        + "}"
    )


_SCOPE = ".cfuica-chart"


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text class="{look}" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    return f'<line class="{look}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def _text_width(text: str, size: float) -> float:
    return len(text) * size * _CHARACTER


def _n(value: float) -> str:
    """A coordinate: a hundredth of a pixel is finer than any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
