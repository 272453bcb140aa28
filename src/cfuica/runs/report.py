"""The report of a run: settings, learning curves and calibration in one HTML file.

Whether predicted distributions can be believed, as charts and a table of a report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cfuica.artifact.run_folder import RunFolder
from cfuica.metrics.rating_metrics import CalibrationScores
from cfuica.reporting import png
from cfuica.reporting.charts import Chart, ReferenceLine, Series, line_chart
from cfuica.reporting.page import Table, write_report
from cfuica.settings import RankingSettings
from cfuica.training.trainer import Progress

if TYPE_CHECKING:
    from cfuica.metrics.rating_metrics import Bins


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


OF_STRANGERS = ", strangers' network"
_ABOUT_CALIBRATION = (
    "Calibration is that of the validation part. The correction was fitted to the same ratings, so "
    "what it is worth elsewhere is for the test part to tell."
)


def learning_curves(
    history: Sequence[Progress], reference_lines: Sequence[ReferenceLine] = ()
) -> list[Chart]:
    """Charts of what validation is judged by and of the cost, a curve per member.

    The strangers' network has charts of its own: it answers a harder question, and beside the
    others its figures would be taken for those of a member that failed.
    """
    known = [progress for progress in history if not progress.strangers]
    strange = [progress for progress in history if progress.strangers]
    return [
        *_charts(known, reference_lines=reference_lines),
        *_charts(strange, of_whom=OF_STRANGERS),
    ]


def _charts(
    history: Sequence[Progress],
    *,
    of_whom: str = "",
    reference_lines: Sequence[ReferenceLine] = (),
) -> list[Chart]:
    def series(value_of: Callable[[Progress], float | None]) -> list[Series]:
        curves = []
        for member in members:
            points = [
                (progress.step, value)
                for progress in history
                if progress.member == member and (value := value_of(progress)) is not None
            ]
            if points:
                name = f"model {member + 1}" if len(members) > 1 else "CF-UIcA"
                curves.append(Series(name, [x for x, _ in points], [y for _, y in points]))
        return curves

    members = sorted({progress.member for progress in history})
    charts = []
    if curves := series(lambda progress: progress.valid.value if progress.valid else None):
        measure = next(progress.valid.measure for progress in history if progress.valid)
        title = f"Validation {measure}{of_whom}"
        charts.append(Chart(title, "minibatches", measure, curves, reference_lines))
    if curves := series(lambda progress: progress.cost):
        charts.append(Chart(f"Cost of the minibatch{of_whom}", "minibatches", "cost", curves))
    return charts


def settings_table(record: dict[str, Any]) -> Table:
    return Table(
        "Settings",
        ("setting", "value"),
        [(name, str(value)) for name, value in record["settings"].items()],
    )


def _about_strangers(strangers: dict[str, Any] | None) -> str:
    if strangers is None:
        return ""
    return (
        f"\n\nUsers and items unknown to training are answered for by a network of their own, with "
        f"{strangers['parameters']:,} parameters. It is validated with every user as a stranger."
    )


def calibration_sections(
    checks: Mapping[str, Mapping[str, CalibrationScores]],
) -> list[CalibrationSection]:
    """A section for each network that was checked; see `RatingModel.checks`."""
    return [
        calibration_section(scores, OF_STRANGERS if name == "strangers" else "")
        for name, scores in checks.items()
        if scores
    ]


def write_run_report(
    folder: RunFolder,
    record: dict[str, Any],
    history: Sequence[Progress],
    checks: Mapping[str, Mapping[str, CalibrationScores]],
) -> None:
    """RUN/report.html, and RUN/curves.png where there is matplotlib."""
    data, training = record["data"], record["training"]
    charts = learning_curves(history)
    if charts and png.available():
        png.write_charts(folder.curves, charts)
    sections = calibration_sections(checks)
    charts += [chart for section in sections for chart in section.charts]
    learned = "behaviours" if record.get("task") == RankingSettings.task else "ratings"
    write_report(
        folder.report,
        title=f"cfuica run {folder.path.name}",
        intro=(
            f"Preset {record['preset']}, trained on {data['train']:,} {learned} of "
            f"{data['users']:,} users and {data['items']:,} items, {record['date']}. "
            f"{training['steps']:,} minibatches in {training['seconds']:.0f} s, "
            f"{training['parameters']:,} parameters.{_about_strangers(training['strangers'])}"
        ),
        tables=[settings_table(record), *(section.table for section in sections)],
        charts=[line_chart(chart) for chart in charts],
        notes=[
            *([_ABOUT_CALIBRATION] if sections else []),
            f"Test it: cfuica evaluate {folder.path}",
        ],
    )
