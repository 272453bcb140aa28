"""Output of the commands: tables in the terminal, or CSV, JSON or Parquet to a file or a pipe.

`gives_a_table` gives a command the options --format, --out and --json. `print_result` prints what a
command with --json alone gives. Frames and rows become tables of `rich`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cfuica.cli.options import check_choice, in_place_of
from cfuica.errors import SettingsError
from cfuica.io import parquet_pieces, write_bytes_atomically

if TYPE_CHECKING:
    import polars as pl
_PANEL = "Output"
TABLE, CSV, JSON, JSONL, PARQUET = "table", "csv", "json", "jsonl", "parquet"
_OF_FILES = (CSV, JSON, JSONL, PARQUET)
LIST_SEPARATOR = "|"  # Joins the values of a list in CSV, which has none.

Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="table|csv|json|jsonl|parquet",
        help="Format of the output; default: by the ending of --out, else a table.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File to write (.csv, .json, .jsonl or .parquet) instead of standard output.",
        rich_help_panel=_PANEL,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=_PANEL)
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw",
        help="CSV: text that begins with = + - @ as it is, without the apostrophe that keeps a "
        "spreadsheet from computing it.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Output:
    """Format and destination of the output."""

    format: str = TABLE
    file: Path | None = None
    raw: bool = False  # CSV: cells as they are, also those that a spreadsheet would compute.

    def give(
        self,
        frame: pl.DataFrame,
        *,
        what: str,
        shown: Callable[[], RenderableType],
        as_json: Callable[[], Any] | None = None,
    ) -> None:
        """Print or write a frame; `shown` makes the table for the terminal.

        JSON is a list with one object per row, unless `as_json` returns something else. `what`
        names the rows in the message about a written file.
        """
        if self.format == TABLE:
            Console(emoji=False).print(shown())
            return
        if self.format == JSON and as_json is not None:
            content = (json.dumps(as_json(), allow_nan=False) + "\n").encode()
        else:
            content = b"".join(self._pieces([frame]))
        if self.file is None:
            _to_standard_output(content)
            return
        write_bytes_atomically(self.file, content)
        typer.echo(f"{frame.height:,} {what} written to {self.file}", err=True)

    @property
    def takes_parts(self) -> bool:
        """Whether `give_parts` can write it: a file, and neither a device nor a pipe."""
        return self.file is not None and (self.file.is_file() or not self.file.exists())

    def give_parts(self, parts: Iterable[pl.DataFrame], *, what: str) -> None:
        """Write frames of the same columns to one file, holding one of them at a time."""
        assert self.file is not None
        rows = 0

        def counted() -> Iterator[pl.DataFrame]:
            nonlocal rows
            for frame in parts:
                rows += frame.height
                yield frame

        write_bytes_atomically(self.file, self._pieces(counted()))
        typer.echo(f"{rows:,} {what} written to {self.file}", err=True)

    def _pieces(self, frames: Iterable[pl.DataFrame]) -> Iterator[bytes]:
        """The bytes of a file with the rows of all frames, of which there is at least one."""
        if self.format == PARQUET:
            yield from parquet_pieces(frames)
            return
        is_empty = True
        for place, frame in enumerate(frames):
            if self.format == CSV:
                yield csv_bytes(frame, raw=self.raw, header=place == 0)
            elif self.format == JSONL:  # one object per row, for programs
                yield finite(frame).write_ndjson().encode()
            else:
                rows = json.dumps(finite(frame).to_dicts(), allow_nan=False)[1:-1]
                before = "[" if place == 0 else ", " if rows and not is_empty else ""
                yield (before + rows).encode()
            is_empty = is_empty and not frame.height
        if self.format == JSON:
            yield b"]\n"


FOR_PEOPLE = Output()  # The default, for signatures.


def output_of(
    *, format_: Format = None, out: Out = None, json_: Json = False, raw: Raw = False
) -> Output:
    """The options as an Output; a file that cannot be written is refused before the work."""
    check_choice("--format", format_, TABLE, *_OF_FILES)
    if json_ and format_ not in (None, JSON):
        raise SettingsError(f"--json and --format {format_} contradict each other; give one.")
    chosen = JSON if json_ else format_
    if raw and (chosen or (out.suffix[1:].lower() if out else TABLE)) != CSV:
        raise SettingsError("--raw is for CSV; give --format csv or --out FILE.csv with it.")
    if out is None:
        if chosen == PARQUET and (_bytes_out() is None or sys.stdout.isatty()):
            raise SettingsError(
                "Parquet is not for a terminal: give --out FILE, or lead standard output to a file "
                "or another program."
            )
        return Output(chosen or TABLE, raw=raw)
    if chosen == TABLE:
        raise SettingsError(
            f"--format table is for people at a terminal; give csv, json, jsonl or parquet for "
            f"--out {out}."
        )
    check_writable(out)
    chosen = chosen or out.suffix.lower().removeprefix(".")
    if chosen not in _OF_FILES:
        raise SettingsError(
            f"--out {out} does not end in {', '.join(f'.{each}' for each in _OF_FILES[:-1])} or "
            f".{_OF_FILES[-1]}; give one of these endings, or say the format with --format."
        )
    return Output(chosen, out, raw)


# Give a command --format, --out and --json in place of its argument `output`.
gives_a_table = in_place_of("output", output_of)


def check_writable(out: Path) -> None:
    """Refuse a file that cannot be written, or that belongs to a model."""
    from cfuica.run_folder import owner_of

    if out.is_dir():
        reason, remedy = "it is a folder", "give the name of a file in it"
    elif not out.parent.is_dir():
        reason, remedy = f"there is no folder {out.parent}", "create it, or give another"
    elif not os.access(out if out.exists() and not out.is_file() else out.parent, os.W_OK):
        reason, remedy = "its folder may not be written to", "give another"
    elif owner := owner_of(out):
        reason, remedy = f"it is a place of {owner}", "give another"
    else:
        return
    raise SettingsError(f"--out {out} cannot be written: {reason}; {remedy}.")


def finite(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with null for infinite and nan floats, which JSON does not have."""
    import polars as pl

    floats = [pl.col(name) for name, kind in frame.schema.items() if kind.is_float()]
    return frame.with_columns(pl.when(each.is_finite()).then(each) for each in floats)


def marked(frame: pl.DataFrame, unknown: dict[str, set[str]]) -> list[dict[str, Any]]:
    """The rows for JSON; one of an id that the model does not know says so: unknown ["user"].

    `unknown` are the ids of each column, as text.
    """
    rows = finite(frame).to_dicts()
    for row in rows if any(unknown.values()) else ():
        if own := [role for role, ids in unknown.items() if str(row.get(role)) in ids]:
            row["unknown"] = own
    return rows


# What a spreadsheet takes for the beginning of a formula.
_FORMULA = r"^[=+\-@\t\r]"


def csv_bytes(frame: pl.DataFrame, *, raw: bool = False, header: bool = True) -> bytes:
    """The frame as CSV; unless `raw`, text that begins like a formula gets an apostrophe."""
    import polars as pl

    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    joined = (pl.col(name).cast(pl.List(pl.String)).list.join(LIST_SEPARATOR) for name in lists)
    frame = frame.with_columns(joined)
    if not raw:
        text = pl.col(pl.String)
        safe = pl.when(text.str.contains(_FORMULA)).then(pl.lit("'") + text).otherwise(text)
        frame = frame.with_columns(safe.name.keep())
    return frame.write_csv(include_header=header).encode()


def _to_standard_output(content: bytes) -> None:
    """As bytes where possible, because the encoding of the stream may lack characters of an id."""
    if (bytes_out := _bytes_out()) is None:
        sys.stdout.write(content.decode())
        return
    sys.stdout.flush()
    bytes_out.write(content)
    bytes_out.flush()


def _bytes_out() -> BinaryIO | None:
    """Standard output for bytes; a notebook has none."""
    return sys.stdout.buffer if isinstance(sys.stdout, TextIOWrapper) else None


@contextmanager
def progress_of(total: int, what: str) -> Iterator[Callable[[int, bool], None]]:
    """To be called with how many are done, and whether they were before: a bar on a terminal, and
    a line about what need not be done again."""
    from rich import progress

    console, before = Console(stderr=True), 0
    bar = progress.Progress(
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,} of {task.total:,} " + what),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", total=total)

    def show(done: int, stored: bool) -> None:
        nonlocal before
        if stored:
            before = done
        elif before:
            console.print(f"{before:,} of {total:,} {what} were done before", highlight=False)
            before = 0
        bar.update(task, completed=done)

    with bar:
        yield show


def say_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, a line each."""
    for note in notes:
        typer.echo(note, err=True)


JsonOnly = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def print_result(
    json_: bool, as_json: Callable[[], Any], shown: Callable[[], RenderableType]
) -> None:
    """Print a result as JSON, or as a table in the terminal."""
    if json_:
        typer.echo(json.dumps(as_json()))
        return
    Console(emoji=False).print(shown())


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


def table_of(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: Collection[int] = (0,)
) -> Table:
    """The rows; columns are aligned to the right, except those at the positions `left`."""
    table = Table()
    for place, name in enumerate(columns):
        table.add_column(plain(name), justify="left" if place in left else "right")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def plain_table(frame: pl.DataFrame) -> Table:
    """The frame as it is."""
    left = [at for at, kind in enumerate(frame.dtypes) if not kind.is_numeric()]
    forms = [_FORMATS.get(name, ".3f") for name in frame.columns]
    rows = ([*map(plain, row, forms)] for row in frame.iter_rows())
    return table_of(frame.columns, rows, left=left)


def titled(title: str, shown: pl.DataFrame | Table) -> Group:
    """A frame or table below its title, which may be wider than it."""
    heading = plain(title)
    heading.stylize("italic")
    return Group(heading, shown if isinstance(shown, Table) else plain_table(shown))


def ranked(top: pl.DataFrame, title: str, score: str = "score") -> Group:
    """Rank, item or user, title where there is one, score."""
    names = {"rank": "", "item": "item", "similar": "similar", "title": "title", "score": score}
    shown = {name: names[name] for name in names if name in top.columns}
    return titled(title, top.select(list(shown)).rename(shown))


def ranked_for_each(top: pl.DataFrame, key: str, title: str, score: str = "score") -> Group:
    """One table for each value of the column `key`, whose title begins with `title`."""
    if key not in top.columns:
        return Group(ranked(top, title, score)) if top.height else Group()
    groups = top.group_by(key, maintain_order=True)
    return Group(*(ranked(rows.drop(key), f"{title} {one}", score) for (one,), rows in groups))


def bar(share: float, length: int) -> str:
    """A bar of `length` characters where the share is 1."""
    return "█" * round(length * share)
