"""What a chart shows, whoever draws it: `svg` for pages, `png` for everything else."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cfuica.reporting.ticks import Scale, scale_of

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
