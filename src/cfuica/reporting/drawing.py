"""Axis ticks at numbers people would choose.

What all charts are drawn with: one size, one style sheet, a frame with a scale on its left.

A chart is one string: it opens in a browser, goes into an HTML page as it is, and shows in a
README. It brings its own background and turns dark where the reader's system is dark. Colours are
Okabe and Ito's, which readers with colour vision deficiencies can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_SMALLEST = 1e-300  # shares of numbers below it would be rounded to zero


@dataclass(frozen=True)
class Scale:
    """An axis from ``low`` to ``high`` with its ticks and their texts."""

    low: float
    high: float
    ticks: list[float]
    texts: list[str]


def scale_of(values: Sequence[float], *, margin: float, target: int, whole: bool = False) -> Scale:
    """An axis for ``values``, longer than they are by ``margin`` of their span at either end."""
    low, high = _span(values, margin=margin)
    ticks = nice_ticks(low, high, target=target, whole=whole)
    return Scale(low, high, ticks, tick_labels(ticks))


def nice_ticks(low: float, high: float, *, target: int = 6, whole: bool = False) -> list[float]:
    """About ``target`` ticks or fewer inside [low, high], at multiples of 1, 2, 2.5 or 5 × 10^n.

    ``whole`` keeps them to whole numbers, for axes that count something. Needs ``low < high``.
    """
    step = _nice_step((high - low) / target, whole=whole)
    # Multiples are counted in integers, so that errors do not add up along the axis.
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [multiple * step for multiple in range(first, last + 1)]


def tick_labels(ticks: list[float]) -> list[str]:
    """The ticks as text, all with as many decimals as the finest of them needs."""
    if len(ticks) < 2:
        return [f"{tick:.6g}" for tick in ticks]
    step = ticks[1] - ticks[0]
    largest = max(abs(tick) for tick in ticks)
    if largest >= 1e7 or step < 1e-6:
        return [f"{tick:.6g}" for tick in ticks]
    decimals = next((d for d in range(8) if abs(round(step, d) - step) <= 1e-6 * step), 8)
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    return [f"{round(tick, decimals) + 0.0:,.{decimals}f}" for tick in ticks]


def _nice_step(rough: float, *, whole: bool) -> float:
    """The smallest nice step that is at least ``rough``."""
    magnitude = 10.0 ** math.floor(math.log10(rough))
    nice = (factor * magnitude for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0))
    step = next(candidate for candidate in nice if candidate >= rough * (1 - 1e-9))
    if whole and (step < 1.0 or step == 2.5):
        return 1.0 if step < 1.0 else 5.0
    return step


def _span(values: Sequence[float], *, margin: float) -> tuple[float, float]:
    """Lowest and highest value, moved apart by ``margin`` of the span and never equal."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), _SMALLEST):
        half = 0.5 * abs(low) if _SMALLEST < abs(low) < 1 else max(0.5, 1e-3 * abs(low))
        return low - half, high + half
    return low - margin * (high - low), high + margin * (high - low)


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
class Axis:
    """A linear map of values from [low, high] to pixels from [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True)
class Frame:
    """The rectangle that the data is drawn in, with the vertical scale beside it."""

    left: float
    right: float
    top: float
    bottom: float
    y_axis: Axis

    @classmethod
    def beside(
        cls,
        y_ticks: Sequence[float],
        span: tuple[float, float],
        *,
        top: float = 56.0,
        margin: float = 24.0,
    ) -> Frame:
        """As wide as the labels of the ticks leave room for, with a margin on the right."""
        widest = max(text_width(text, 12) for text in tick_labels(list(y_ticks)))
        bottom = HEIGHT - 58.0
        return cls(46.0 + widest, WIDTH - margin, top, bottom, Axis(*span, bottom, top))

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    @property
    def centre(self) -> float:
        return (self.top + self.bottom) / 2

    def draw(self, y_ticks: Sequence[float], x_label: str, y_label: str) -> Iterator[str]:
        """The grid with its labels, the line at the bottom, and the names of both axes."""
        for tick, text in zip(y_ticks, tick_labels(list(y_ticks)), strict=True):
            y = self.y_axis(tick)
            yield draw_line(self.left, y, self.right, y, "grid")
            yield draw_text(self.left - 8, y + 4, text, "tick end")
        yield draw_line(self.left, self.bottom, self.right, self.bottom, "axis")
        yield draw_text(self.middle, HEIGHT - 16, x_label, "label middle")
        yield (
            f'<text class="label middle" transform="translate(24 {px(self.centre)}) '
            f'rotate(-90)">{escape(y_label)}</text>'
        )

    def draw_tick(self, x: float, text: str) -> Iterator[str]:
        """A tick of the horizontal axis."""
        yield draw_line(x, self.bottom, x, self.bottom + 5, "axis")
        yield draw_text(x, self.bottom + 20, text, "tick middle")


def document(title: str, parts: Sequence[str]) -> str:
    """The SVG document with these parts under its title."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'class="cfuica-chart" role="img" aria-label="{escape(title)}">',
        f"<style>{_style()}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>',
        draw_text(24, 34, title, "title"),
    )
    return "\n".join((*head, *parts, "</svg>"))


def stacked(documents: Sequence[str]) -> str:
    """One SVG document that shows several, one below the other."""
    gap = 16
    height = len(documents) * (HEIGHT + gap) - gap
    parts = [
        one.replace("<svg ", f'<svg y="{place * (HEIGHT + gap)}" height="{HEIGHT}" ', 1)
        for place, one in enumerate(documents)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join((head, *parts, "</svg>"))


def _style() -> str:
    """One style sheet for every chart, so that several in one page do not disturb each other."""

    def colours(scope: str, dark: int) -> str:
        return "".join(
            f"{scope} .curve.c{place}{{stroke:{pair[dark]}}}"
            f"{scope} .marker.c{place},{scope} .bar.c{place}{{fill:{pair[dark]}}}"
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


def draw_text(x: float, y: float, text: str, look: str) -> str:
    return f'<text class="{look}" x="{px(x)}" y="{px(y)}">{escape(text)}</text>'


def draw_line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    return f'<line class="{look}" x1="{px(x1)}" y1="{px(y1)}" x2="{px(x2)}" y2="{px(y2)}"/>'


def text_width(text: str, size: float) -> float:
    return len(text) * size * _CHARACTER


def px(value: float) -> str:
    """A coordinate: a hundredth of a pixel is finer than any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
