"""Columns of times in seconds since 1970.

The whole column decides: which unit its numbers have, and whether its dates have the day first or
the month. `as_times` is for batches of a column, and `in_seconds` for the whole of it.
`cfuica.data.times` has the forms of a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from cfuica.data.layout import ReadOptions, is_number, short
from cfuica.data.times import (
    DATES,
    EITHER,
    UNITS,
    check_format,
    pattern_of,
    seconds,
    seconds_by_format,
)
from cfuica.errors import DataError, SettingsError

# Numbers from here on, the year 5138 in seconds, are of a smaller unit, of which they are in 1973.
SECONDS_BELOW = 10**11
# Smaller numbers may be of any unit, or of none: a sequence, numbers of days.
LEAST_SECONDS = 10**8
_LEAST = {"ns": 10**17, "us": 10**14, "ms": SECONDS_BELOW, "s": LEAST_SECONDS}
_DATE_LIKE = "^[0-9]{1,4}[-/.][0-9]{1,2}[-/.]"
_NAMES = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# Digits of a number that is a date, as dates are written by strftime.
_DIGITS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


def check_time_options(options: ReadOptions) -> None:
    """Refuse options of times that mean nothing, or not together."""
    if options.time_unit is not None and options.time_unit not in UNITS:
        raise SettingsError(
            f"The time unit {options.time_unit!r} is not known; it is one of {', '.join(UNITS)}."
        )
    if options.time_format is not None:
        if options.time_unit is not None:
            raise SettingsError(
                "A time format and a time unit exclude each other; give --time-unit for numbers, "
                "or --time-format for dates."
            )
        check_format(options.time_format)


def as_times(column: pl.Series, options: ReadOptions) -> pl.Series:
    """Numbers, text or dates as far as a batch can tell what they mean; null where it is no time.

    They are whole numbers, datetimes, or text where only the whole column can tell.
    """
    check_time_options(options)
    kind = column.dtype
    if kind == pl.Date or isinstance(kind, pl.Datetime):
        # The cast drops the time zone; the time itself stays, in UTC.
        return column.cast(_DATETIME)
    if kind.is_float() or kind.is_decimal():
        # A cast alone would truncate towards zero, which is another direction before 1970.
        column = column.floor()
    if kind not in (pl.String, pl.Null):
        column = column.cast(pl.Int64, strict=False)
        if options.time_format is None:
            return column
    texts = column.cast(pl.String).str.strip_chars()
    if options.time_format is not None:
        return (_by_format(texts, options.time_format) * 10**6).cast(_DATETIME)
    numbers = _numbers(texts)
    if numbers.null_count() == texts.null_count():
        return numbers
    certain, *either = _readings(_where(texts, numbers.is_null()))
    if certain.null_count() == texts.null_count() and certain.is_between(*_YEARS).all():
        return (certain * 10**6).cast(_DATETIME)
    return _where(texts, _first(numbers, certain, *either).is_not_null())


_DATETIME = pl.Datetime("us")
_YEARS = (-62_135_596_800, 253_402_300_799)  # 1 to 9999, which can be written as text again.


def as_text(times: pl.Series) -> pl.Series:
    """Ids or the result of `as_times` as text of the same meaning."""
    if isinstance(times.dtype, pl.Datetime):
        return times.dt.to_string("%Y-%m-%dT%H:%M:%S")
    return times.cast(pl.String)


def in_seconds(times: pl.Series, options: ReadOptions) -> tuple[pl.Series, tuple[str, ...]]:
    """(seconds since 1970, notes) of a whole column that `as_times` has made."""
    if isinstance(times.dtype, pl.Datetime):
        return times.dt.epoch("s"), ()
    if times.dtype != pl.String:
        return _in_one_unit(times, options.time_unit)
    numbers = _numbers(times)
    dates, notes = _dates(_where(times, numbers.is_null()))
    numbers, more = _in_one_unit(numbers, options.time_unit)
    return _first(numbers, dates), notes + more


def _where(column: pl.Series, mask: pl.Series) -> pl.Series:
    """The column, null where the mask is false."""
    return column.set(~mask, None)


def _first(*columns: pl.Series) -> pl.Series:
    return pl.select(pl.coalesce(columns)).to_series().alias(columns[0].name)


def _numbers(texts: pl.Series) -> pl.Series:
    """Whole numbers of texts, rounded down; null for other texts."""
    whole = texts.cast(pl.Int64, strict=False)
    if whole.null_count() == texts.null_count():
        return whole
    real = texts.cast(pl.Float64, strict=False).floor().cast(pl.Int64, strict=False)
    return _with_odd(_first(whole, real), texts, seconds)


def real_numbers(texts: pl.Series) -> pl.Series:
    """Numbers of texts; null for other texts."""
    texts = texts.str.strip_chars()
    return _with_odd(texts.cast(pl.Float64, strict=False), texts, float)


def _with_odd(found: pl.Series, texts: pl.Series, number: Callable[[str], Any]) -> pl.Series:
    """Where polars and Python differ, Python's word counts; these are few, and never dates."""
    rest = texts.filter(found.is_null() & ~texts.str.contains(_DATE_LIKE)).unique()
    odd = {text: number(text) for text in rest if is_number(text)}
    return _first(found, _replaced(texts, odd, found.dtype)) if odd else found


def _replaced(texts: pl.Series, values: dict[str, Any], kind: Any = pl.Int64) -> pl.Series:
    new = pl.Series(list(values.values()), dtype=kind)
    old = pl.Series(list(values), dtype=pl.String)
    return texts.replace_strict(old, new, default=None, return_dtype=kind)


def _by_format(texts: pl.Series, time_format: str) -> pl.Series:
    pattern = pattern_of(time_format)
    fast = _none(texts) if pattern is None else _matched(texts, pattern)
    rest = _where(texts, fast.is_null()).unique().drop_nulls()
    slow = {text: seconds_by_format(text, time_format) for text in rest}
    return _first(fast, _replaced(texts, slow)) if slow else fast


def _none(texts: pl.Series) -> pl.Series:
    return pl.repeat(None, texts.len(), dtype=pl.Int64, eager=True).alias(texts.name)


_SLICE = 1 << 20  # Texts that are taken apart at a time: their parts take more memory than they.


def _matched(texts: pl.Series, pattern: str) -> pl.Series:
    """Seconds since 1970 of the texts that match a pattern of `times` and are dates, else null."""
    if texts.len() > _SLICE:
        starts = range(0, texts.len(), _SLICE)
        return pl.concat([_matched(texts.slice(at, _SLICE), pattern) for at in starts])
    parts = texts.str.extract_groups(pattern).struct.unnest()

    def number(name: str, below: int) -> pl.Expr:
        if name not in parts.columns:
            return pl.lit(0, pl.Int64)
        value = pl.col(name).cast(pl.Int64, strict=False).fill_null(0)
        return pl.when(value < below).then(value)

    year, month, day = pl.col("Y"), pl.col("m").str.zfill(2), pl.col("d").str.zfill(2)
    date = pl.when(year != "0000").then(pl.concat_str(year, month, day, separator="-"))
    days = date.str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Int64)
    clock = number("H", 24) * 3600 + number("M", 60) * 60 + number("S", 60)
    offset = pl.lit(0, pl.Int64)
    if "zone" in parts.columns:
        # Z, UTC and GMT have no digits.
        zone = pl.col("zone").str.extract_groups("^(?P<sign>[+-])(?P<h>..):?(?P<m>..)$")
        hours, minutes = (
            zone.struct.field(name).cast(pl.Int64).fill_null(0) for name in ("h", "m")
        )
        size = pl.when((hours < 24) & (minutes < 60)).then(hours * 3600 + minutes * 60)
        offset = pl.when(zone.struct.field("sign") == "-").then(-size).otherwise(size)
    found = parts.select(days * 86400 + clock - offset).to_series()
    return found.alias(texts.name)


def _readings(texts: pl.Series) -> list[pl.Series]:
    """Dates of the one meaning that they have; then those that may have the day, or month, first.

    The latter are two columns of each separator.
    """
    certain = _none(texts)
    for form in DATES:
        if certain.null_count() == texts.null_count():
            break
        certain = _first(certain, _matched(texts, form))
    either = []
    if certain.null_count() > texts.null_count():
        either = [_matched(texts, form) for pair in EITHER.values() for form in pair]
        rest = _where(texts, _first(certain, *either).is_null()).unique().drop_nulls()
        if rest.len():
            # Other forms of ISO, such as 2001-W05-3, which are rare.
            iso = {text: seconds(text) for text in rest if not is_number(text)}
            certain = _first(certain, _replaced(texts, iso))
    return [certain, *either]


def _dates(texts: pl.Series) -> tuple[pl.Series, tuple[str, ...]]:
    """(seconds, notes); the order of day and month is that of all dates of the same form."""
    found, *either = _readings(texts)
    notes: list[str] = []
    for separator, day, month in zip(EITHER, either[::2], either[1::2], strict=False):
        dates = day.is_not_null() | month.is_not_null()
        if not dates.any():
            continue
        texts_of = texts.filter
        day_only, month_only = texts_of(month.is_null() & dates), texts_of(day.is_null() & dates)
        if day_only.len() and month_only.len():
            raise DataError(
                f"Column '{texts.name}' has both {short(day_only[0])}, with the day first, and "
                f"{short(month_only[0])}, with the month first; write them alike."
            )
        unclear = texts_of((day != month) & dates)
        if unclear.len() and not (day_only.len() or month_only.len()):
            clock = " %H:%M:%S" if ":" in unclear[0] else ""
            orders = (f"'{separator.join(parts)}{clock}'" for parts in _ORDERS)
            raise DataError(
                f"Column '{texts.name}' has dates such as {short(unclear[0])}, in which nothing "
                f"tells the day from the month; give --time-format {' or '.join(orders)} "
                f"(time_format in Python)."
            )
        first, telling = ("month", month_only) if month_only.len() else ("day", day_only)
        if telling.len():
            notes.append(f"Dates such as {short(telling[0])} are read with the {first} first.")
        found = _first(found, month if first == "month" else day)
    return found, tuple(notes)


_ORDERS = (("%d", "%m", "%Y"), ("%m", "%d", "%Y"))


def _in_one_unit(numbers: pl.Series, unit: str | None) -> tuple[pl.Series, tuple[str, ...]]:
    """(seconds, notes) of whole numbers, whose unit is given or found."""
    if unit is not None:
        return (numbers if unit == "s" else numbers // UNITS[unit]), ()
    low, high = numbers.min(), numbers.max()
    if low is None or high is None:
        return numbers, ()
    assert isinstance(low, int)
    assert isinstance(high, int)
    _refuse_dates_as_numbers(numbers, high)
    if low > -SECONDS_BELOW and high < SECONDS_BELOW:
        return numbers, ()
    found: dict[str, int] = {}
    larger = pl.repeat(False, numbers.len(), eager=True)
    for each, least in _LEAST.items():  # the largest numbers first
        reached = ((numbers >= least) | (numbers <= -least)).fill_null(False)
        if (own := reached & ~larger).any():
            found[each] = numbers.filter(own)[0]
        larger = reached
    if len(found) > 1:
        stated = " and ".join(f"{value} ({each})" for each, value in reversed(found.items()))
        raise DataError(
            f"Column '{numbers.name}' has times of different units, such as {stated}; write them "
            f"alike, or give --time-unit {'|'.join(UNITS)} (time_unit in Python)."
        )
    unit = next(iter(found))
    note = f"The times in '{numbers.name}' are {_NAMES[unit]} since 1970: converted to seconds."
    return numbers // UNITS[unit], (note,)


def _refuse_dates_as_numbers(numbers: pl.Series, high: int) -> None:
    digits = len(str(high))
    if high < 0 or digits not in _DIGITS or not 1900 <= int(str(high)[:4]) <= 2100:
        return
    days = numbers // 10 ** (digits - 8)
    month, day = days // 100 % 100, days % 100
    years = (days // 10_000).is_between(1900, 2100)
    dates = years & month.is_between(1, 12) & day.is_between(1, 31)
    # Numbers of another kind are dates in one of 27 cases.
    if int(dates.sum()) * 2 > numbers.len() - numbers.null_count():
        example = numbers.filter(dates.fill_null(False))[0]
        raise DataError(
            f"Column '{numbers.name}' has numbers such as {example}, which look like dates and not "
            f"like seconds since 1970; give --time-format {_DIGITS[digits]} (time_format in "
            f"Python), or --time-unit s if they are seconds."
        )
