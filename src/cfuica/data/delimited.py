"""Reader of delimited text (CSV, TSV, any separator; plain, gzip or zstd) into `Interactions`.

A text is read in blocks of whole records, so that no file has to fit into memory. polars parses
each block as columns. Only what it cannot parse, or has no line numbers to report on, is read again
line by line (`read_lines`), which is slow but names the line of a bad value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from cfuica.data.columns import truth_of
from cfuica.data.delimited_lines import read_lines
from cfuica.data.layout import FIND_OUT, PAIR, Faults, Layout, ReadOptions
from cfuica.data.memory import Memory
from cfuica.data.table import Interactions
from cfuica.data.time_columns import all_are_times, in_seconds
from cfuica.errors import DataError, NoRows
from cfuica.io import Content, Stream, open_content, shown

_QUOTE, _LINE, _RETURN = (ord(char) for char in '"\n\r')


def whole_records(data: bytes, separator: str, quotes: bool, *, last: bool) -> int | None:
    """How many bytes of `data` are whole records; None if its quotes are not regular.

    Quotes are regular where each pair encloses one field, or adjoins another pair inside one
    (a doubled quote); with `quotes` false they are characters like any other. `data` starts with
    a record, and ends with one if it is the `last` of its file.
    """
    if not quotes or b'"' not in data:
        return len(data) if last else data.rfind(b"\n") + 1
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
# What is unusual costs no more than its block; much smaller ones would cost polars its speed.
_BLOCK = 1 << 21
# A text without a line end is none; it must not fill the memory before we say so.
_LONGEST = 1 << 24
# Stands in for '::', because polars separates by one byte; it does not occur in text.
_UNIT = "\x1f"
_BOM = b"\xef\xbb\xbf"
_TYPES = {
    "user": pl.String,
    "item": pl.String,
    "rating": pl.Float64,
    "timestamp": pl.String,  # until the whole column is there
    "type": pl.String,
    "weight": pl.Float64,
    "removed": pl.Boolean,
}


def read_delimited(
    path: str | Path, options: ReadOptions = FIND_OUT, *, only: tuple[str, ...] | None = None
) -> Interactions:
    """Read CSV, TSV, or fields separated by anything else; plain, gzip or zstd.

    Columns are found by the names in the header; without a header there must be 3 or 4 columns:
    user, item, rating, timestamp. `options` says what cannot be found. Ids are integers where all
    of them are, and text otherwise. With `only` the rows are not interactions but pairs to
    predict, users, or an ad-hoc history: only these columns are read, and every row stays.
    """
    path = Path(path)
    name = shown(path)
    with open_content(path, name) as stream:
        start = stream.read(_START)
    first = _first_lines(start, name, options)
    layout = Layout.of_text(first, name, options, only=only)
    frame, notes = parse(path, layout, name, options)
    return Interactions.of_rows(
        frame, options=options, repeats=only is not None, source=name, source_notes=notes
    )


def parse(
    content: Content, layout: Layout, name: str, options: ReadOptions = FIND_OUT
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """(canonical columns, notes) of a text that is laid out as `layout` says."""
    notes: tuple[str, ...] = ()
    faults = Faults(name, skip=options.bad_rows == "skip")
    guessed = options.encoding is None
    try:
        encoding, memory = options.encoding or "utf-8", Memory.of(name, options)
        frame = _Reader(layout, faults, memory, encoding, guessed=guessed).frame(content)
    except _NotUtf8 as found:
        notes = (f"{name} is not UTF-8 ({found}): read as latin-1.",)
        faults = Faults(name, skip=faults.skip)
        memory = Memory.of(name, options)
        frame = _Reader(layout, faults, memory, "latin-1", guessed=False).frame(content)
    notes += faults.notes(frame.height)
    if frame.height == 0:
        raise NoRows(f"{name} has a header but no interactions; at least one line was expected.")
    if "timestamp" not in frame.columns:
        return frame, notes
    column = frame["timestamp"].alias(layout.names[layout.columns["timestamp"]])
    try:
        times, time_notes = in_seconds(column, options)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    return frame.with_columns(times.alias("timestamp")), notes + time_notes


class _NotUtf8(Exception):
    """The file is not UTF-8, and no encoding was given."""


class _Reader:
    """Reads one text in one encoding, which was given or `guessed`."""

    def __init__(
        self, layout: Layout, faults: Faults, memory: Memory, encoding: str, *, guessed: bool
    ) -> None:
        self._layout, self._faults, self._memory = layout, faults, memory
        self._encoding, self._guessed = encoding, guessed
        # Dates are text to polars; the first block that has any tells.
        self._has_dates = layout.time_format is not None

    def frame(self, content: Content) -> pl.DataFrame:
        """The canonical columns."""
        blocks = []
        with open_content(content, self._faults.name) as stream:
            for block in self._blocks(stream):
                self._memory.take(int(block.estimated_size()))
                if block.height:
                    blocks.append(block)
        # Ids and times are text if they are in any block. The cast back gives the ids that were
        # read, because only such ids became integers.
        text = sorted({role for block in blocks for role in _texts(block)})
        texts = [block.with_columns(pl.col(text).cast(pl.String)) for block in blocks]
        return pl.concat(texts) if texts else pl.DataFrame()

    def _blocks(self, stream: Stream) -> Iterator[pl.DataFrame]:
        skip, line, last = self._layout.skip_lines, 1, False
        rest = stream.read(_BLOCK).removeprefix(_BOM)
        while not last:
            more = stream.read(_BLOCK)
            last = not more
            rest += more
            if line <= skip:
                before = min(skip - line + 1, rest.count(b"\n"))
                line, rest = line + before, rest[end_of_lines(rest, before) :]
            # Without its line end, what remains before the first interaction is the header alone.
            whole = rest if last else rest[: rest.rfind(b"\n") + 1]
            if whole and line > skip:
                frame, used = self._rows(whole, line, last)
                yield frame
                line, rest = line + rest.count(b"\n", 0, used), rest[used:]
            elif len(rest) > _LONGEST:
                raise DataError(
                    f"{self._faults.name}, line {line}: more than {_LONGEST:,} bytes without a "
                    f"line end, but one interaction per line was expected; give a text file."
                )

    def _rows(self, data: bytes, line: int, last: bool) -> tuple[pl.DataFrame, int]:
        """(rows, how many bytes were read) of whole lines, the first one numbered `line`.

        Data that cannot be read as columns is read line by line. A quoted field that is still open
        at the end is left unread, unless it is the `last`.
        """
        if self._guessed and not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                line += data.count(b"\n", 0, error.start)
                raise _NotUtf8(f"byte 0x{data[error.start]:02x} in line {line}") from None
        used = whole_records(data, self._layout.separator, self._layout.quotes, last=last)
        if used and (frame := self._columns(data[:used])) is not None:
            return frame, used
        return self._lines(data, line, last)

    def _lines(self, data: bytes, line: int, last: bool) -> tuple[pl.DataFrame, int]:
        """(rows, how many bytes were read), line by line."""
        text = data.decode(self._encoding, errors="surrogateescape")
        values, n_lines = read_lines(text, self._layout, self._faults, first_line=line, last=last)
        rows = pl.DataFrame(values, schema={role: _TYPES[role] for role in values})
        rows = rows.fill_nan(None)  # a rating that may be empty, and is
        complete = n_lines == text.removesuffix("\n").count("\n") + 1
        return _canonical(rows), len(data) if complete else end_of_lines(data, n_lines)

    def _columns(self, block: bytes) -> pl.DataFrame | None:
        """The rows of a block, read fast; None unless every value is there and usable."""
        text = self._as_polars_reads(block)
        if text is None:
            return None
        for has_dates in [True] if self._has_dates else [False, True]:
            if (frame := self._parsed(text, has_dates)) is not None:
                self._has_dates = has_dates
                return frame
        return None

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

    def _parsed(self, text: bytes, has_dates: bool) -> pl.DataFrame | None:
        layout = self._layout
        types = {**_TYPES, "timestamp": pl.String if has_dates else pl.Int64, "removed": pl.String}
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
            ).select(*layout.columns)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None
        times = frame["timestamp"] if has_dates and "timestamp" in frame.columns else None
        if times is not None and not all_are_times(times, layout.time_format):
            return None
        if "removed" in frame.columns:
            frame = frame.with_columns(truth_of(frame["removed"]))
        if "type" in frame.columns:
            frame = frame.with_columns(pl.col("type").str.strip_chars())
        frame = _canonical(frame)
        return frame if _usable(frame) else None


def _usable(frame: pl.DataFrame) -> bool:
    """Whether no value is missing or not finite; blank lines look like missing values."""
    if any(frame.null_count().row(0)):
        return False
    if any((frame[role] == "").any() for role in _texts(frame)):
        return False
    if "weight" in frame.columns and not (frame["weight"] > 0).all():
        return False
    numbers = [role for role in ("rating", "weight") if role in frame.columns]
    return all(frame[role].is_finite().all() for role in numbers)


def _canonical(frame: pl.DataFrame) -> pl.DataFrame:
    """With ids as integers or as text, the spaces around them left out."""
    ids = [integers_where_all_are(frame[role]) for role in PAIR if role in frame.columns]
    # Spaces are rare, and a number with spaces is none: looking for them first would cost more.
    return frame.with_columns(
        integers_where_all_are(each.str.strip_chars()) if each.dtype == pl.String else each
        for each in ids
    )


def integers_where_all_are(ids: pl.Series) -> pl.Series:
    """The ids as Int64 if every one reads the same after the cast ("007" does not)."""
    integers = ids.cast(pl.Int64, strict=False)
    if integers.null_count() == 0 and (integers.cast(pl.String) == ids).all():
        return integers
    return ids


def _texts(frame: pl.DataFrame) -> list[str]:
    """The roles whose values are text."""
    return [role for role, kind in frame.schema.items() if kind == pl.String]


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
