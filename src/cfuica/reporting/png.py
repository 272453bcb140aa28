"""Charts as one PNG, for where a browser is not at hand. Needs matplotlib, the extra `viz`.

What is shown is what `svg` shows: the same curves, colours, ticks and notes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

from cfuica.errors import CfuicaError
from cfuica.io import write_bytes_atomically
from cfuica.reporting.charts import Chart, spread
from cfuica.reporting.drawing import COLOURS, DASHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
_INCHES_PER_CHART, _DOTS_PER_INCH = (7.6, 4.2), 150
_NAMES_IN_A_ROW = 6
_MARKERS = "os^D"
_INK, _SOFT, _GRID = "#1c2430", "#586374", "#e8ecf1"


def available() -> bool:
    """Whether matplotlib is installed; it is not imported to find out."""
    return find_spec("matplotlib") is not None


def write_charts(path: str | os.PathLike[str], charts: Sequence[Chart]) -> None:
    """Draw the charts below each other into one PNG, written whole or not at all.

    The same charts give the same bytes with the same version of matplotlib, whatever the user's
    own matplotlib settings; nothing of matplotlib's state is left changed.
    """
    if not charts:
        raise ValueError("there are no charts to draw")
    if not available():
        raise CfuicaError("Learning curves as PNG need the extra viz: pip install 'cfuica[viz]'.")
    # Half a second to import. Figure alone, because pyplot would keep every figure alive.
    from matplotlib import style
    from matplotlib.figure import Figure

    width, height = _INCHES_PER_CHART
    # Names are text: a dollar sign does not begin a formula.
    plain: dict[str, Any] = {"text.parse_math": False, "font.size": 9.0}
    with style.context(["default", plain]):
        figure = Figure(figsize=(width, height * len(charts)), dpi=_DOTS_PER_INCH, layout="tight")
        for place, chart in enumerate(charts, start=1):
            _draw(figure.add_subplot(len(charts), 1, place), chart)
        picture = BytesIO()
        # Software names matplotlib's version, the one thing that would differ without a reason.
        figure.savefig(picture, format="png", metadata={"Software": None})
    write_bytes_atomically(path, picture.getvalue())


def _draw(axes: Axes, chart: Chart) -> None:
    """Fill one pair of axes."""
    for place, series in enumerate(chart.series):
        look: dict[str, Any] = {
            "color": COLOURS[place % len(COLOURS)][0],
            "linestyle": _dash(DASHES[place // len(COLOURS) % len(DASHES)]),
            "linewidth": 1.6 if series.has_markers else 1.1,
            "markersize": 4.0,
            "label": series.name,
        }
        marker = _MARKERS[place % len(_MARKERS)]
        # An empty line keeps the place in the legend of a series without points.
        for run in [*series.runs()] or [[]]:
            # A lone point between two gaps has no line and would vanish without its marker.
            marked = series.has_markers or len(run) == 1
            axes.plot(*zip(*run, strict=True) if run else ([], []), marker=marker * marked, **look)
            look.pop("label", None)
    _notes(axes, chart)
    x_scale, y_scale = chart.scales()
    air = 0.02 * (x_scale.high - x_scale.low)
    axes.set_xlim(x_scale.low - air, x_scale.high + air)
    axes.set_ylim(y_scale.low, y_scale.high)
    axes.set_xticks(x_scale.ticks, x_scale.texts)
    axes.set_yticks(y_scale.ticks, y_scale.texts)
    above_legend = 10 + 15 * math.ceil(len(chart.series) / _NAMES_IN_A_ROW)
    axes.set_title(
        chart.title, loc="left", color=_INK, fontsize=12, fontweight="bold", pad=above_legend
    )
    axes.set_xlabel(chart.x_label, color=_SOFT)
    axes.set_ylabel(chart.y_label, color=_SOFT)
    axes.tick_params(colors=_SOFT)
    axes.grid(axis="y", color=_GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if chart.series:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=_NAMES_IN_A_ROW,
            frameon=False,
            labelcolor=_INK,
        )
    if not chart.points():
        axes.text(0.5, 0.5, "no points yet", transform=axes.transAxes, ha="center", color=_SOFT)


def _notes(axes: Axes, chart: Chart) -> None:
    """Reference lines, and beside each its name; names that would overlap move apart."""
    lines, (_, y_scale) = chart.finite_lines(), chart.scales()
    ends = [(line.y - y_scale.low) / (y_scale.high - y_scale.low) for line in lines]
    heights = spread(ends, gap=0.055, low=0.0, high=1.0)
    for line, end, height in zip(lines, ends, heights, strict=True):
        axes.axhline(line.y, color=_SOFT, linewidth=1.0, linestyle=(0, (5, 4)))
        axes.annotate(
            line.note,
            xy=(1.0, end),
            xytext=(1.02, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            color=_SOFT,
            # A note that had to move aside stays tied to its line.
            arrowprops={
                "arrowstyle": "-",
                "color": _SOFT,
                "linewidth": 0.6,
                "relpos": (0.0, 0.5),
                "shrinkA": 0.0,
                "shrinkB": 0.0,
            },
        )


def _dash(pattern: str) -> Any:
    """SVG's dash pattern as matplotlib's."""
    return (0, tuple(float(length) / 1.6 for length in pattern.split())) if pattern else "-"
