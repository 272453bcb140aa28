"""The tables of accuracy: the paper's figure, ours, and paired differences with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import polars as pl

from cfuica.metrics.intervals import Difference
from cfuica.reporting.charts import Chart, Series, scatter_chart
from cfuica.reporting.report import Table
from cfuica.reproduction.cells import CellFolder
from cfuica.reproduction.paired import Paired
from cfuica.reproduction.sections import (
    DASH,
    Row,
    Section,
    figure,
    folds_and_seeds,
    mean_resources,
)


@dataclass(frozen=True)
class Metric:
    """A metric, as `cfuica evaluate` names it and as tables do."""

    name: str
    label: str
    lower_is_better: bool = False

    def of(self, answer: dict[str, Any]) -> float:
        """Its value in an answer of `cfuica evaluate`."""
        value = answer[self.name]
        return float(value["value"] if isinstance(value, dict) else value)

    def is_better(self, gap: Difference | None) -> bool:
        """Whether first less second is in favour of the first."""
        return gap is not None and (gap.value < 0 if self.lower_is_better else gap.value > 0)


@dataclass(frozen=True)
class _Line:
    """A row with its records, its mean figures and those of the paper."""

    row: Row
    records: list[dict[str, Any]]
    values: list[list[float]]  # of each metric, those of the records
    published: tuple[float, ...] | None

    @property
    def means(self) -> list[float]:
        return [fmean(each) for each in self.values]


def accuracy(
    folder: CellFolder,
    rows: Sequence[Row],
    *,
    title: str,
    key: str,
    metrics: Sequence[Metric],
    question: str,
    references: Sequence[str],
    floor: str,
    comparable: bool,
) -> Section:
    """A table of all rows, one of paired differences, and a dot plot of the last metric.

    `key` finds the figures that were published for this table, `question` the answers of the cells.
    Every other row is compared with the `references`; a row ahead of the first of them that is
    finished is named first, and so are rows that are behind the `floor`. Only where figures are
    `comparable` with the paper's, because they are of its data, is there a difference.
    """
    lines = []
    for row in rows:
        records = [each for each in row.finished(folder).values() if question in each["answers"]]
        values = [[metric.of(each["answers"][question]) for each in records] for metric in metrics]
        lines.append(_Line(row, records, values, row.published.get(key)))
    done = [line for line in lines if line.records]
    columns = ["system"]
    for metric in metrics:
        columns += [f"{metric.label}, the paper", metric.label, "difference"]
    columns += ["spread", "training", "CPU time", "peak memory", "folds", "seeds"]
    shown = [_shown(line, folder, comparable) for line in lines]
    intro = "Spread: standard deviation over folds and seeds, of the first metric."
    if len({tuple(folds_and_seeds(line.records)) for line in done}) > 1:
        intro += (
            " Rows are of different folds or seeds, as their last columns say: compare them by the "
            "paired differences."
        )
    if not done:
        return Section([Table(title, columns, shown, intro)])
    frames = {
        (line.row.name, (cell.fold, cell.seed)): pl.read_parquet(folder.users(cell, question))
        for line in done
        for cell in line.row.cells
        if folder.finished(cell) and question in cell.questions
    }
    paired = Paired(frames, [metric.name for metric in metrics])
    systems = [line.row for line in done]
    compared = [row for name in references for row in systems if row.name == name]
    verdicts = list(_verdicts(compared[:1], systems, metrics, paired, floor))
    tables = [Table(title, columns, shown, " ".join([*verdicts, intro]))]
    if compared:
        tables.append(_differences(title, compared, systems, metrics, paired))
    of_paper = [line.published[-1] if line.published else float("nan") for line in done]
    places = range(len(done))
    series = [Series("ours", [line.means[-1] for line in done], places)]
    if comparable:
        series.append(Series("the paper", of_paper, places))
    chart = Chart(title, metrics[-1].label, "", series)
    return Section(tables, {title: scatter_chart(chart, rows=[row.title for row in systems])})


def _shown(line: _Line, folder: CellFolder, comparable: bool) -> list[str]:
    """A row of the first table."""
    row, records = line.row, line.records
    cells = [row.title if row.origin == "paper" else f"{row.title} ({row.origin})"]
    published = line.published or [None] * len(line.values)
    if not records:
        for of_paper in published:
            cells += [figure(of_paper, ".3f"), row.missing(folder), DASH]
        return [*cells, *[DASH] * 6]
    for of_paper, mean in zip(published, line.means, strict=True):
        gap = f"{mean - of_paper:+.4f}" if of_paper is not None and comparable else DASH
        cells += [figure(of_paper, ".3f"), figure(mean), gap]
    cells.append(figure(stdev(line.values[0])) if len(records) > 1 else DASH)
    return [*cells, *mean_resources(records), *folds_and_seeds(records)]


def _verdicts(
    reference: Sequence[Row],
    rows: Sequence[Row],
    metrics: Sequence[Metric],
    paired: Paired,
    floor: str,
) -> Iterator[str]:
    """Who is ahead of the reference, if there is one, and who is behind the floor."""
    for ours in reference:
        others = [row for row in rows if row is not ours]
        gaps = {
            (row.title, metric): paired.difference(metric.name, row.name, ours.name)
            for row in others
            for metric in metrics
        }
        marks = {row.title: "" if row.origin == "paper" else f" ({row.origin})" for row in others}
        ahead = [
            f"{title}{marks[title]} by {metric.label} {_interval(gap)}"
            + ", which may be noise" * _may_be_noise(gap)
            for (title, metric), gap in gaps.items()
            if metric.is_better(gap)
        ]
        compared = dict.fromkeys(title for (title, _), gap in gaps.items() if gap is not None)
        if ahead:
            yield f"Ahead of {ours.title}: {'; '.join(ahead)}."
        elif compared:
            yield f"No row is ahead of {ours.title}."
        if apart := [row.title for row in others if row.title not in compared]:
            yield f"Not compared, as no fold and seed is common: {', '.join(apart)}."
    last = metrics[-1]
    behind = [
        row.title
        for row in rows
        if row.name != floor and last.is_better(paired.difference(last.name, floor, row.name))
    ]
    if behind:
        title = next(row.title for row in rows if row.name == floor)
        yield f"Behind {title}: {', '.join(behind)}."


def _differences(
    title: str,
    compared: Sequence[Row],
    rows: Sequence[Row],
    metrics: Sequence[Metric],
    paired: Paired,
) -> Table:
    columns = ["less", *(f"{row.title}, {metric.label}" for row in compared for metric in metrics)]
    lines = []
    for row in rows:
        gaps = [
            None if other is row else paired.difference(metric.name, other.name, row.name)
            for other in compared
            for metric in metrics
        ]
        lines.append([row.title, *map(_interval, gaps)])
    intro = (
        "The column's system less that of the row, with 95% intervals over users, the same users "
        "for both, over the folds and seeds that both have."
    )
    return Table(f"{title}: paired differences", columns, lines, intro)


def _may_be_noise(gap: Difference | None) -> bool:
    """Whether 0 is inside the interval."""
    return gap is not None and (gap.low or 0.0) <= 0.0 <= (gap.high or 0.0)


def _interval(gap: Difference | None) -> str:
    if gap is None:
        return DASH
    return f"{gap.value:+.4f} ({figure(gap.low, '+.4f')} to {figure(gap.high, '+.4f')})"
