"""Output for the terminal: ranked lists, metrics, comparisons, explanations, diagnoses, downloads.

Frames become tables of `rich`. The progress of a download is a bar in a terminal and plain lines in
a pipe.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from cfuica.data.datasets import FetchCallbacks

if TYPE_CHECKING:
    from cfuica.doctor import Diagnosis
    from cfuica.evaluation.compare import Comparison
    from cfuica.metrics.bootstrap import Interval
# How floats are shown, by the column they are in.
_FORMATS = {"rating": "g", "change": "+.3f"}


def plain(value: object, form: str = ".3f") -> Text:
    """A value of the data as plain text: no markup, no emoji, no control characters.

    Floats are shown in the given form.
    """
    if value is None:
        return Text()
    if isinstance(value, float):
        return Text(format(value, form))
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return Text(shown)


def plain_table(frame: pl.DataFrame) -> Table:
    """The frame as it is."""
    table = Table()
    for name, kind in frame.schema.items():
        table.add_column(plain(name), justify="right" if kind.is_numeric() else "left")
    forms = [_FORMATS.get(name, ".3f") for name in frame.columns]
    for row in frame.iter_rows():
        table.add_row(*map(plain, row, forms))
    return table


def titled(title: str, frame: pl.DataFrame) -> Group:
    """The frame below a title."""
    return _headed(title, plain_table(frame))


def ranked(top: pl.DataFrame, title: str, score: str = "score") -> Group:
    """Rank, item or user, title where there is one, score."""
    names = {"rank": "", "item": "item", "similar": "similar", "title": "title", "score": score}
    columns = [pl.col(name).alias(shown) for name, shown in names.items() if name in top.columns]
    return titled(title, top.select(columns))


def ranked_for_each(top: pl.DataFrame, key: str, title: str, score: str = "score") -> Group:
    """One table for each value of the column `key`, whose title begins with `title`."""
    if key not in top.columns:
        return Group(ranked(top, title, score)) if top.height else Group()
    groups = top.group_by(key, maintain_order=True)
    return Group(*(ranked(rows.drop(key), f"{title} {one}", score) for (one,), rows in groups))


def measured(title: str, intervals: Mapping[str, Interval]) -> Group:
    """Metrics with their 95% intervals."""
    table = Table()
    table.add_column("metric")
    for name in ("value", "low", "high"):
        table.add_column(name, justify="right")
    for name, each in intervals.items():
        table.add_row(name, *map(_metric, (each.value, each.low, each.high)))
    return _headed(title, table)


def compared(title: str, comparison: Comparison) -> Group:
    """Metrics of two runs, and their difference with its 95% interval."""
    table = Table()
    table.add_column("metric")
    for name in (*comparison.runs, "difference", "low", "high", "other side of 0"):
        table.add_column(plain(name), justify="right")
    for name, each in comparison.metrics.items():
        gap = each.difference
        share = "" if gap.other_side is None else f"{gap.other_side:.1%}"
        signed = (_metric(value, "+.4f") for value in (gap.value, gap.low, gap.high))
        table.add_row(name, _metric(each.first), _metric(each.second), *signed, share)
    return _headed(title, table)


def _headed(title: str, table: Table) -> Group:
    """The table below a title, which may be wider than it."""
    heading = plain(title)
    heading.stylize("italic")
    return Group(heading, table)


def _metric(value: float | None, form: str = ".4f") -> str:
    return "" if value is None else format(value, form)


def step_bench(result: dict[str, Any]) -> Table:
    """The steps of a minibatch, then the whole beside the dense implementations."""
    table = Table(title="One minibatch, everything included", title_justify="left")
    table.add_column("part")
    table.add_column("ms", justify="right")
    table.add_column("share of memory bandwidth", justify="right")
    for part, seconds in result["parts"].items():
        share = result["bandwidth_share"].get(part)
        table.add_row(part, f"{seconds * 1e3:.1f}", "" if share is None else f"{share:.0%}")
    table.add_section()
    table.add_row("the whole minibatch (median)", f"{result['median_s'] * 1e3:.1f}", "")
    for name, key, ratio in (
        ("dense, as the authors wrote it", "dense_median_s", "speedup"),
        ("dense, at its best", "dense_best_median_s", "speedup_best"),
    ):
        table.add_row(name, f"{result[key] * 1e3:.1f}", f"ours is {result[ratio]:.1f} x faster")
    return table


_BAR = 20  # characters of a probability of 1


def explanation_in_terminal(explanation: Any, n: int) -> Group:
    """The prediction, the n most influential interactions, and the influence of each side.

    An explanation of a ranking score has no distribution and no raters by rating.
    """
    history = explanation.history
    shown: list[RenderableType] = [_headline(explanation)]
    if hasattr(explanation, "distribution"):
        shown.append(_distribution(explanation.distribution))
    if history.height:
        of_all = f"{n:,} of {history.height:,}" if n < history.height else f"{history.height:,}"
        shown.append(_changes(history.head(n), f"History: the largest changes ({of_all})"))
    else:
        shown.append(Text("There is no history."))
    withheld = pl.col("interactions").is_null()
    parts = explanation.contributions.filter(~withheld)
    if parts.height:
        shown.append(_changes(parts, "Without each contribution"))
    hidden = explanation.contributions.filter(withheld)["contribution"]
    shown += [Text(f"{part} is withheld: {explanation.too_few}.") for part in hidden]
    if hasattr(explanation, "raters") and explanation.raters.height:
        shown.append(_changes(explanation.raters, "Others on this item, by their rating"))
    return Group(*shown)


def _headline(explanation: Any) -> Text:
    item = f"item {explanation.item}"
    if explanation.title:
        item += f" ({explanation.title})"
    target = "this history" if explanation.user is None else f"user {explanation.user}"
    is_rating = hasattr(explanation, "expected")
    value = explanation.expected if is_rating else explanation.score
    return Text.assemble(
        "Expected rating " if is_rating else "Score ",
        (f"{value:.2f}", "bold"),
        " of ",
        plain(item),
        " for ",
        plain(target),
        ".",
    )


def _distribution(distribution: pl.DataFrame) -> Table:
    table = Table(title="Predicted distribution", title_justify="left")
    table.add_column("rating", justify="right")
    table.add_column("")
    table.add_column("probability", justify="right")
    for rating, probability in distribution.select("rating", "probability").iter_rows():
        table.add_row(plain(rating, "g"), "█" * round(_BAR * probability), f"{probability:.1%}")
    return table


def _changes(frame: pl.DataFrame, title: str) -> Group:
    """A table without the titles if all are null."""
    if "title" in frame.columns and frame["title"].null_count() == frame.height:
        frame = frame.drop("title")
    return titled(title, frame)


def diagnosis_in_terminal(diagnosis: Diagnosis) -> Group:
    """Facts by topic, checks, and advice where something is wrong."""
    facts = Table(show_header=False)
    for topic, values in diagnosis.facts.items():
        facts.add_section()
        for place, (name, value) in enumerate(values.items()):
            facts.add_row(
                "" if place else topic.replace("_", " "), escape(name), escape(_shown(value))
            )
    checks = Table(title="Checks", title_justify="left")
    for column in ("", "check", "found"):
        checks.add_column(column, overflow="fold")
    checks.add_column("s", justify="right")
    for check in diagnosis.checks:
        seconds = "" if check.seconds is None else f"{check.seconds:.2f}"
        verdict = "[green]ok[/green]" if check.ok else "[bold red]WRONG[/bold red]"
        checks.add_row(verdict, escape(check.name), escape(check.found), seconds)
    wrong = [check for check in diagnosis.checks if not check.ok]
    # Several checks may have the same advice.
    advice = dict.fromkeys(check.advice for check in wrong)
    last: list[RenderableType] = [escape(f"To do: {sentence}") for sentence in advice]
    return Group(facts, checks, *(last or ["All is well."]))


def _shown(value: Any) -> str:
    if value is None:
        return "not there"
    return ", ".join(value) if isinstance(value, list) else str(value)


SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def download_progress(console: Console) -> Iterator[FetchCallbacks]:
    """Callbacks that show messages and progress on the console."""

    def message(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    if not console.is_terminal:
        yield FetchCallbacks(message, _Lines(console).progress)
        return
    bar = Progress(
        BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=console
    )
    task = bar.add_task("", total=None, visible=False)
    with bar:
        yield FetchCallbacks(
            message, lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        )


class _Lines:
    """At most one line in five seconds, and one at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = time.monotonic()

    def progress(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if done != total and now - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = now
        of_total = "" if total is None else f" of {total / 1e6:,.1f}"
        self._console.print(f"{done / 1e6:,.1f}{of_total} MB", highlight=False)
