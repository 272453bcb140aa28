"""Columns of any type in the canonical types of `Interactions`, and dates in UTC.

`canonical_rows` casts the columns of a source and refuses rows that are no interactions, or leaves
them out and counts them (`Faults` does the same for text files). `seconds_of`, `date_of` and
`day_of` convert between dates and seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.data.time_columns import in_seconds
from cfuica.data.times import seconds
from cfuica.data.vocabulary import as_ids
from cfuica.errors import DataError, SettingsError
from cfuica.forks import need_polars


def seconds_of(text: str) -> int:
    """Seconds since 1970 of '974678400', '2000-11-20' or '2000-11-20T12:00:00+01:00'.

    A fraction of a second is rounded up, so that the interactions at or after it stay the same.
    """
    found = seconds(text, up=True)
    if found is None:
        raise SettingsError(
            f"'{text}' is not a date: give one like 2000-11-20 or 2000-11-20T12:00:00 (UTC unless "
            f"it says otherwise), or seconds since 1970."
        )
    return found


def date_of(time: int) -> str:
    """'2000-11-20T00:00:00Z', or the number itself where its year is out of range."""
    try:
        return datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(time)


def day_of(time: int) -> str:
    """'2000-11-20', or the number itself where its year is out of range."""
    return date_of(time).partition("T")[0]


_EXPECTED = {
    "user": "an id",
    "item": "an id",
    "rating": "a finite number",
    "timestamp": "a date or seconds since 1970",
    "type": "a word, such as view",
    "weight": "a finite number above 0",
    "removed": "true or false",
}

# The name of a row, given its number from 0, to begin a sentence with.
Place = Callable[[int], str]


def canonical_rows(
    columns: Mapping[str, pl.Series],
    place: Place,
    options: ReadOptions = FIND_OUT,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """(one canonical column per role, notes); `columns` are by role, named as in the source.

    A row with a missing or unusable value is refused, or left out and counted. With
    `empty_rating="keep"` an empty rating (null or blank text) is null instead.
    """
    bad_rows, empty_rating = options.bad_rows, options.empty_rating
    usable = {
        role: _as_type(role, column) for role, column in columns.items() if role != "timestamp"
    }
    notes: tuple[str, ...] = ()
    if "timestamp" in columns:
        _check_type("timestamp", columns["timestamp"])
        times, notes = in_seconds(columns["timestamp"], options)
        usable["timestamp"] = times.alias("timestamp")
        usable = {role: usable[role] for role in columns}
    frame = pl.DataFrame(usable)
    bad = {
        role: rows
        for role, column in columns.items()
        if (rows := _bad(role, column, usable[role], empty_rating)).any()
    }
    if not bad:
        return frame, notes

    def stated(role: str) -> str:
        """The first bad value of a column."""
        row, column = int(bad[role].arg_max() or 0), columns[role]
        return (
            f"{place(row)} has {column[row]!r} in column '{column.name}', but the {role} must be "
            f"{_EXPECTED[role]}"
        )

    if bad_rows == "refuse":
        role, n = next((role, int(rows.sum())) for role, rows in bad.items())
        such = f"{n:,} such row{'s' if n > 1 else ''}"
        raise DataError(
            f"{stated(role)}; repair or remove {such}, or leave out such rows by --bad-rows skip "
            f"(bad_rows in Python)."
        )
    first = min(bad, key=lambda role: bad[role].arg_max() or 0)
    remaining = frame.filter(~pl.DataFrame(bad).select(pl.any_horizontal(pl.all())).to_series())
    if remaining.height == 0:
        raise DataError(f"No row is an interaction: {stated(first)}; check the choice of columns.")
    left_out = frame.height - remaining.height
    note = f"{left_out:,} of {frame.height:,} rows are no interactions and were left out; "
    return remaining, (f"{note}the first one: {stated(first)}.", *notes)


def _bad(role: str, column: pl.Series, usable: pl.Series, empty_rating: str) -> pl.Series:
    """(n,) which values of a column are missing or unusable."""
    if usable.dtype == pl.String:
        return (usable == "") | usable.is_null()
    if role not in ("rating", "weight"):
        return usable.is_null()
    numbers = usable.to_numpy()
    bad = ~np.isfinite(numbers)  # null is NaN there
    if role == "weight":
        bad |= ~(numbers > 0)
    elif empty_rating == "keep":
        cells = column.gather(np.flatnonzero(bad)).to_list()
        bad[bad] = [cell is not None and str(cell).strip() != "" for cell in cells]
    return pl.Series(bad)


_FALSE, _TRUE = ("", "false", "0", "0.0", "no"), ("true", "1", "1.0", "yes")
TRUTH = {**dict.fromkeys(_FALSE, False), **dict.fromkeys(_TRUE, True)}


def truth_of(column: pl.Series) -> pl.Series:
    """Booleans of true and false, 1 and 0, yes and no; empty is false, and other text null."""
    texts = column.cast(pl.String).fill_null("").str.strip_chars().str.to_lowercase()
    return texts.replace_strict(TRUTH, default=None, return_dtype=pl.Boolean)


def _as_type(role: str, column: pl.Series) -> pl.Series:
    """The column in its canonical type; null where a value cannot be cast."""
    if role in ("user", "item"):
        return as_ids(column).alias(role)
    if role == "type":
        return as_ids(column).cast(pl.String).str.strip_chars().alias(role)
    _check_type(role, column)
    column = column.alias(role)
    return truth_of(column) if role == "removed" else column.cast(pl.Float64, strict=False)


def _check_type(role: str, column: pl.Series) -> None:
    """Refuse durations, lists and others, which hold neither numbers nor times."""
    kind = column.dtype
    if role == "timestamp" and (kind == pl.Date or isinstance(kind, pl.Datetime)):
        return
    if not (kind.is_numeric() or kind in (pl.Boolean, pl.String, pl.Null)):
        raise DataError(
            f"Column '{column.name}' has type {kind}, but the {role} must be {_EXPECTED[role]}; "
            f"cast the column or choose another."
        )


@dataclass(frozen=True)
class EventCounts:
    """What the rows of a source are, before one row per pair is kept."""

    rows: int
    by_type: Mapping[str, int]  # Rows of each type, most first; empty without types.
    removed: int  # Rows that take an interaction away.
    weight: float | None  # Sum of the weights; None without weights.

    @classmethod
    def of(cls, frame: pl.DataFrame) -> EventCounts:
        """Counts of canonical rows."""
        types = {}
        if "type" in frame.columns:
            counted = (
                frame["type"]
                .value_counts(name="count")
                .sort("count", "type", descending=[True, False])
            )
            types = dict(counted.iter_rows())
        removed = int(frame["removed"].sum()) if "removed" in frame.columns else 0
        weight = float(frame["weight"].sum()) if "weight" in frame.columns else None
        return cls(frame.height, types, removed, weight)


def as_polars(frame: Any) -> pl.DataFrame | pl.LazyFrame:
    """A table of any Arrow library, or a dictionary of columns, as a polars frame."""
    if isinstance(frame, pl.DataFrame):
        return frame
    if not isinstance(frame, dict):
        need_polars("A frame that is not of polars, or lazy,")
    if isinstance(frame, pl.LazyFrame):
        return frame
    try:
        is_arrow = hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__")
        if is_arrow or isinstance(frame, dict):
            return pl.DataFrame(frame)
        # Before pandas 2.2 a frame has no Arrow interface.
        if type(frame).__module__.partition(".")[0] == "pandas":
            return pl.from_pandas(frame)
    except (pl.exceptions.PolarsError, ImportError, TypeError, ValueError) as error:
        raise DataError(
            f"The {type(frame).__name__} could not be converted to a polars frame: {error}"
        ) from error
    raise DataError(
        f"A {type(frame).__name__} was given, but a polars, pandas or pyarrow table was expected."
    )


def rows_of(frame: pl.DataFrame, rows: np.ndarray, *, without: str = "") -> pl.DataFrame:
    """The rows with these numbers, perhaps without a column; needs no threads of polars."""
    columns = [column for column in frame.get_columns() if column.name != without]
    return pl.DataFrame([column.gather(rows) for column in columns])
