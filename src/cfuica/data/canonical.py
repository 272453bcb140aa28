"""Columns of any type into those of a BehaviourTable, with an account of what is no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from cfuica.data.ids import as_ids
from cfuica.data.times import seconds
from cfuica.errors import DataError

_EXPECTED = {
    "user": "an id",
    "item": "an id",
    "rating": "a finite number",
    "timestamp": "a date or seconds since 1970",
}

Place = Callable[[int], str]
"""Names a row, given its number from 0, at the beginning of a sentence."""


def canonical_rows(
    columns: Mapping[str, pl.Series],
    place: Place,
    *,
    bad_rows: Literal["refuse", "skip"],
    empty_rating: Literal["refuse", "keep"] = "refuse",
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """(one canonical column per role, notes); `columns` are by role, named as in the source.

    A row with a missing or unusable value is refused, or left out and counted. An empty rating,
    null or blank text, may be kept as null.
    """
    usable = {role: _as_type(role, column) for role, column in columns.items()}
    frame = pl.DataFrame(usable)
    faults = [
        fault
        for role, column in columns.items()
        if (fault := _Fault.among(role, column, usable[role], empty_rating))
    ]
    if not faults:
        return frame, ()
    if bad_rows == "refuse":
        first = faults[0]
        rows = f"{first.n:,} such row{'s' if first.n > 1 else ''}"
        raise DataError(f"{first.told(place)}; repair, remove or skip {rows}.")
    first = min(faults, key=lambda fault: fault.row)
    bad = pl.DataFrame([fault.bad for fault in faults]).select(pl.any_horizontal(pl.all()))
    kept = frame.filter(~bad.to_series())
    if kept.height == 0:
        raise DataError(f"No row is a behaviour: {first.told(place)}; check the choice of columns.")
    left_out = frame.height - kept.height
    note = f"{left_out:,} of {frame.height:,} rows are no behaviours and were left out; "
    return kept, (f"{note}the first one: {first.told(place)}.",)


@dataclass(frozen=True)
class _Fault:
    """What is wrong with some values of a column."""

    role: str
    column: pl.Series
    bad: pl.Series

    @classmethod
    def among(
        cls,
        role: str,
        column: pl.Series,
        usable: pl.Series,
        empty_rating: str,
    ) -> _Fault | None:
        bad = usable.is_null()
        if usable.dtype == pl.String:
            bad = bad | (usable == "").fill_null(True)
        elif role == "rating":
            bad = ~usable.is_finite().fill_null(False)
            if empty_rating == "keep":
                bad &= ~_is_empty(column)
        return cls(role, column, bad.alias(role)) if bad.any() else None

    @property
    def n(self) -> int:
        return int(self.bad.sum())

    @property
    def row(self) -> int:
        """The first of them, from 0."""
        return int(self.bad.arg_max() or 0)

    def told(self, place: Place) -> str:
        return (
            f"{place(self.row)} has {self.column[self.row]!r} in column '{self.column.name}', but "
            f"the {self.role} must be {_EXPECTED[self.role]}"
        )


def _is_empty(column: pl.Series) -> pl.Series:
    if column.dtype != pl.String:
        return column.is_null()
    return column.fill_null("").str.strip_chars() == ""


def seconds_of_text(column: pl.Series) -> pl.Series:
    """Seconds since 1970 of numbers and dates as text; null where it is neither."""
    texts = column.unique().drop_nulls()
    times = pl.Series([seconds(text) for text in texts], dtype=pl.Int64)
    return column.replace_strict(texts, times, default=None, return_dtype=pl.Int64)


def _as_type(role: str, column: pl.Series) -> pl.Series:
    """The column in its canonical type; null where a value has no place in it."""
    if role in ("user", "item"):
        return as_ids(column).alias(role)
    _refuse_foreign(role, column)
    if role == "rating":
        return column.cast(pl.Float64, strict=False).alias(role)
    return _seconds(column).alias(role)


def _refuse_foreign(role: str, column: pl.Series) -> None:
    """A duration or a list has numbers inside, but none that is a rating or a point in time."""
    kind = column.dtype
    dated = role == "timestamp" and (kind == pl.Date or isinstance(kind, pl.Datetime))
    if not (kind.is_numeric() or dated or kind in (pl.Boolean, pl.String, pl.Null)):
        raise DataError(
            f"Column '{column.name}' has type {kind}, but the {role} must be {_EXPECTED[role]}; "
            f"cast the column or choose another."
        )


def _seconds(column: pl.Series) -> pl.Series:
    if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
        # Without its time zone it is the same point in time, in UTC.
        return column.cast(pl.Datetime("us")).dt.epoch("s")
    if column.dtype == pl.String:
        return seconds_of_text(column)
    if column.dtype.is_float() or column.dtype.is_decimal():
        # A cast truncates towards zero; seconds before 1970 deserve the same floor as later ones.
        return column.floor().cast(pl.Int64, strict=False)
    return column.cast(pl.Int64, strict=False)
