"""Columns of any type in the canonical types of `Interactions`, and dates in UTC.

`canonical_rows` casts the columns of a source and refuses rows that are no interactions, or leaves
them out and counts them (`Faults` does the same for text files). `seconds_of`, `date_of` and
`day_of` convert between dates and seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import polars as pl

from cfuica.data.layout import seconds
from cfuica.data.vocabulary import as_ids
from cfuica.errors import DataError, SettingsError


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
}

# The name of a row, given its number from 0, to begin a sentence with.
Place = Callable[[int], str]


def canonical_rows(
    columns: Mapping[str, pl.Series],
    place: Place,
    *,
    bad_rows: Literal["refuse", "skip"],
    empty_rating: Literal["refuse", "keep"] = "refuse",
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """(one canonical column per role, notes); `columns` are by role, named as in the source.

    A row with a missing or unusable value is refused, or left out and counted. With
    `empty_rating="keep"` an empty rating (null or blank text) is null instead.
    """
    usable = {role: _as_type(role, column) for role, column in columns.items()}
    frame = pl.DataFrame(usable)
    bad = {
        role: rows
        for role, column in columns.items()
        if (rows := _bad(role, column, usable[role], empty_rating)).any()
    }
    if not bad:
        return frame, ()

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
        raise DataError(f"{stated(role)}; repair, remove or skip {such}.")
    first = min(bad, key=lambda role: bad[role].arg_max() or 0)
    remaining = frame.filter(~pl.DataFrame(bad).select(pl.any_horizontal(pl.all())).to_series())
    if remaining.height == 0:
        raise DataError(f"No row is an interaction: {stated(first)}; check the choice of columns.")
    left_out = frame.height - remaining.height
    note = f"{left_out:,} of {frame.height:,} rows are no interactions and were left out; "
    return remaining, (f"{note}the first one: {stated(first)}.",)


def _bad(role: str, column: pl.Series, usable: pl.Series, empty_rating: str) -> pl.Series:
    """(n,) which values of a column are missing or unusable."""
    if usable.dtype == pl.String:
        return (usable == "") | usable.is_null()
    if role != "rating":
        return usable.is_null()
    bad = ~np.isfinite(usable.to_numpy())  # null is NaN there
    if empty_rating == "keep":
        cells = column.gather(np.flatnonzero(bad)).to_list()
        bad[bad] = [cell is not None and str(cell).strip() != "" for cell in cells]
    return pl.Series(bad)


def seconds_of_text(column: pl.Series) -> pl.Series:
    """Seconds since 1970 of numbers and dates as text; null for other text."""
    texts = column.unique().drop_nulls()
    times = pl.Series([seconds(text) for text in texts], dtype=pl.Int64)
    return column.replace_strict(texts, times, default=None, return_dtype=pl.Int64)


def _as_type(role: str, column: pl.Series) -> pl.Series:
    """The column in its canonical type; null where a value cannot be cast."""
    if role in ("user", "item"):
        return as_ids(column).alias(role)
    name, kind, column = column.name, column.dtype, column.alias(role)
    if role == "timestamp" and (kind == pl.Date or isinstance(kind, pl.Datetime)):
        # The cast drops the time zone; the time itself stays, in UTC.
        return column.cast(pl.Datetime("us")).dt.epoch("s")
    # Durations, lists and others hold neither ratings nor times.
    if not (kind.is_numeric() or kind in (pl.Boolean, pl.String, pl.Null)):
        raise DataError(
            f"Column '{name}' has type {kind}, but the {role} must be {_EXPECTED[role]}; cast the "
            f"column or choose another."
        )
    if role == "rating":
        return column.cast(pl.Float64, strict=False)
    if kind == pl.String:
        return seconds_of_text(column)
    if kind.is_float() or kind.is_decimal():
        # A cast alone would truncate towards zero, which is another direction before 1970.
        column = column.floor()
    return column.cast(pl.Int64, strict=False)
