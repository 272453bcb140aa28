"""Presentation of `cfuica data show`: statistics in the terminal, as a chart, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.markup import escape
from rich.table import Table as ConsoleTable

from cfuica.data.columns import day_of
from cfuica.data.summary import FEW, TOP_SHARES, Summary
from cfuica.errors import SettingsError
from cfuica.io import write_text_atomically
from cfuica.reporting.charts import Chart, Series, bar_chart, line_chart, stacked
from cfuica.reporting.page import Table, write_report

PICTURES = (".svg", ".html")
_BAR = 30  # characters of the longest bar


def check_picture(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before the data is read."""
    if path.suffix.lower() not in PICTURES:
        raise SettingsError(
            f"--picture {path} ends in neither {' nor '.join(PICTURES)}; give one of these endings."
        )


def in_terminal(summary: Summary) -> Group:
    """Tables of figures and bars."""
    overview, *others = _tables(summary)
    shown = [_console_table(overview)]
    if summary.bars:
        shown.append(_histogram(summary))
    return Group(*shown, *map(_console_table, others), *(escape(note) for note in summary.notes))


def write_picture(summary: Summary, path: Path) -> None:
    """The ratings and the long tail as an SVG, or everything as a page."""
    check_picture(path)
    if path.suffix.lower() == ".svg":
        write_text_atomically(path, stacked(_charts(summary)))
        return
    write_report(
        path,
        title=Path(summary.source).name,
        intro=f"What is in {summary.source}.",
        tables=_tables(summary),
        charts=_charts(summary),
        notes=summary.notes,
    )


def _tables(summary: Summary) -> list[Table]:
    """The tables of both the terminal and the page."""
    both = (("users", summary.per_user), ("items", summary.per_item))
    quantiles = [(name, counts, counts.quantiles()) for name, counts in both]
    return [
        Table(summary.source, ("", "value"), _overview(summary)),
        Table(
            "Interactions of each",
            ("", *quantiles[0][2], f"fewer than {FEW}"),
            [
                (name, *(f"{value:,}" for value in values.values()), f"{counts.few:,}")
                for name, counts, values in quantiles
            ],
        ),
        Table(
            "Share of all interactions",
            ("", *(f"top {share:.0%}" for share in TOP_SHARES)),
            [
                (name, *(f"{counts.top_share(share):.1%}" for share in TOP_SHARES))
                for name, counts in both
            ],
        ),
    ]


def _overview(summary: Summary) -> list[tuple[str, str]]:
    items = f"{summary.per_item.size:,}"
    if summary.item_space > summary.per_item.size:
        items += f" (of {summary.item_space:,} listed)"
    rows = [
        ("interactions", f"{summary.interactions:,}"),
        ("users", f"{summary.per_user.size:,}"),
        ("items", items),
        ("density", f"{summary.density:.3%}"),
        ("without a rating", f"{summary.without_rating:,}"),
        ("repeated pairs dropped", f"{summary.repeats_dropped:,}"),
    ]
    if summary.span is None:
        return [*rows, ("times", "none")]
    first, last = map(day_of, summary.span)
    return [
        *rows,
        ("first to last day", f"{first} to {last}"),
        ("same user, same second", f"{summary.ties:.1%} of the interactions"),
    ]


def _console_table(table: Table) -> ConsoleTable:
    shown = ConsoleTable(title=escape(table.title), title_justify="left")
    for place, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if place else "left")
    for row in table.rows:
        shown.add_row(*map(escape, row))
    return shown


def _histogram(summary: Summary) -> ConsoleTable:
    table = ConsoleTable(title="Ratings", title_justify="left")
    table.add_column("rating", justify="right")
    table.add_column("")
    table.add_column("interactions", justify="right")
    table.add_column("share", justify="right")
    highest, rated = (f(bar.count for bar in summary.bars) for f in (max, sum))
    for bar in summary.bars:
        # A bar that is not zero has at least one character.
        length = max(round(_BAR * bar.count / highest), int(bar.count > 0))
        table.add_row(bar.label, "█" * length, f"{bar.count:,}", f"{bar.count / rated:.1%}")
    return table


def _charts(summary: Summary) -> Sequence[str]:
    charts = []
    if summary.bars:
        charts.append(
            bar_chart(
                [(bar.label, bar.count) for bar in summary.bars],
                title="Ratings",
                x_label="rating",
                y_label="interactions",
            )
        )
    curves = []
    for name, counts in (("items", summary.per_item), ("users", summary.per_user)):
        top, share = counts.long_tail()
        curves.append(Series(name, (100 * top).tolist(), (100 * share).tolist()))
    charts.append(
        line_chart(
            Chart(
                "The long tail",
                "% of the items, or users, beginning with those of most interactions",
                "% of all interactions",
                curves,
            )
        )
    )
    return charts
