"""Delimited text to a BehaviourTable: fast while all is well, exact about what is not."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from cfuica.data.layout import ROLES, Layout
from cfuica.data.lines import sound_lines
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError

_START = 1 << 16
# Stands in for '::', because polars separates by one byte; it does not occur in text.
_UNIT = "\x1f"


def read_delimited(path: str | Path, *, repeats: bool = False) -> BehaviourTable:
    """Read CSV, TSV, or fields separated by ';', '|' or '::'.

    Columns are found by the names in the header; without a header there must be 3 or 4 columns:
    user, item, rating, timestamp. Ids are integers where all of them are, and text otherwise.
    With `repeats` every row is kept: a pair may be asked about twice, but behaves once.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give the path of a delimited text file."
        ) from error
    _refuse_binary(start, str(path))
    # A character cut in two at the end of `start` does no harm: the layout is in the first line.
    layout = Layout.of_text(start.decode("utf-8", errors="replace"), str(path))
    frame, notes = parse(path, layout, str(path))
    make = BehaviourTable if repeats else BehaviourTable.of_rows
    return make(frame, source=str(path), source_notes=notes)


def parse(content: Path | bytes, layout: Layout, name: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """(canonical columns, notes) of a text that is laid out as `layout` says."""
    notes: tuple[str, ...] = ()
    frame = _columns(content, layout, pl.Int64)
    if frame is None:
        data = content if isinstance(content, bytes) else content.read_bytes()
        text, notes = _decode(data, name)
        for _ in sound_lines(text, layout, name):
            pass
        # Every line is sound, so only the encoding, or fractions of seconds, were in the way ...
        frame = _columns(text.encode(), layout, pl.Float64)
        if frame is None:
            # ... or blank lines, or some form of number that only we accept.
            frame = _columns_of_lines(text, layout, name)
    if frame.height == 0:
        raise DataError(f"{name} has a header but no behaviours; at least one line was expected.")
    return _canonical(frame), notes


def _columns(
    content: Path | bytes, layout: Layout, time: type[pl.Int64] | type[pl.Float64]
) -> pl.DataFrame | None:
    """One column per role, read fast; None unless every value is there and usable."""
    separator = layout.separator
    quote: str | None = '"'
    if separator == "::":
        data = content if isinstance(content, bytes) else content.read_bytes()
        content, separator, quote = data.replace(b"::", _UNIT.encode()), _UNIT, None
    types = {"rating": pl.Float64, "timestamp": time}
    # Names of our own: those of the file may repeat, or be empty.
    roles = {at: role for role, at in layout.columns.items()}
    names = [roles.get(at, f"unused {at}") for at in range(len(layout.names))]
    lazy = pl.scan_csv(
        content,
        has_header=False,
        skip_lines=layout.skip_lines,
        separator=separator,
        quote_char=quote,
        schema={name: types.get(name, pl.String) for name in names},
    )
    wanted = [role for role in ROLES if role in layout.columns]
    stripped = lazy.select(wanted).with_columns(pl.col("user", "item").str.strip_chars())
    try:
        frame = stripped.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        # It panics, for instance, at a lone quote that ends the file.
        return None
    return frame if _usable(frame) else None


def _usable(frame: pl.DataFrame) -> bool:
    """Whether no value is missing or not finite; blank lines look like missing values."""
    if any(frame.null_count().row(0)):
        return False
    if any((frame[role] == "").any() for role in ("user", "item")):
        return False
    return "rating" not in frame.columns or bool(frame["rating"].is_finite().all())


def _columns_of_lines(text: str, layout: Layout, name: str) -> pl.DataFrame:
    """One column per role, read slowly from lines that are known to be sound."""
    roles = [role for role in ROLES if role in layout.columns]
    values: dict[str, list[str]] = {role: [] for role in roles}
    for fields in sound_lines(text, layout, name):
        for role in roles:
            values[role].append(fields[layout.columns[role]].strip())
    return pl.DataFrame(
        {
            role: column if role in ("user", "item") else [float(value) for value in column]
            for role, column in values.items()
        }
    )


def _canonical(frame: pl.DataFrame) -> pl.DataFrame:
    frame = frame.with_columns(
        integers_where_all_are(frame["user"]), integers_where_all_are(frame["item"])
    )
    if "timestamp" in frame.columns:
        frame = frame.with_columns(pl.col("timestamp").floor().cast(pl.Int64))
    return frame


def integers_where_all_are(ids: pl.Series) -> pl.Series:
    """The ids as Int64 if every one reads the same after the cast ("007" does not)."""
    integers = ids.cast(pl.Int64, strict=False)
    if integers.null_count() == 0 and (integers.cast(pl.String) == ids).all():
        return integers
    return ids


def _decode(data: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    """(text, notes): UTF-8, or else latin-1, in which every byte is a character."""
    _refuse_binary(data, name)
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x} in line {line}"
        return data.decode("latin-1"), (f"{name} is not UTF-8 ({found}): read as latin-1.",)


def _refuse_binary(data: bytes, name: str) -> None:
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(0)) + 1
        raise DataError(
            f"{name} is not a text file in UTF-8 or latin-1: line {line} contains a zero byte; "
            f"decompress it, or save it as CSV in UTF-8."
        )
