"""Whether predicted distributions can be believed, as charts and a table of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cfuica.reporting.chart import Chart, Series
from cfuica.reporting.html import Table

if TYPE_CHECKING:
    from cfuica.evaluation.calibration import Bins, CalibrationScores


@dataclass(frozen=True)
class CalibrationSection:
    """What a report shows of it."""

    table: Table
    charts: Sequence[Chart]


def calibration_section(
    scores: Mapping[str, CalibrationScores], of_whom: str = ""
) -> CalibrationSection:
    """A reliability diagram, predicted variance against squared error, and the figures.

    `scores` by name, e.g. "before" and "after" a correction, in the order to show; `of_whom` is
    added to the titles.
    """
    reliability = {name: one.reliability for name, one in scores.items()}
    spread = {name: one.spread.bins for name, one in scores.items()}
    highest = max(float(bins.predicted_b.max()) for bins in spread.values())
    return CalibrationSection(
        table=calibration_table(scores, of_whom),
        charts=[
            Chart(
                f"Reliability of predicted probabilities{of_whom}",
                "predicted probability of a rating",
                "observed frequency",
                [*_curves(reliability), _ideal(1.0)],
            ),
            Chart(
                f"Predicted variance and squared error{of_whom}",
                "predicted variance",
                "mean squared error",
                [*_curves(spread), _ideal(highest)],
            ),
        ],
    )


def calibration_table(scores: Mapping[str, CalibrationScores], of_whom: str = "") -> Table:
    """Expected calibration errors and the variance ratio, a row per name."""
    return Table(
        f"Calibration{of_whom}",
        (
            "distributions",
            "calibration error, most likely rating",
            "calibration error, all ratings",
            "squared error / predicted variance",
        ),
        [
            (
                name,
                f"{one.top_label_error:.4f}",
                f"{one.class_wise_error:.4f}",
                f"{one.spread.ratio:.3f}",
            )
            for name, one in scores.items()
        ],
    )


def _curves(bins: Mapping[str, Bins]) -> list[Series]:
    return [
        Series(name, one.predicted_b.tolist(), one.observed_b.tolist())
        for name, one in bins.items()
    ]


def _ideal(highest: float) -> Series:
    return Series("as predicted", [0.0, highest], [0.0, highest])
