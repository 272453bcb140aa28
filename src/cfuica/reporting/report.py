"""Reports as one HTML file of tables and charts, without scripts or external resources.

`write_report` writes any report, `write_markdown` the same as Markdown, `write_run_report` that of
a run: settings, learning curves and calibration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cfuica.io import write_text_atomically
from cfuica.metrics.rating_metrics import Bins, CalibrationScores
from cfuica.models.recommender import task_named
from cfuica.reporting.charts import Chart, Series, line_chart
from cfuica.run_folder import RunFolder
from cfuica.settings import CommonSettings, RatingSettings
from cfuica.training.trainer import Progress, describe_outcome


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns; all but the first are aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    intro: str = ""  # Between the title and the table.


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    intro: str,
    tables: Sequence[Table],
    charts: Sequence[str],
    notes: Sequence[str] = (),
) -> None:
    """Write the page to ``path``, whole or not at all.

    Args:
        intro: plain text; an empty line starts a new paragraph.
        charts: SVG documents of :mod:`cfuica.reporting.charts`, put in as they are. All other text
            is escaped.
        notes: plain text, one remark each, listed at the end.
    """
    body = [f"<h1>{escape(title)}</h1>"]
    body += [f"<p>{escape(paragraph)}</p>" for paragraph in intro.split("\n\n") if paragraph]
    body += [_table(table) for table in tables]
    for chart in charts:
        if not chart.startswith("<svg"):
            # Charts are not escaped, so nothing else may come this way by mistake.
            raise ValueError(f"a chart must be an SVG document, not {chart[:40]!r}")
        body.append(f"<figure>\n{chart}\n</figure>")
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        body.append(f"<h2>Notes</h2>\n<ul>{items}</ul>")
    page = (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # Promised by construction, and enforced by the browser.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )
    write_text_atomically(path, page)


def write_markdown(
    path: str | os.PathLike[str],
    *,
    title: str,
    intro: str,
    tables: Sequence[Table],
    pictures: Mapping[str, str],
    notes: Sequence[str] = (),
) -> None:
    """Write the same as Markdown; `pictures` are the files of the charts, by title."""
    parts = [f"# {title}", intro]
    for table in tables:
        rule = ["---", *("---:" for _ in table.columns[1:])]
        rows = "\n".join(map(_markdown_row, (table.columns, rule, *table.rows)))
        parts += [f"## {table.title}", *filter(None, [table.intro]), rows]
    parts += [f"![{name}]({file})" for name, file in pictures.items()]
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    write_text_atomically(path, "\n\n".join(parts) + "\n")


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', '&#124;') for text in texts)} |"


def _table(table: Table) -> str:
    numeric = [place > 0 for place in range(len(table.columns))]

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if is_number else ''}>{escape(text)}</{tag}>"
            for text, is_number in zip(texts, numeric, strict=True)
        )

    rows = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in table.rows)
    intro = f"<p>{escape(table.intro)}</p>\n" if table.intro else ""
    return (
        f"<h2>{escape(table.title)}</h2>\n{intro}"
        f'<div class="scroll"><table>\n<thead><tr>{cells("th", table.columns)}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #586374; --paper: #f5f7fa;
  --card: #ffffff; --rim: #d9dee5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8edf4; --soft: #a3afbf; --paper: #0b0f14;
  --card: #12171f; --rim: #2c3542; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; }
main { max-width: 800px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .6em; }
h2 { font-size: 1.1rem; margin: 2.2em 0 .6em; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--rim);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .5em 1em; text-align: left; border-top: 1px solid var(--rim); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; font-size: .88em; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 2.2em 0 0; }
figure svg { display: block; width: 100%; height: auto; }
ul { padding-left: 1.2em; color: var(--soft); }
"""


_OF_COLD_START = ", cold-start network"  # the end of its titles
_CALIBRATION_NOTE = (
    "Calibration is measured on the validation set, to which it was fitted; the test set says what "
    "it is worth on other ratings."
)


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
    kind = task_named(record.get("task", RatingSettings.task)).model
    learned = "ratings" if kind.reads_ratings else "interactions"
    of, names = f"Preset {record['preset']}", ("CF-UIcA", "minibatch", "minibatches")
    if (model := record.get("model", CommonSettings.model)) != CommonSettings.model:
        of, names = f"Model {model}", (model, "epoch", "epochs")
    # A curve of one step shows nothing.
    charts = learning_curves(history, *names) if training["steps"] > 1 else []
    charts += [chart for _, section in sections for chart in section]
    intro = (
        f"{of}, trained on {data['train']:,} {learned} of {data['users']:,} users and "
        f"{data['items']:,} items, {record['date']}. {training['steps']:,} {names[2]} in "
        f"{training['seconds']:.0f} s, {training['parameters']:,} parameters."
    )
    if outcomes := training.get("outcomes"):
        intro += "\n\n" + " ".join(map(describe_outcome, outcomes))
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
            *(table for table, _ in sections),
        ],
        charts=[line_chart(chart) for chart in charts],
        notes=[
            *([_CALIBRATION_NOTE] if sections else []),
            f"Test it: cfuica evaluate {folder.path}",
        ],
    )


def learning_curves(
    history: Sequence[Progress],
    name: str = "CF-UIcA",
    step: str = "minibatch",
    steps: str = "minibatches",
) -> list[Chart]:
    """Charts of the validation metric and of the loss, a curve per model of the ensemble.

    The cold-start network has charts of its own: its task is harder, and among the others its
    curves would be taken for those of a model that failed.
    """
    charts = []
    for of_target in ("", _OF_COLD_START):
        of_network = [one for one in history if one.cold_start == bool(of_target)]
        if curves := _series(of_network, name, lambda one: one.valid.value if one.valid else None):
            metric = next(one.valid.measure for one in of_network if one.valid)
            charts.append(Chart(f"Validation {metric}{of_target}", steps, metric, curves))
        if curves := _series(of_network, name, lambda one: one.loss):
            charts.append(Chart(f"Loss of the {step}{of_target}", steps, "loss", curves))
    return charts


def _series(
    history: Sequence[Progress], name: str, value_of: Callable[[Progress], float | None]
) -> list[Series]:
    """The values over the steps, a series per model that has any."""
    models = sorted({one.member for one in history})
    series = []
    for model in models:
        own = f"model {model + 1}" if len(models) > 1 else name
        of_model = [(one.step, value_of(one)) for one in history if one.member == model]
        points = [(step, value) for step, value in of_model if value is not None]
        if points:
            series.append(Series(own, *zip(*points, strict=True)))
    return series


def calibration_section(
    scores: Mapping[str, CalibrationScores], of_target: str = ""
) -> tuple[Table, list[Chart]]:
    """A table, and charts: a reliability diagram, and predicted variance against squared error.

    `scores` by name, e.g. "before" and "after" calibration, in the order to show; `of_target` is
    added to the titles.
    """
    variances = {name: one.spread for name, one in scores.items()}
    highest = max(float(bins.predicted_b.max()) for bins in variances.values())
    columns = (
        "distributions",
        "calibration error, most likely rating",
        "calibration error, all ratings",
        "squared error / predicted variance",
    )
    rows = [
        (
            name,
            f"{one.top_label_error:.4f}",
            f"{one.class_wise_error:.4f}",
            f"{one.spread.ratio:.3f}",
        )
        for name, one in scores.items()
    ]
    table = Table(f"Calibration{of_target}", columns, rows)
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
    return table, [reliability, variance]


def _with_ideal(bins: Mapping[str, Bins], highest: float) -> list[Series]:
    """A curve per name, and the diagonal up to `highest` on which a calibrated model lies."""
    return [
        *(Series(name, b.predicted_b.tolist(), b.observed_b.tolist()) for name, b in bins.items()),
        Series("as predicted", [0.0, highest], [0.0, highest]),
    ]
