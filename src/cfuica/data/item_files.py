"""Reader of item metadata: a file with a column of item ids and any other columns.

CSV (any delimiter of one character; plain, gzip or zstd) or Parquet. Columns of a CSV are numbers,
dates, true and false, or text; one in which `|` separates values is a column of lists.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl

from cfuica.data.columns import integers_where_all_are
from cfuica.data.item_metadata import canonical_items
from cfuica.data.layout import FIND_OUT, Layout, NoSuchColumn, ReadOptions, columns_of, listed
from cfuica.errors import DataError
from cfuica.io import open_content, read_parquet, shown

_CHUNK = 1 << 20
_IN_LISTS = "|"
_ONLY = ("item",)


def read_items(path: str | Path, options: ReadOptions = FIND_OUT) -> pl.DataFrame:
    """Item metadata: `item`, and the other columns of the file under their own names.

    The items are in the column that `options` name for them, where the file has it, else in one of
    the usual names.
    """
    path = Path(path)
    name = shown(path)
    if not path.is_file():
        raise DataError(
            f"{name} is not a file, but item metadata was expected; give a CSV or Parquet file."
        )
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    frame = _parquet(path, options) if is_parquet else _text(path, name, options)
    if frame.is_empty():
        raise DataError(f"{name} has no rows; give the metadata of at least one item.")
    try:
        return canonical_items(frame)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _asked(options: ReadOptions) -> list[ReadOptions]:
    """How to look for the item column, one way after another."""
    # A number is that of a column in the file of interactions.
    by_name = options.item is not None and not options.item.isdecimal()
    usual = ReadOptions(header=True)
    return [replace(usual, item=options.item), usual] if by_name else [usual]


def _named(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """The frame with its item column under that name, and first."""
    others = [name for name in frame.columns if name not in (column, "item")]
    return frame.select(pl.col(column).alias("item"), *others)


def _parquet(path: Path, options: ReadOptions) -> pl.DataFrame:
    try:
        frame = read_parquet(path)
    except ValueError as error:
        raise DataError(f"{shown(path)}: {error}; write or fetch it again.") from None
    for asked in _asked(options):
        with suppress(NoSuchColumn):
            at = columns_of(frame.columns, asked, shown(path), only=_ONLY)["item"]
            return _named(frame, frame.columns[at])
    raise _no_items(shown(path), frame.columns)


def _no_items(name: str, columns: list[str]) -> DataError:
    return DataError(
        f"{name} has no column of item ids among {listed(columns)}; name one 'item', or as the "
        f"items are named by --item-column."
    )


def _layout(text: str, name: str, options: ReadOptions) -> Layout:
    for asked in _asked(options):
        with suppress(NoSuchColumn):
            return Layout.of_text(text, name, asked, only=_ONLY)
    raise _no_items(name, text.lstrip().splitlines()[:1])


def _text(path: Path, name: str, options: ReadOptions) -> pl.DataFrame:
    with open_content(path, name) as stream:
        data = b"".join(iter(lambda: stream.read(_CHUNK), b""))
    if b"\0" in data[:_CHUNK]:
        raise DataError(f"{name} is not a text file in UTF-8 or latin-1; save it as CSV in UTF-8.")
    text = _decoded(data)
    layout = _layout(text, name, options)
    if len(layout.separator) != 1:
        raise DataError(
            f"{name}: {layout.separator!r} separates the fields, but one character was expected; "
            f"separate them by a comma, tab, semicolon or '|'."
        )
    names = list(layout.names)
    item = names[layout.columns["item"]]
    try:
        frame = pl.read_csv(
            text.encode(),
            separator=layout.separator,
            skip_lines=layout.skip_lines - 1,
            new_columns=names,
            schema_overrides={item: pl.String},
            infer_schema_length=None,
            try_parse_dates=True,
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(
            f"{name} cannot be read as a table of items ({reason}); give each line as many fields "
            f"as the header has, and quote a field that contains {layout.separator!r}."
        ) from None
    frame = _named(frame, item)
    lists = [
        pl.col(column.name).str.split(_IN_LISTS).alias(column.name)
        for column in frame
        if column.dtype == pl.String
        and column.name not in ("item", "title")
        and column.str.contains(_IN_LISTS, literal=True).any()
    ]
    ids = integers_where_all_are(frame["item"].str.strip_chars())
    return frame.with_columns(ids, *lists)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
