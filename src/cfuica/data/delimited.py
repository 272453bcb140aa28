"""Reader of delimited text (CSV, TSV, any separator; plain, gzip or zstd).

A text is read in blocks of whole records, so that no file has to fit into memory. polars reads the
columns of each block in their types. Where that fails, or a value is missing, the block is read as
text with the numbers of its lines, which name a bad value, or of which bad rows are left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from cfuica.data.columns import Fault, Rows
from cfuica.data.layout import Layout, ReadOptions, listed, short
from cfuica.errors import DataError
from cfuica.io import Content, open_content

_QUOTE, _LINE, _RETURN = (ord(char) for char in '"\n\r')


def whole_records(data: bytes, separator: str, quotes: bool, *, last: bool) -> int | None:
    """How many bytes of `data` are whole records; None if its quotes are not regular.

    Quotes are regular where each pair encloses one field, or adjoins another pair inside one
    (a doubled quote); with `quotes` false they are characters like any other. `data` are whole
    lines that start with a record, and end with one if they are the `last` of their file.
    """
    if not quotes or b'"' not in data:
        return len(data)
    inner = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(inner == _QUOTE)
    if last and at.size % 2:
        return None
    # A line end at either side: a field may start the data or end it.
    padded = np.full(inner.size + 2, _LINE, np.uint8)
    padded[1:-1] = inner
    around = [ord(separator), _LINE, _QUOTE]
    before_open = padded[at[0::2]]
    after_close = padded[at[1::2] + 2]
    if not (np.isin(before_open, around).all() and np.isin(after_close, [*around, _RETURN]).all()):
        return None
    if last:
        return len(data)
    ends = np.flatnonzero(inner == _LINE)
    outside = ends[np.searchsorted(at, ends) % 2 == 0]
    return int(outside[-1]) + 1 if outside.size else 0


def end_of_lines(data: bytes, n: int) -> int:
    """Where the first n lines of `data` end; it has as many line ends."""
    return int(np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE)[n - 1]) + 1 if n else 0


_START = 1 << 16
# Stands in for '::', because polars separates by one byte; it does not occur in text.
_UNIT = "\x1f"
_BOM = b"\xef\xbb\xbf"
_TYPES = {"rating": pl.Float64, "weight": pl.Float64, "timestamp": pl.Int64}


def read_delimited(path: Path, rows: Rows, only: tuple[str, ...] | None = None) -> None:
    """Read CSV, TSV, or fields separated by anything else; plain, gzip or zstd.

    Columns are found by the names in the header; without a header there must be 3 or 4 columns:
    user, item, rating, timestamp. The options say what cannot be found. Ids are integers where all
    of them are, and text otherwise. With `only` the rows are not interactions but pairs to
    predict, users, or an ad-hoc history: only these columns are read.
    """
    with open_content(path, rows.name) as stream:
        start = stream.read(_START)
    first = _first_lines(start, rows.name, rows.options)
    parse(path, Layout.of_text(first, rows.name, rows.options, only=only), rows)


def parse(content: Content, layout: Layout, rows: Rows) -> None:
    """Read a text that is laid out as `layout` says."""
    rows.labels = {
        role: f"{at + 1} ({short(layout.names[at])})" for role, at in layout.columns.items()
    }
    try:
        _Reader(layout, rows, rows.options.encoding).read(content)
    except _NotUtf8 as found:
        rows.clear()
        rows.notes = (f"{rows.name} is not UTF-8 ({found}): read as latin-1.",)
        _Reader(layout, rows, "latin-1").read(content)


class _NotUtf8(Exception):
    """The file is not UTF-8, and no encoding was given."""


class _Reader:
    """Reads one text; an `encoding` that was not given is UTF-8."""

    def __init__(self, layout: Layout, rows: Rows, encoding: str | None) -> None:
        self._layout, self._rows, self._given = layout, rows, encoding
        self._encoding = encoding or "utf-8"
        # Dates are text to polars; the first block that has any tells.
        self._has_dates = rows.options.time_format is not None

    def read(self, content: Content) -> None:
        skip, line, rest = self._layout.skip_lines, 1, b""
        with open_content(content, self._rows.name) as stream:
            for block, is_last in stream.blocks():
                rest += block
                if line <= skip:
                    before = min(skip - line + 1, rest.count(b"\n"))
                    line, rest = line + before, rest[end_of_lines(rest, before) :]
                # Without its line end, what remains before the first interaction is the header.
                if rest and line > skip:
                    used = self._add(rest, line, is_last)
                    line, rest = line + rest.count(b"\n", 0, used), rest[used:]
                self._rows.report(stream.done)

    def _add(self, data: bytes, line: int, last: bool) -> int:
        """Add the rows of whole lines, the first one numbered `line`; how many bytes were read.

        A quoted field that is still open at the end is left unread, unless it is the `last`.
        """
        if self._given is None and not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                line += data.count(b"\n", 0, error.start)
                raise _NotUtf8(f"byte 0x{data[error.start]:02x} in line {line}") from None
        used = whole_records(data, self._layout.separator, self._layout.quotes, last=last)
        if used and (text := self._as_polars_reads(data[:used])) is not None:
            for has_dates in [True] if self._has_dates else [False, True]:
                columns = self._typed(text, has_dates)
                if columns is not None and self._rows.add(columns):
                    self._has_dates = has_dates
                    return used
        return self._add_text(data, line, last)

    def _as_polars_reads(self, block: bytes) -> bytes | None:
        """The block in UTF-8 with a separator of one byte; None if that cannot be."""
        if b"\0" in block or (b"\r" in block and block.count(b"\r") != block.count(b"\r\n")):
            return None
        if block.startswith(_BOM):  # which polars would take off, though this is not the file's
            return None
        if not block.isascii():
            try:
                block = block.decode(self._encoding).encode()
            except UnicodeDecodeError:
                return None
        if self._layout.quotes:
            return block
        unit = _UNIT.encode()
        return None if unit in block else block.replace(self._layout.separator.encode(), unit)

    def _typed(self, text: bytes, has_dates: bool) -> dict[str, pl.Series] | None:
        """The columns of a block as polars reads them; None unless every value is there."""
        layout = self._layout
        types = {**_TYPES, "timestamp": pl.String} if has_dates else _TYPES
        # Names of our own: those of the file may repeat, or be empty.
        roles = {at: role for role, at in layout.columns.items()}
        names = [roles.get(at, f"unused {at}") for at in range(len(layout.names))]
        try:
            frame = pl.read_csv(
                text,
                has_header=False,
                separator=layout.separator if layout.quotes else _UNIT,
                quote_char='"' if layout.quotes else None,
                schema={name: types.get(name, pl.String) for name in names},
            )
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None
        # A blank line, or one that is too short, looks like missing values.
        if any(frame[role].null_count() for role in layout.columns if role != "removed"):
            return None
        return {role: frame[role].alias(layout.names[at]) for role, at in layout.columns.items()}

    def _add_text(self, data: bytes, line: int, last: bool) -> int:
        """The same as `_add`, with every field as text and the number of its line."""
        layout = self._layout
        text = data.decode(self._encoding, errors="surrogateescape")
        lines = text.removesuffix("\n").split("\n")
        is_binary, read = _BINARY.search(text) is not None, len(lines)
        values: list[list[str]] = []
        numbers: list[int] = []
        faults: dict[int, Fault] = {}
        for at, end, fields in _records(lines, layout):
            if isinstance(fields, csv.Error) and end == len(lines) and not last:
                read = at  # The lines that close a quoted field may still be to come.
                break
            if (fault := _fault(fields, layout, is_binary)) is not None:
                faults[len(values)], fields = fault, []
            assert isinstance(fields, list)
            values.append(fields)
            numbers.append(line + at)
        columns = {
            role: pl.Series(layout.names[at], [row[at] if at < len(row) else "" for row in values])
            for role, at in layout.columns.items()
        }
        if values:
            self._rows.add(columns, lambda row: f"{self._rows.name}, line {numbers[row]},", faults)
        return len(data) if read == len(lines) else end_of_lines(data, read)


def _records(lines: list[str], layout: Layout) -> Iterator[tuple[int, int, list[str] | csv.Error]]:
    """(its first line and the line behind it, from 0; fields) of each record that is not blank.

    An error stands for the fields where quotes are invalid; reading goes on with the next line.
    """
    if not layout.quotes:
        for at, line in enumerate(lines):
            if line.strip():
                yield at, at + 1, line.removesuffix("\r").split(layout.separator)
        return
    at = 0
    while at < len(lines):
        start = at
        feed = (line + "\n" for line in lines[start:])
        records = csv.reader(feed, delimiter=layout.separator, strict=True)
        try:
            for fields in records:
                end = start + records.line_num
                if len(fields) > 1 or (fields and fields[0].strip()):
                    yield at, end, fields
                at = end
        except csv.Error as error:
            yield at, start + records.line_num, error
            at += 1


# Not in any text: NUL, and bytes that are not UTF-8 (as "surrogateescape" decodes them).
_BINARY = re.compile("[\0\udc80-\udcff]")


def _fault(fields: list[str] | csv.Error, layout: Layout, is_binary: bool) -> Fault | None:
    """Why the fields of a record are no row, if they are none."""
    if isinstance(fields, csv.Error):
        return (
            "that cannot be split into fields",
            f"the line cannot be split into fields ({fields})",
            "close every quoted field, and double a quote that belongs to a value",
        )
    if is_binary and (binary := _BINARY.search("".join(fields))):
        if binary[0] == "\0":
            return (
                "with a zero byte",
                "a zero byte, so this is not a text file in UTF-8 or latin-1",
                "decompress it, or save it as CSV in UTF-8",
            )
        return (
            "that are not UTF-8",
            f"byte 0x{ord(binary[0]) - 0xDC00:02x} is not UTF-8",
            "save the file again as UTF-8, or give --encoding latin-1",
        )
    width = len(layout.names)
    if len(fields) > width:
        return (
            "with too many fields",
            f"{len(fields)} fields, the last one {short(fields[-1])}, but {width} were expected "
            f"({listed(layout.names)})",
            "quote a field that contains the separator",
        )
    # A line may end before the column `removed`, as polars has it.
    missing = [at for role, at in layout.columns.items() if role != "removed" and at >= len(fields)]
    if not missing:
        return None
    return (
        "with too few fields",
        f"column {missing[0] + 1} ({short(layout.names[missing[0]])}) is missing, because the line "
        f"has {len(fields)} field{'s' if len(fields) != 1 else ''}",
        f"give every line the {width} fields {listed(layout.names)}",
    )


def _first_lines(start: bytes, name: str, options: ReadOptions) -> str:
    """The beginning of a file as text; its last line may be cut."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(
            f"{name} is not a text file in UTF-8 or latin-1 but in UTF-16; save it again as UTF-8."
        )
    first = next((at for at, line in enumerate(start.split(b"\n")) if line.strip()), 0)
    if b"\0" in b"".join(start.split(b"\n")[: first + 1]):
        raise DataError(
            f"{name} is not a text file in UTF-8 or latin-1: line {first + 1} contains a zero "
            f"byte; decompress it, or save it as CSV in UTF-8."
        )
    if options.encoding is not None:
        return start.decode(options.encoding, errors="replace")
    try:
        return start[: start.rfind(b"\n") + 1 or None].decode()
    except UnicodeDecodeError:
        return start.decode("latin-1")
