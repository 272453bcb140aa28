"""The report of a run: settings, learning curves and calibration in one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cfuica.evaluation.calibration import CalibrationScores
from cfuica.learning.progress import Progress
from cfuica.reporting import png
from cfuica.reporting.calibration import CalibrationSection, calibration_section
from cfuica.reporting.chart import Chart, ReferenceLine, Series
from cfuica.reporting.html import Table, write_report
from cfuica.reporting.svg import line_chart
from cfuica.runs.folder import RunFolder
from cfuica.settings import RankingSettings

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
