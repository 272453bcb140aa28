"""Line charts, scatter charts and bar charts as SVG, drawn without a plotting library.

`line_chart`, `scatter_chart` and `bar_chart` return one string, and the same input gives the same
string. It opens in a browser, goes into an HTML page as it is, and shows in a README. A chart
brings its own background and turns dark where the reader's system is dark. Colours are Okabe and
Ito's, which readers with colour vision deficiencies can tell apart; dashes, and filled and hollow
dots, repeat what they say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

WIDTH, HEIGHT = 760, 420  # Size in user units; as a picture it scales to whatever room it is given.

_Axis = Callable[[float], float]
_NAMESPACE = "http://www.w3.org/2000/svg"
_SMALLEST = 1e-300  # shares of numbers below it would be rounded to zero
_CHARACTER = 0.6  # width of an average character as a share of the font size, a little generous


@dataclass(frozen=True)
class Series:
    """One curve: ``y[i]`` at ``x[i]``. Points that are not finite leave a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    def runs(self) -> list[list[tuple[float, float]]]:
        """The unbroken stretches of finite points."""
        points = [(float(x), float(y)) for x, y in zip(self.x, self.y, strict=True)]
        stretches = groupby(points, key=lambda point: all(map(math.isfinite, point)))
        return [list(stretch) for finite, stretch in stretches if finite]


@dataclass(frozen=True)
class Chart:
    """Curves over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]


def line_chart(chart: Chart) -> str:
    """Draw the chart and return the SVG document.

    A series without a finite point keeps its place in the legend. A chart without any says so
    instead of failing, as a run may stop before its first validation.
    """
    points = [point for one in chart.series for run in one.runs() for point in run]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    legend, top = _legend(chart.series, lambda x, y, place: _line(x, y, x + 26, y, _look(place)))
    plot = _Plot(_span(ys, margin=0.06), top=top)
    x_span = _span(xs, margin=0.0)
    x_axis = _axis(x_span, plot.left + 8, plot.right - 8)
    whole = all(x.is_integer() for x in xs)  # epochs and minibatches are counted
    ticks = nice_ticks(*x_span, target=10, whole=whole)

    parts = legend
    for place, one in enumerate(chart.series):
        parts += _draw_curve(one, place, x_axis, plot.y_axis)
    if not points:
        parts.append(_text(plot.middle, plot.centre, "no points yet", "label middle"))
    labels = zip(map(x_axis, ticks), tick_labels(ticks), strict=True)
    axes = plot.draw_axes(list(labels), chart.x_label, chart.y_label)
    return _document(chart.title, [*axes, *parts])


def scatter_chart(chart: Chart, *, rows: Sequence[str] = ()) -> str:
    """Draw a dot for each finite point and return the SVG document.

    With `rows` it is a dot plot: a point's y is the number of its row from the top, and the rows
    have names in place of numbers.
    """
    points = [point for one in chart.series for run in one.runs() for point in run]
    legend, top = _legend(chart.series, lambda x, y, place: _dot(x + 13, y, place))
    if rows:
        names = [(-float(place), name) for place, name in enumerate(rows)]
        plot = _Plot((0.7 - len(rows), 0.7), top=top, y_ticks=names)
    else:
        plot = _Plot(_span([y for _, y in points], margin=0.06), top=top)
    x_span = _span([x for x, _ in points], margin=0.04)
    x_axis = _axis(x_span, plot.left + 8, plot.right - 8)
    ticks = nice_ticks(*x_span, target=10)
    parts = legend
    for place, one in enumerate(chart.series):
        for x, y in (point for run in one.runs() for point in run):
            parts.append(_dot(x_axis(x), plot.y_axis(-y if rows else y), place))
    if not points:
        parts.append(_text(plot.middle, plot.centre, "no points yet", "label middle"))
    labels = zip(map(x_axis, ticks), tick_labels(ticks), strict=True)
    axes = plot.draw_axes(list(labels), chart.x_label, chart.y_label)
    return _document(chart.title, [*axes, *parts])


def bar_chart(bars: Sequence[tuple[str, float]], *, title: str, x_label: str, y_label: str) -> str:
    """Draw a bar per (label, height from 0 up) and return the SVG document."""
    highest = max(height for _, height in bars) or 1.0
    plot = _Plot((0.0, highest), whole=all(float(height).is_integer() for _, height in bars))
    distance = (plot.right - plot.left) / len(bars)
    width = 0.75 * distance
    parts, labels = [], []
    for place, (label, height) in enumerate(bars):
        middle, top = plot.left + (place + 0.5) * distance, plot.y_axis(height)
        labels.append((middle, label))
        parts.append(
            f'<rect class="bar" x="{middle - width / 2:.5g}" y="{top:.5g}" '
            f'width="{width:.5g}" height="{plot.bottom - top:.5g}">'
            f"<title>{escape(label)}: {height:,g}</title></rect>"
        )
    return _document(title, [*plot.draw_axes(labels, x_label, y_label), *parts])


def stacked(documents: Sequence[str]) -> str:
    """Return one SVG document that shows several, one below the other."""
    step = HEIGHT + 16
    parts = [
        one.replace("<svg ", f'<svg y="{place * step}" height="{HEIGHT}" ', 1)
        for place, one in enumerate(documents)
    ]
    size = f"0 0 {WIDTH} {len(documents) * step - 16}"
    return "\n".join((f'<svg xmlns="{_NAMESPACE}" viewBox="{size}">', *parts, "</svg>"))


def nice_ticks(low: float, high: float, *, target: int, whole: bool = False) -> list[float]:
    """About ``target`` ticks or fewer inside [low, high], at multiples of 1, 2 or 5 × 10^n.

    ``whole`` keeps them to whole numbers, for axes that count something. Needs ``low < high``.
    """
    rough = (high - low) / target
    if whole:
        rough = max(rough, 1.0)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    steps = [factor * magnitude for factor in (1.0, 2.0, 5.0, 10.0)]
    step = next(step for step in steps if step >= rough * (1 - 1e-9))
    # Multiples are counted in integers, so that errors do not add up along the axis.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [multiple * step for multiple in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """The ticks as text, all with as many decimals as the finest of them needs."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 0.0
    if max(map(abs, ticks)) >= 1e9 or step < 1e-6:
        return [f"{tick:.6g}" for tick in ticks]
    decimals = next((d for d in range(8) if abs(round(step, d) - step) <= 1e-6 * step), 8)
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    return [f"{round(tick, decimals) + 0.0:,.{decimals}f}" for tick in ticks]


def _span(values: Sequence[float], *, margin: float) -> tuple[float, float]:
    """Lowest and highest value, moved apart by ``margin`` of the span and never equal."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = margin * (high - low)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), _SMALLEST):
        room = 0.5 * abs(low) if abs(low) > _SMALLEST else 0.5
    return low - room, high + room


def _axis(span: tuple[float, float], start: float, end: float) -> _Axis:
    """A linear map of the values of the span to pixels from start to end."""
    low, high = span
    return lambda value: start + (value - low) / (high - low) * (end - start)


class _Plot:
    """The rectangle that the data is drawn in, with the vertical axis on its left."""

    def __init__(
        self,
        y_span: tuple[float, float],
        *,
        whole: bool = False,
        top: float = 56.0,
        y_ticks: Sequence[tuple[float, str]] = (),
    ) -> None:
        ticks = nice_ticks(*y_span, target=8, whole=whole)
        self.y_ticks = y_ticks or list(zip(ticks, tick_labels(ticks), strict=True))
        self.left = 46.0 + max(_text_width(text) for _, text in self.y_ticks)
        self.right, self.bottom = WIDTH - 24.0, HEIGHT - 58.0
        self.middle = (self.left + self.right) / 2
        self.centre = (top + self.bottom) / 2
        self.y_axis = _axis(y_span, self.bottom, top)

    def draw_axes(
        self, x_ticks: Sequence[tuple[float, str]], x_label: str, y_label: str
    ) -> Iterator[str]:
        """The grid, the horizontal axis and all labels; of ``x_ticks`` (pixel, text) what fits."""
        for tick, text in self.y_ticks:
            y = self.y_axis(tick)
            yield _line(self.left, y, self.right, y, "grid")
            yield _text(self.left - 8, y + 4, text, "end")
        yield _line(self.left, self.bottom, self.right, self.bottom, "axis")
        distance = x_ticks[1][0] - x_ticks[0][0] if len(x_ticks) > 1 else math.inf
        widest = max((_text_width(text) for _, text in x_ticks), default=0.0)
        for x, text in x_ticks[:: max(math.ceil((widest + 8) / distance), 1)]:
            yield _line(x, self.bottom, x, self.bottom + 5, "axis")
            yield _text(x, self.bottom + 20, text, "middle")
        yield _text(self.middle, HEIGHT - 16, x_label, "label middle")
        yield (
            f'<text class="label middle" transform="translate(24 {self.centre:.5g}) '
            f'rotate(-90)">{escape(y_label)}</text>'
        )


def _legend(
    series: Sequence[Series], mark: Callable[[float, float, int], str]
) -> tuple[list[str], float]:
    """The names of the series behind their marks, as many in a row as fit, and the height at which
    the plot begins."""
    parts: list[str] = []
    x, y = 24.0, 56.0
    for place, one in enumerate(series):
        width = 34 + _text_width(one.name, 13) + 18
        if x > 24 and x + width > WIDTH - 24:
            x, y = 24.0, y + 20
        parts.append(mark(x, y, place))
        parts.append(_text(x + 34, y + 4.5, one.name, "label"))
        x += width
    return parts, y + 20 if series else y


def _draw_curve(series: Series, place: int, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    for run in series.runs():
        # A lone point between two gaps is a line to itself, which shows as a dot.
        points = run * 2 if len(run) == 1 else run
        path = " ".join(f"{x_axis(x):.5g},{y_axis(y):.5g}" for x, y in points)
        yield f'<polyline class="{_look(place)}" points="{path}"/>'


def _look(place: int) -> str:
    return f"curve c{place % len(_COLOURS)} d{place % len(_DASHES)}"


def _dot(x: float, y: float, place: int) -> str:
    look = f"dot c{place % len(_COLOURS)} {'hollow' if place % 2 else f'f{place % len(_COLOURS)}'}"
    return f'<circle class="{look}" cx="{x:.5g}" cy="{y:.5g}" r="4"/>'


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text class="{look}" x="{x:.5g}" y="{y:.5g}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    return f'<line class="{look}" x1="{x1:.5g}" y1="{y1:.5g}" x2="{x2:.5g}" y2="{y2:.5g}"/>'


def _text_width(text: str, size: float = 12) -> float:
    return len(text) * size * _CHARACTER


def _document(title: str, parts: Sequence[str]) -> str:
    """The SVG document with these parts under its title."""
    head = (
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" class="cfuica-chart" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>',
        _text(24, 34, title, "title"),
    )
    return "\n".join((*head, *parts, "</svg>"))


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0568a", "#b87f00", "#2f8fc4")
# As many as have no factor in common with the colours: the two together repeat late.
_DASHES = ("none", "8 5", "1 5", "8 5 1 5", "16 5")
_LIGHT = {
    "text": "font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "fill:#586374",
    ".title": "font-size:17px;font-weight:600;fill:#1c2430",
    ".label": "font-size:13px",
    ".middle": "text-anchor:middle",
    ".end": "text-anchor:end",
    ".paper": "fill:#ffffff;stroke:#d9dee5",
    ".grid": "stroke:#e8ecf1",
    ".axis": "stroke:#9aa5b4",
    ".curve": "fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round",
    ".bar": f"fill:{_COLOURS[0]}",
    ".dot": "stroke-width:1.8;fill-opacity:.75",
    ".hollow": "fill:none",
    **{f".f{place}": f"fill:{colour}" for place, colour in enumerate(_COLOURS)},
    **{f".c{place}": f"stroke:{colour}" for place, colour in enumerate(_COLOURS)},
    **{f".d{place}": f"stroke-dasharray:{dash}" for place, dash in enumerate(_DASHES)},
}
_DARK = {
    "text": "fill:#a3afbf",
    ".title": "fill:#e8edf4",
    ".paper": "fill:#12171f;stroke:#2c3542",
    ".grid": "stroke:#242c38",
    ".axis": "stroke:#5f6c7e",
}


def _rules(rules: dict[str, str]) -> str:
    # Under a class of its own, a chart leaves the page around it as it is.
    return "".join(f".cfuica-chart {part}{{{look}}}" for part, look in rules.items())


_STYLE = f"{_rules(_LIGHT)}@media (prefers-color-scheme:dark){{{_rules(_DARK)}}}"
