"""Columns of any type in the canonical types of `Interactions`, and dates in UTC.

`Rows` casts the columns of a source, all at once or in batches, and refuses rows that are no
interactions, or leaves them out and counts them. Every reader and every frame goes through it.
`seconds_of`, `date_of` and `day_of` convert between dates and seconds since 1970.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.layout import FIND_OUT, PAIR, ReadOptions, short
from cfuica.data.memory import check_taken, most_memory
from cfuica.data.time_columns import as_text, as_times, in_seconds, real_numbers
from cfuica.data.times import seconds
from cfuica.data.vocabulary import as_ids
from cfuica.errors import DataError, NoRows, SettingsError
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


# Role to what its values must be, and what a row is whose value is not.
_VALUES = {
    "user": ("an id", "without a user"),
    "item": ("an id", "without an item"),
    "rating": ("a finite number", "with a rating that is no finite number"),
    "timestamp": ("a date or seconds since 1970", "with a time that is none"),
    "type": ("a word, such as view", "without a type"),
    "weight": ("a finite number above 0", "with a weight that is no number above 0"),
    "removed": ("true or false", "with neither true nor false"),
}

# The name of a row, given its number from 0, to begin a sentence with.
Place = Callable[[int], str]
# (its kind, what was found, what to do) of a row that has no values.
Fault = tuple[str, str, str]


class Rows:
    """Rows of a source in canonical types, added batch by batch.

    A row with a missing or unusable value is refused, or left out and counted. With
    `empty_rating="keep"` an empty rating (null or blank text) is null instead.
    """

    def __init__(self, options: ReadOptions, name: str = "") -> None:
        self.options, self.name = options, name
        self.notes: tuple[str, ...] = ()  # What reading changed.
        # What to call the columns of text, by role; the ids of text are as they are written.
        self.labels: Mapping[str, str] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._most = most_memory(self.options) if self.name else math.inf
        self._taken = 0  # Bytes of the rows.
        self._parts: dict[str, list[pl.Series]] = {}
        self._faults: Counter[str] = Counter()
        self._first = ""  # What the first bad row has.
        self._n = 0  # All rows, also those left out.

    def add(
        self,
        columns: Mapping[str, pl.Series],
        place: Place | None = None,
        faults: Mapping[int, Fault] | None = None,
    ) -> bool:
        """Add rows; `columns` are by role, named as in the source, `faults` by row.

        False, and nothing is added, where there are bad rows and no `place` to name them by.
        """
        options, own_ids = self.options, _ids_of_texts if self.labels else as_ids
        with _naming(self.name):
            usable = {
                role: own_ids(column) if role in PAIR else _as_type(role, column, options)
                for role, column in columns.items()
            }
        bad = {
            role: rows
            for role, column in columns.items()
            if (rows := _bad(role, column, usable[role], options.empty_rating)).any()
        }
        if bad or faults:
            if place is None:
                return False
            good = pl.Series(~self._counted(columns, bad, place, faults or {}))
            usable = {
                role: own_ids(column.filter(good)) if role in PAIR else column.filter(good)
                for role, column in usable.items()
            }
        self._n += next(iter(columns.values())).len()
        for role, column in usable.items():
            self._parts.setdefault(role, []).append(column.alias(columns[role].name))
            self._taken += int(column.estimated_size())
        check_taken(self.name, self._taken, self._most)
        return True

    def report(self, done: float) -> None:
        """Tell how much of the source is read, from 0 to 1; 0 is unknown."""
        if self.options.progress is not None and done:
            self.options.progress(self.name, done)

    def _counted(
        self,
        columns: Mapping[str, pl.Series],
        bad: Mapping[str, pl.Series],
        place: Place,
        faults: Mapping[int, Fault],
    ) -> NDArray[np.bool_]:
        """(n,) which rows are bad; the first of them is an error, unless they may be left out."""
        rows = np.zeros(next(iter(columns.values())).len(), np.bool_)
        rows[list(faults)] = True
        counts = Counter(kind for kind, _, _ in faults.values())
        for role, of_role in bad.items():
            counts[_VALUES[role][1]] += int(np.count_nonzero(of_role.to_numpy() & ~rows))
            rows |= of_role.to_numpy()
        row = int(rows.argmax())
        if row in faults:
            _, found, remedy = faults[row]
            stated = f"{place(row).removesuffix(',')}: {found}"
        else:
            role = next(role for role, of_role in bad.items() if of_role[row])
            value, expected = columns[role][row], _VALUES[role][0]
            if role == "timestamp" and self.options.time_format is not None:
                expected = f"a time of the form {self.options.time_format!r}"
            given = short(value) if isinstance(value, str) else repr(value)
            label = self.labels.get(role, f"'{columns[role].name}'")
            stated = (
                f"{place(row)} has {given} in column {label}, but the {role} must be {expected}"
            )
            remedy = "correct it or remove the row"
        if self.options.bad_rows == "refuse":
            raise DataError(
                f"{stated}; {remedy}, or leave out such rows by --bad-rows skip (bad_rows in "
                f"Python)."
            )
        self._first = self._first or stated
        self._faults += counts
        return rows

    def frame(self) -> tuple[pl.DataFrame, tuple[str, ...]]:
        """(one canonical column per role, notes) of all rows; none can be added after."""
        if self.name and self._n == 0:
            raise NoRows(f"{self.name} has no interactions, but at least one was expected.")
        notes = self.notes
        if left_out := self._faults.total():
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in self._faults.most_common())
            if left_out == self._n:
                raise DataError(
                    f"No row is an interaction ({kinds}): {self._first}; say which columns hold "
                    f"user, item and rating (--user-column, --item-column, --rating-column), and "
                    f"what separates them (--separator)."
                )
            notes += (
                f"{left_out:,} of {self._n:,} rows are no interactions and were left out "
                f"({kinds}); the first one: {self._first}.",
            )
        whole = []
        for role in list(self._parts):
            # One column after another: two copies of all rows may not fit into memory.
            column = _joined(self._parts.pop(role))
            if role == "timestamp":
                with _naming(self.name):
                    column, more = in_seconds(column, self.options)
                notes += more
            whole.append(column.alias(role))
        return pl.DataFrame(whole), notes


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say of which source a column is that is wrong as a whole."""
    try:
        yield
    except DataError as error:
        raise error if not name else DataError(f"{name}: {error}") from None


def canonical_rows(
    columns: Mapping[str, pl.Series],
    place: Place,
    options: ReadOptions = FIND_OUT,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """(one canonical column per role, notes) of columns that are complete; see `Rows`."""
    rows = Rows(options)
    rows.add(columns, place)
    return rows.frame()


def integers_where_all_are(ids: pl.Series) -> pl.Series:
    """The ids as Int64 if every one reads the same after the cast ("007" does not)."""
    integers = ids.cast(pl.Int64, strict=False)
    if integers.null_count() == 0 and (integers.cast(pl.String) == ids).all():
        return integers
    return ids


def _ids_of_texts(column: pl.Series) -> pl.Series:
    """Integers where all are, or text, the spaces around them left out."""
    if column.dtype != pl.String:
        return column
    ids = integers_where_all_are(column)
    # Spaces are rare, and a number with spaces is none: looking for them first would cost more.
    return integers_where_all_are(ids.str.strip_chars()) if ids.dtype == pl.String else ids


def _joined(parts: list[pl.Series]) -> pl.Series:
    """The batches of a column as one; as text where they have several types, but for integers."""
    parts = [part for part in parts if part.len()] or parts[:1]
    kinds = {part.dtype for part in parts}
    if len(kinds) > 1:
        kind = pl.Int64 if all(kind.is_integer() for kind in kinds) else pl.String
        parts = [as_text(part) if kind == pl.String else part.cast(kind) for part in parts]
    return pl.concat(parts, rechunk=True) if len(parts) > 1 else parts[0]


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
    elif empty_rating == "keep" and bad.any():
        empty = column.is_null()
        if column.dtype == pl.String:
            empty |= column.str.strip_chars() == ""
        bad &= ~empty.fill_null(True).to_numpy()
    return pl.Series(bad)


_FALSE, _TRUE = ("", "false", "0", "0.0", "no"), ("true", "1", "1.0", "yes")
_TRUTH = {**dict.fromkeys(_FALSE, False), **dict.fromkeys(_TRUE, True)}


def _as_type(role: str, column: pl.Series, options: ReadOptions) -> pl.Series:
    """The column in its canonical type, times as `as_times` has them; null where that fails."""
    if role == "type":
        return as_ids(column).cast(pl.String).str.strip_chars()
    # Durations, lists and others hold neither numbers nor times.
    kind = column.dtype
    is_date = role == "timestamp" and (kind == pl.Date or isinstance(kind, pl.Datetime))
    if not (is_date or kind.is_numeric() or kind in (pl.Boolean, pl.String, pl.Null)):
        raise DataError(
            f"Column '{column.name}' has type {kind}, but the {role} must be {_VALUES[role][0]}; "
            f"cast the column or choose another."
        )
    if role == "timestamp":
        return as_times(column, options)
    if role == "removed":
        # Booleans of true and false, 1 and 0, yes and no; empty is false, and other text null.
        texts = column.cast(pl.String).fill_null("").str.strip_chars().str.to_lowercase()
        return texts.replace_strict(_TRUTH, default=None, return_dtype=pl.Boolean)
    return real_numbers(column) if kind == pl.String else column.cast(pl.Float64, strict=False)


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
