"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from cfuica.evaluation.bootstrap import Interval
    from cfuica.runs.comparing import Comparison

# How floats are shown, by the column they are in.
_FORMATS = {"rating": "g", "change": "+.3f"}


def plain(value: object, form: str = ".3f") -> Text:
    """A value of somebody's data as it is: no markup, no emoji, nothing that moves the cursor.

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
    """Parts of a minibatch, then the whole beside the dense forms."""
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
