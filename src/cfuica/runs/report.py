"""The report of a run: settings, learning curves and calibration in one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfuica.metrics.rating_metrics import Bins, CalibrationScores
from cfuica.models.recommender import task_named
from cfuica.reporting.charts import Chart, ReferenceLine, Series, line_chart
from cfuica.reporting.page import Table, write_report
from cfuica.run_folder import RunFolder
from cfuica.settings import RatingSettings
from cfuica.training.trainer import Progress

_OF_COLD_START = ", cold-start network"  # the end of its titles
_CALIBRATION_NOTE = (
    "Calibration is measured on the validation set, to which it was fitted; the test set says what "
    "it is worth on other ratings."
)


@dataclass(frozen=True)
class CalibrationSection:
    """The calibration of one network, as a report shows it."""

    table: Table
    charts: Sequence[Chart]


def write_run_report(
    folder: RunFolder,
    record: dict[str, Any],
    history: Sequence[Progress],
    checks: Mapping[str, Mapping[str, CalibrationScores]],
) -> None:
    """Write RUN/report.html; for `checks`, by network, see `RatingModel.checks`."""
    data, training = record["data"], record["training"]
    sections = [
        calibration_section(scores, _OF_COLD_START if name == "cold_start" else "")
        for name, scores in checks.items()
        if scores
    ]
    charts = learning_curves(history) + [chart for one in sections for chart in one.charts]
    kind = task_named(record.get("task", RatingSettings.task)).model
    learned = "ratings" if kind.reads_ratings else "interactions"
    intro = (
        f"Preset {record['preset']}, trained on {data['train']:,} {learned} of "
        f"{data['users']:,} users and {data['items']:,} items, {record['date']}. "
        f"{training['steps']:,} minibatches in {training['seconds']:.0f} s, "
        f"{training['parameters']:,} parameters."
    )
    if cold_start := training["cold_start"]:
        intro += (
            f"\n\nCold-start users and items have a network of their own, with "
            f"{cold_start['parameters']:,} parameters. It is validated with every user as a "
            "cold-start user."
        )
    settings = [(name, str(value)) for name, value in record["settings"].items()]
    write_report(
        folder.report,
        title=f"cfuica run {folder.path.name}",
        intro=intro,
        tables=[
            Table("Settings", ("setting", "value"), settings),
            *(one.table for one in sections),
        ],
        charts=[line_chart(chart) for chart in charts],
        notes=[
            *([_CALIBRATION_NOTE] if sections else []),
            f"Test it: cfuica evaluate {folder.path}",
        ],
    )


def learning_curves(
    history: Sequence[Progress], reference_lines: Sequence[ReferenceLine] = ()
) -> list[Chart]:
    """Charts of the validation metric and of the loss, a curve per model of the ensemble.

    The cold-start network has charts of its own: its task is harder, and among the others its
    curves would be taken for those of a model that failed.
    """
    warm = [progress for progress in history if not progress.cold_start]
    cold = [progress for progress in history if progress.cold_start]
    return [*_curves_of(warm, "", reference_lines), *_curves_of(cold, _OF_COLD_START, ())]


def _curves_of(
    history: Sequence[Progress], of_target: str, reference_lines: Sequence[ReferenceLine]
) -> list[Chart]:
    charts = []
    if curves := _series(history, lambda one: one.valid.value if one.valid else None):
        metric = next(one.valid.measure for one in history if one.valid)
        title = f"Validation {metric}{of_target}"
        charts.append(Chart(title, "minibatches", metric, curves, reference_lines))
    if curves := _series(history, lambda one: one.loss):
        charts.append(Chart(f"Loss of the minibatch{of_target}", "minibatches", "loss", curves))
    return charts


def _series(
    history: Sequence[Progress], value_of: Callable[[Progress], float | None]
) -> list[Series]:
    """The values over the minibatches, a series per model that has any."""
    models = sorted({one.member for one in history})
    series = []
    for model in models:
        name = f"model {model + 1}" if len(models) > 1 else "CF-UIcA"
        of_model = [(one.step, value_of(one)) for one in history if one.member == model]
        points = [(step, value) for step, value in of_model if value is not None]
        if points:
            series.append(Series(name, *zip(*points, strict=True)))
    return series


def calibration_section(
    scores: Mapping[str, CalibrationScores], of_target: str = ""
) -> CalibrationSection:
    """A reliability diagram, predicted variance against squared error, and a table of both.

    `scores` by name, e.g. "before" and "after" calibration, in the order to show; `of_target` is
    added to the titles.
    """
    variances = {name: one.spread.bins for name, one in scores.items()}
    highest = max(float(bins.predicted_b.max()) for bins in variances.values())
    table = Table(
        f"Calibration{of_target}",
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
    reliability = Chart(
        f"Reliability of predicted probabilities{of_target}",
        "predicted probability of a rating",
        "observed frequency",
        _with_ideal({name: one.reliability for name, one in scores.items()}, 1.0),
    )
    variance = Chart(
        f"Predicted variance and squared error{of_target}",
        "predicted variance",
        "mean squared error",
        _with_ideal(variances, highest),
    )
    return CalibrationSection(table, [reliability, variance])


def _with_ideal(bins: Mapping[str, Bins], highest: float) -> list[Series]:
    """A curve per name, and the diagonal up to `highest` on which a calibrated model lies."""
    return [
        *(Series(name, b.predicted_b.tolist(), b.observed_b.tolist()) for name, b in bins.items()),
        Series("as predicted", [0.0, highest], [0.0, highest]),
    ]
