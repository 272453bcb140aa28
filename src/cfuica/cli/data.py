"""`cfuica data get` fetches public data sets, `show` prints statistics of any data, `synth` writes
synthetic data, and `cache` lists what was prepared of large data for later starts.

Progress is a bar in a terminal and plain lines in a pipe. Statistics are tables
in the terminal, a chart, or a page.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console, Group
from rich.markup import escape

from cfuica.cli.options import EXIT_CODES, check_choice, reads_files
from cfuica.cli.output import JsonOnly, bar, check_writable, print_result, table_of, titled
from cfuica.data.datasets import MOVIELENS, NETFLIX, RELEASES, FetchCallbacks
from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.errors import SettingsError
from cfuica.io import write_text_atomically
from cfuica.reporting.charts import Chart, Series, bar_chart, line_chart, stacked

if TYPE_CHECKING:
    from cfuica.data.summary import Summary
    from cfuica.reporting.report import Table


def get(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(RELEASES)}.", metavar="NAME")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Local zip or folder (Netflix: tar), instead of the network."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch again and replace the data set in the cache.")
    ] = False,
    mirror: Annotated[
        str,
        typer.Option(envvar="CFUICA_MIRROR", help="Base address of the archives."),
    ] = MOVIELENS,
) -> None:
    """Fetch MovieLens, or take Netflix, into the cache, verified, ready to be used by its name.

    Example:  cfuica data get ml-10m

    The cache is the user's, or the folder CFUICA_CACHE.
    """
    from cfuica.data.datasets import cache_folder, fetch, found
    from cfuica.io import expanded

    if name not in RELEASES:
        raise SettingsError(
            f"'{name}' cannot be fetched: the data sets are {', '.join(RELEASES)}; any other file "
            f"of ratings can be given to the commands by its path."
        )
    with progress_of(Console(stderr=True), "bytes") as callbacks:
        fetched = fetch(
            RELEASES[name],
            cache_folder(),
            source=None if source is None else expanded(source),
            force=force,
            mirror=mirror,
            callbacks=callbacks,
        )
    typer.echo(f"{name} {'lies' if fetched.new else 'was there already'} in {fetched.folder}.")
    typer.echo(fetched.verified)
    if (used := found()[name]) != fetched.folder:
        typer.echo(f"Note: the name {name} stands for {used}, which is looked for first.")
    if name == NETFLIX:
        typer.echo("Netflix may not be redistributed: keep to the terms that it came with.")
    else:
        typer.echo(
            "MovieLens may not be redistributed, nor used commercially without permission: the "
            "terms are in the README in that folder."
        )
    typer.echo(f"Next:  cfuica train {name} --out runs/{name}")


@reads_files
def show(
    data: Annotated[str, typer.Argument(help="Name, file or folder of the data.", metavar="DATA")],
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw ratings and long tail into this .svg, or a page (.html)."
        ),
    ] = None,
    json_: JsonOnly = False,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Show statistics of the data: counts, types, ratings, the long tail, times, repeats.

    Example:  cfuica data show ml-1m --picture ml-1m.html
    """
    from dataclasses import replace

    from cfuica.data.datasets import resolve
    from cfuica.data.summary import Summary

    if picture is not None:
        check_picture(picture)
    summary = Summary.of(resolve(data, replace(options, removals=True)))
    if picture is not None:
        write_picture(summary, picture)
    print_result(json_, summary.as_json, lambda: in_terminal(summary))


def synth(
    like: Annotated[
        str, typer.Option(metavar="netflix|ml-1m|shop", help="The data set whose counts it has.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE.parquet", help="The file to write.")],
    seed: Annotated[int, typer.Option(help="Another seed gives other data.", min=0)] = 0,
    users: Annotated[int | None, typer.Option(min=1, help="Another number of users.")] = None,
    items: Annotated[int | None, typer.Option(min=1, help="Another number of items.")] = None,
    interactions: Annotated[
        int | None, typer.Option(min=1, help="Another number of interactions.")
    ] = None,
    json_: JsonOnly = False,
) -> None:
    """Write synthetic ratings with the counts and long tails of a data set, and their floor.

    Example:  cfuica data synth --like ml-1m --out synthetic.parquet

    The floor is the RMSE of the best possible prediction on the test set that  cfuica train FILE
    makes of the file.
    """
    from dataclasses import asdict

    from cfuica.data.shapes import SHAPES, write_synthetic

    check_choice("--like", like, *SHAPES)
    check_writable(out)
    if out.suffix.lower() != ".parquet":
        raise SettingsError(f"--out {out} does not end in .parquet; give a name that does.")
    shape = SHAPES[like].resized(users, items, interactions)
    with progress_of(Console(stderr=True), "rows") as callbacks:
        made = write_synthetic(out, shape, seed=seed, progress=callbacks.progress)
    rated = sum(made.stars)
    rows = [
        ("interactions", f"{made.interactions:,}"),
        ("users", f"{made.users:,}"),
        ("items", f"{made.items:,}"),
        ("Gini coefficient of users", f"{made.gini_users:.3f} (stated: {shape.gini_users:g})"),
        ("Gini coefficient of items", f"{made.gini_items:.3f} (stated: {shape.gini_items:g})"),
        ("1 to 5 stars", ", ".join(f"{n / rated:.1%}" for n in made.stars)),
        ("floor (RMSE), test set", f"{made.floor:.4f}"),
        ("floor (RMSE), all rows", f"{made.floor_of_all:.4f}"),
    ]
    print_result(json_, lambda: asdict(made), lambda: titled(str(out), table_of(("", ""), rows)))


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of it.")] = False,
    json_: JsonOnly = False,
) -> None:
    """List, or remove, the data that was prepared for later starts of a training.

    Example:  cfuica data cache --clear

    Data of 5 million interactions or more is read, split and encoded once, and
    kept in the cache (CFUICA_CACHE) until its files change or others need the room.
    """
    from cfuica.runs.prepared import PreparedCache

    prepared = PreparedCache()
    found = [
        {
            "folder": str(folder),
            "data": entry["tables"]["whole"]["source"],
            "split": entry["split"]["kind"],
            "interactions": entry["interactions"],
            "bytes": size,
        }
        for folder, entry, size in prepared.entries()
    ]
    if clear:
        prepared.clear()
    rows = [
        (e["data"], e["split"], f"{e['interactions']:,}", f"{e['bytes'] / 1e9:.2f}") for e in found
    ]
    title = f"Prepared data in {prepared.folder}{', removed' if clear else ''}"
    columns = ("data", "split", "interactions", "GB")
    print_result(json_, lambda: found, lambda: titled(title, table_of(columns, rows, left=(0, 1))))


app = typer.Typer(
    help="Fetch data sets, look at data, and make synthetic data.",
    epilog="Example:  cfuica data show ml-1m",
    no_args_is_help=True,
)
app.command("get", epilog=EXIT_CODES)(get)
app.command("show", epilog=EXIT_CODES)(show)
app.command("synth", epilog=EXIT_CODES)(synth)
app.command("cache", epilog=EXIT_CODES)(cache)


SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress_of(console: Console, unit: Literal["bytes", "rows"]) -> Iterator[FetchCallbacks]:
    """Callbacks that show messages and progress on the console, in millions.

    A pipe gets at most one line in five seconds, and one at the end.
    """
    from rich import progress

    last = time.monotonic()

    def message(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    def line(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last >= SECONDS_BETWEEN_LINES:
            last = now
            of_total = "" if total is None else f" of {total / 1e6:,.1f}"
            name = "MB" if unit == "bytes" else "million rows"
            console.print(f"{done / 1e6:,.1f}{of_total} {name}", highlight=False)

    if not console.is_terminal:
        yield FetchCallbacks(message, line)
        return
    counted: tuple[progress.ProgressColumn, ...] = (
        (progress.DownloadColumn(), progress.TransferSpeedColumn())
        if unit == "bytes"
        else (progress.TextColumn("{task.completed:,} rows"),)
    )
    columns = (progress.BarColumn(), *counted, progress.TimeRemainingColumn())
    shown = progress.Progress(*columns, console=console)
    task = shown.add_task("", total=None, visible=False)
    with shown:
        yield FetchCallbacks(
            message,
            lambda done, total: shown.update(task, completed=done, total=total, visible=True),
        )


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
    tables = [titled(each.title, table_of(each.columns, each.rows)) for each in _tables(summary)]
    if summary.bars:
        tables.insert(1, _histogram(summary))
    return Group(*tables, *(escape(note) for note in summary.notes))


def write_picture(summary: Summary, path: Path) -> None:
    """The ratings and the long tail as an SVG, or everything as a page."""
    check_picture(path)
    if path.suffix.lower() == ".svg":
        write_text_atomically(path, stacked(_charts(summary)))
        return
    from cfuica.reporting.report import write_report

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
    from cfuica.data.summary import FEW, TOP_SHARES
    from cfuica.reporting.report import Table

    both = (("users", summary.per_user), ("items", summary.per_item))
    types = summary.events.by_type
    by_type = [(name, f"{n:,}", f"{n / summary.events.rows:.1%}") for name, n in types.items()]
    quantiles = [(name, counts, counts.quantiles()) for name, counts in both]
    return [
        Table(summary.source, ("", "value"), _overview(summary)),
        *([Table("Rows by type", ("type", "rows", "share"), by_type)] if types else []),
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
    from cfuica.data.columns import day_of
    from cfuica.data.time_columns import LEAST_SECONDS

    items = f"{summary.per_item.size:,}"
    if summary.item_space > summary.per_item.size:
        items += f" (of {summary.item_space:,} listed)"
    events = summary.events
    rows = [
        ("rows read", f"{events.rows:,}"),
        ("interactions", f"{summary.interactions:,}"),
        ("users", f"{summary.per_user.size:,}"),
        ("items", items),
        ("density", f"{summary.density:.3%}"),
        ("without a rating", f"{summary.without_rating:,}"),
        ("repeated pairs dropped", f"{summary.repeats_dropped:,}"),
    ]
    if events.removed:
        rows.append(("rows that remove an interaction", f"{events.removed:,}"))
    if events.weight is not None:
        rows.append(("sum of the weights", f"{events.weight:,.10g}"))
    if summary.span is None:
        return [*rows, ("times", "none")]
    first, last = map(day_of, summary.span)
    days = ("first to last day", f"{first} to {last}")
    if max(map(abs, summary.span)) < LEAST_SECONDS:
        days = ("times", f"an order, from {summary.span[0]:,} to {summary.span[1]:,}")
    return [
        *rows,
        days,
        ("same user, same second", f"{summary.ties:.1%} of the interactions"),
    ]


def _histogram(summary: Summary) -> Group:
    highest, rated = (f(each.count for each in summary.bars) for f in (max, sum))
    rows = [
        (
            each.label,
            # A bar that is not zero has at least one character.
            bar(each.count / highest, _BAR) or "█" * (each.count > 0),
            f"{each.count:,}",
            f"{each.count / rated:.1%}",
        )
        for each in summary.bars
    ]
    return titled("Ratings", table_of(("rating", "", "interactions", "share"), rows, left=(1,)))


def _charts(summary: Summary) -> list[str]:
    charts = []
    if summary.bars:
        counts = [(each.label, each.count) for each in summary.bars]
        charts.append(bar_chart(counts, title="Ratings", x_label="rating", y_label="interactions"))
    curves = []
    for name, per_one in (("items", summary.per_item), ("users", summary.per_user)):
        top, share = per_one.long_tail()
        curves.append(Series(name, (100 * top).tolist(), (100 * share).tolist()))
    x_label = "% of the items, or users, beginning with those of most interactions"
    tail = Chart("The long tail", x_label, "% of all interactions", curves)
    return [*charts, line_chart(tail)]
