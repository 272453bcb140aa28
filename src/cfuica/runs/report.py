"""The report of a run: settings and learning curves in one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cfuica.learning.trainer import Progress
from cfuica.reporting import png
from cfuica.reporting.chart import Chart, ReferenceLine, Series
from cfuica.reporting.html import Table, write_report
from cfuica.reporting.svg import line_chart
from cfuica.runs.folder import RunFolder


def learning_curves(
    history: Sequence[Progress], reference_lines: Sequence[ReferenceLine] = ()
) -> list[Chart]:
    """Charts of the validation RMSE and of the cost, a curve per member."""
    members = sorted({progress.member for progress in history})

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

    charts = []
    if curves := series(lambda progress: progress.valid.rmse if progress.valid else None):
        charts.append(Chart("Validation RMSE", "minibatches", "RMSE", curves, reference_lines))
    if curves := series(lambda progress: progress.cost):
        charts.append(Chart("Cost of the minibatch", "minibatches", "cost", curves))
    return charts


def settings_table(record: dict[str, Any]) -> Table:
    return Table(
        "Settings",
        ("setting", "value"),
        [(name, str(value)) for name, value in record["settings"].items()],
    )


def write_run_report(
    folder: RunFolder, record: dict[str, Any], history: Sequence[Progress]
) -> None:
    """RUN/report.html, and RUN/curves.png where there is matplotlib."""
    data, training = record["data"], record["training"]
    charts = learning_curves(history)
    if charts and png.available():
        png.write_charts(folder.curves, charts)
    write_report(
        folder.report,
        title=f"cfuica run {folder.path.name}",
        intro=(
            f"Preset {record['preset']}, trained on {data['train']:,} ratings of "
            f"{data['users']:,} users and {data['items']:,} items, {record['date']}. "
            f"{training['steps']:,} minibatches in {training['seconds']:.0f} s, "
            f"{training['parameters']:,} parameters."
        ),
        tables=[settings_table(record)],
        charts=[line_chart(chart) for chart in charts],
        notes=[f"Test it: cfuica evaluate {folder.path}"],
    )
