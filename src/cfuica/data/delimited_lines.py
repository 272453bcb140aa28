"""Delimited text line by line: slow, but it names the line and the column of a bad value.

`cfuica.data.delimited` reads so what it cannot read as columns.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from functools import partial

from cfuica.data.columns import TRUTH
from cfuica.data.layout import Faults, Layout, is_number, listed, short
from cfuica.data.times import is_time

Value = str | float | int | bool


def _id(text: str) -> str | None:
    return text.strip() or None


def _rating(text: str) -> float | None:
    return float(text) if is_number(text) else None


def _rating_or_none(text: str) -> float | None:
    return _rating(text) if text.strip() else math.nan


def _weight(text: str) -> float | None:
    weight = _rating(text)
    return weight if weight is not None and weight > 0 else None


def _time(text: str, time_format: str | None = None) -> str | None:
    return text if is_time(text, time_format) else None


def _truth(text: str) -> bool | None:
    return TRUTH.get(text.strip().lower())


# Role to the parser of its field; what was expected, what to do, and the kind of fault where that
# gives None.
_FIELDS: dict[str, tuple[Callable[[str], Value | None], str, str, str]] = {
    "user": (_id, "a user id", "give every interaction a user", "without a user"),
    "item": (_id, "an item id", "give every interaction an item", "without an item"),
    "rating": (
        _rating,
        "a finite number",
        "correct it or remove the line",
        "with a rating that is no finite number",
    ),
    "timestamp": (
        _time,
        "seconds since 1970 as a number, or a date such as 2001-01-31T12:00:00Z,",
        "correct the time or remove the column",
        "with a time that is none",
    ),
    "type": (_id, "the type of an event", "give every event a type", "without a type"),
    "weight": (
        _weight,
        "a finite number above 0",
        "correct it or remove the line",
        "with a weight that is no number above 0",
    ),
    "removed": (_truth, "true or false", "correct it", "with neither true nor false"),
}
# Not in any text: NUL, and bytes that are not UTF-8 (as "surrogateescape" decodes them).
_BINARY = re.compile("[\0\udc80-\udcff]")


def read_lines(
    text: str, layout: Layout, faults: Faults, *, first_line: int, last: bool
) -> tuple[dict[str, list[Value]], int]:
    """(values by role of each good row, number of lines read) of a text of whole lines.

    An empty rating, where that is allowed, is nan, which no given rating can be. Blank lines are no
    rows. Unless the text is the `last` of its file, a record at its end that cannot be split is not
    read: the lines that close a quoted field may still be to come.
    """
    values: dict[str, list[Value]] = {role: [] for role in layout.columns}
    lines = text.removesuffix("\n").split("\n")
    for at, end, fields in _records(lines, layout):
        if isinstance(fields, csv.Error) and end == len(lines) and not last:
            return values, at
        try:
            row = _row(fields, layout)
        except _BadRow as bad:
            reason, found, remedy, *column = bad.args
            faults.meet(reason, ", ".join([f"line {first_line + at}", *column]), found, remedy)
            continue
        for values_of_role, value in zip(values.values(), row, strict=True):
            values_of_role.append(value)
    return values, len(lines)


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


class _BadRow(Exception):
    """No interaction: (the kind of fault, what was found, what to do, perhaps the column)."""


def _row(fields: list[str] | csv.Error, layout: Layout) -> list[Value]:
    """The values of a record in the order of the layout."""
    width = len(layout.names)
    if isinstance(fields, csv.Error):
        raise _BadRow(
            "that cannot be split into fields",
            f"the line cannot be split into fields ({fields})",
            "close every quoted field, and double a quote that belongs to a value",
        )
    if binary := _BINARY.search("".join(fields)):
        if binary[0] == "\0":
            raise _BadRow(
                "with a zero byte",
                "a zero byte, so this is not a text file in UTF-8 or latin-1",
                "decompress it, or save it as CSV in UTF-8",
            )
        raise _BadRow(
            "that are not UTF-8",
            f"byte 0x{ord(binary[0]) - 0xDC00:02x} is not UTF-8",
            "save the file again as UTF-8, or give --encoding latin-1",
        )
    if len(fields) > width:
        raise _BadRow(
            "with too many fields",
            f"{len(fields)} fields, the last one {short(fields[-1])}, but {width} were expected "
            f"({listed(layout.names)})",
            "quote a field that contains the separator",
        )
    row: list[Value] = []
    for role, at in layout.columns.items():
        parse, expected, remedy, reason = _FIELDS[role]
        if role == "rating" and layout.rating_may_be_empty:
            parse = _rating_or_none
        if role == "timestamp" and layout.time_format is not None:
            parse = partial(_time, time_format=layout.time_format)
            expected = f"a time of the form {layout.time_format!r}"
        # A line may end before the column `removed`, as polars has it.
        text = fields[at] if at < len(fields) else "" if role == "removed" else None
        value = None if text is None else parse(text)
        if value is None:
            column = f"column {at + 1} ({short(layout.names[at])})"
            if at < len(fields):
                given = short(fields[at]) if fields[at].strip() else "empty"
                raise _BadRow(reason, f"{given}, but {expected} was expected", remedy, column)
            found = (
                f"{column} is missing, because the line has {len(fields)} "
                f"field{'s' if len(fields) != 1 else ''}; {expected} was expected"
            )
            raise _BadRow("with too few fields", found, remedy)
        row.append(value)
    return row
