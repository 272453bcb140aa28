"""Line-by-line reader of delimited text, which says what is wrong with a bad line.

It is slow, and runs only on blocks that the fast reader of columns (`delimited`) cannot parse or
cannot report on, because that has no line numbers.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping

from cfuica.data.columns import Faults
from cfuica.data.layout import Layout, is_number, listed, seconds, short

_EXPECTED = {
    "user": ("a user id", "give every interaction a user"),
    "item": ("an item id", "give every interaction an item"),
    "rating": ("a finite number", "correct it or remove the line"),
    "timestamp": (
        "seconds since 1970 as a number, or a date such as 2001-01-31T12:00:00Z,",
        "correct the time or remove the column",
    ),
}
_REASONS = {
    "user": "without a user",
    "item": "without an item",
    "rating": "with a rating that is no finite number",
    "timestamp": "with a time that is none",
}
# Not in any text: NUL, and bytes that are not UTF-8 (as "surrogateescape" decodes them).
_BINARY = re.compile("[\0\udc80-\udcff]")

Value = str | float | int
Values = dict[str, list[Value]]
# (parser of a field, its position, the list that its value is appended to).
_Wanted = tuple[Callable[[str], Value | None], int, list[Value]]


def read_lines(
    text: str, layout: Layout, faults: Faults, *, first_line: int, last: bool
) -> tuple[Values, int]:
    """(values by role of each good row, number of lines read) of a text of whole lines.

    An empty rating, where that is allowed, is nan, which no given rating can be. Blank lines are no
    rows. Unless the text is the `last` of its file, a quoted field that its end
    leaves open is not read: the lines that close it are still to come.
    """
    values: Values = {role: [] for role in layout.columns}
    meaning = _meanings(layout)
    wanted = [(meaning[role], at, values[role]) for role, at in layout.columns.items()]
    binary = _BINARY.search(text) is not None
    lines = text.removesuffix("\n").split("\n")
    records = _Records(lines, layout)
    for at, fields in records:
        if fields is None and records.open_at_end and not last:
            return values, at
        row = None if fields is None else _row(fields, wanted, len(layout.names))
        if row is None or (binary and _BINARY.search("".join(fields or ()))):
            _meet_fault(fields, layout, faults, f"line {first_line + at}", records.error)
            continue
        for (_, _, column), value in zip(wanted, row, strict=True):
            column.append(value)
    return values, len(lines)


class _Records:
    """(number of its first line, from 0; fields) of each record that is not blank.

    Fields are None where the quotes of a record are invalid; reading goes on with the next line.
    """

    def __init__(self, lines: list[str], layout: Layout) -> None:
        self._lines, self._layout, self._read = lines, layout, 0
        self.error: csv.Error | None = None
        self.open_at_end = False

    def __iter__(self) -> Iterator[tuple[int, list[str] | None]]:
        if not self._layout.quotes:
            for at, line in enumerate(self._lines):
                if line.strip():
                    yield at, line.removesuffix("\r").split(self._layout.separator)
            return
        start = 0
        while start < len(self._lines):
            self._read, self.open_at_end = start, False
            records = csv.reader(self._feed(), delimiter=self._layout.separator, strict=True)
            try:
                for fields in records:
                    if len(fields) > 1 or (fields and fields[0].strip()):
                        yield start, fields
                    start = self._read
            except csv.Error as error:
                self.error = error
                yield start, None
                start += 1

    def _feed(self) -> Iterator[str]:
        while self._read < len(self._lines):
            self._read += 1
            yield self._lines[self._read - 1] + "\n"
        self.open_at_end = True


def _row(fields: list[str], wanted: list[_Wanted], width: int) -> list[Value] | None:
    """The values of a line, or None if it is no interaction."""
    row: list[Value] = []
    if len(fields) > width:
        return None
    for meaning, at, _ in wanted:
        value = meaning(fields[at]) if at < len(fields) else None
        if value is None:
            return None
        row.append(value)
    return row


def _meet_fault(
    fields: list[str] | None, layout: Layout, faults: Faults, place: str, error: csv.Error | None
) -> None:
    """Say what is wrong with a line."""
    width = len(layout.names)
    if fields is None:
        faults.meet(
            "that cannot be split into fields",
            place,
            f"the line cannot be split into fields ({error})",
            "close every quoted field, and double a quote that belongs to a value",
        )
    elif found := _BINARY.search("".join(fields)):
        _meet_binary(found[0], faults, place)
    elif len(fields) > width:
        faults.meet(
            "with too many fields",
            place,
            f"{len(fields)} fields, the last one {short(fields[-1])}, but {width} were expected "
            f"({listed(layout.names)})",
            "quote a field that contains the separator",
        )
    else:
        _meet_value(fields, layout, faults, place)


def _meet_binary(found: str, faults: Faults, place: str) -> None:
    if found == "\0":
        faults.meet(
            "with a zero byte",
            place,
            "a zero byte, so this is not a text file in UTF-8 or latin-1",
            "decompress it, or save it as CSV in UTF-8",
        )
    else:
        faults.meet(
            "that are not UTF-8",
            place,
            f"byte 0x{ord(found) - 0xDC00:02x} is not UTF-8",
            "save the file again as UTF-8, or say that its encoding is latin-1",
        )


def _meet_value(fields: list[str], layout: Layout, faults: Faults, place: str) -> None:
    """Say which of the values of a line is missing or wrong."""
    for role, at in layout.columns.items():
        column = f"column {at + 1} ({short(layout.names[at])})"
        expected, remedy = _EXPECTED[role]
        if at >= len(fields):
            found = (
                f"{column} is missing, because the line has {len(fields)} "
                f"field{'s' if len(fields) != 1 else ''}; {expected} was expected"
            )
            return faults.meet("with too few fields", place, found, remedy)
        if _meanings(layout)[role](fields[at]) is None:
            shown = short(fields[at]) if fields[at].strip() else "empty"
            found = f"{shown}, but {expected} was expected"
            return faults.meet(_REASONS[role], f"{place}, {column}", found, remedy)


def _id(text: str) -> str | None:
    return text.strip() or None


def _rating(text: str) -> float | None:
    return float(text) if is_number(text) else None


def _rating_or_none(text: str) -> float | None:
    return _rating(text) if text.strip() else math.nan


def _meanings(layout: Layout) -> Mapping[str, Callable[[str], Value | None]]:
    return _MEANING | {"rating": _rating_or_none} if layout.rating_may_be_empty else _MEANING


_MEANING: dict[str, Callable[[str], Value | None]] = {
    "user": _id,
    "item": _id,
    "rating": _rating,
    "timestamp": seconds,
}
