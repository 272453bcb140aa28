"""Bars as standalone SVG: how much there is of each of a few things."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cfuica.reporting.drawing import Axis, Frame, document, draw_text, px, text_width
from cfuica.reporting.ticks import nice_ticks

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
