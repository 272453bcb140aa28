"""Read a text line by line, and say what is wrong with a line that is not a behaviour.

Reading columns is fast but knows no lines. This is slow and knows them; it runs only where
something in a text is known to be unusual.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from cfuica.data.faults import Faults
from cfuica.data.layout import Layout, is_number, listed, short
from cfuica.data.times import seconds

_EXPECTED = {
    "user": ("a user id", "give every behaviour a user"),
    "item": ("an item id", "give every behaviour an item"),
    "rating": ("a finite number", "correct the rating or remove the line"),
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
# What a byte that is not UTF-8 becomes under "surrogateescape".
_UNDECODED = re.compile("[\udc80-\udcff]")

Values = dict[str, list[str | float | int]]


def read_lines(
    text: str, layout: Layout, faults: Faults, *, first_line: int, last: bool
) -> tuple[Values, int]:
    """(values by role of each good row, number of lines read) of a text of whole lines.

    Blank lines are no rows. Unless the text is the `last` of its file, a quoted field that its end
    leaves open is not read: the lines that close it are still to come.
    """
    values: Values = {role: [] for role in layout.columns}
    lines = text.split("\n")
    if lines[-1] == "":
        del lines[-1]
    undecoded = "\0" in text or _UNDECODED.search(text) is not None
    reader = _Records(lines, layout)
    for at, fields in reader:
        place = f"line {first_line + at}"
        if fields is None:
            if reader.open_at_end and not last:
                return values, at
            faults.meet(
                "that cannot be split into fields",
                place,
                f"the line cannot be split into fields ({reader.error})",
                "close every quoted field, and double a quote that belongs to a value",
            )
        elif not (undecoded and _is_binary(fields, place, faults)):
            _keep(fields, layout, place, faults, values)
    return values, len(lines)


class _Records:
    """(number of its first line, from 0; fields) of each record that is not blank.

    Where the quotes of a record make no sense its fields are None, and reading goes on with the
    next line.
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


def _is_binary(fields: list[str], place: str, faults: Faults) -> bool:
    """Whether the line is no text; the fault is met."""
    line = "".join(fields)
    byte = _UNDECODED.search(line)
    if "\0" in line:
        faults.meet(
            "with a zero byte",
            place,
            "a zero byte, so this is not a text file in UTF-8 or latin-1",
            "decompress it, or save it as CSV in UTF-8",
        )
    elif byte is not None:
        faults.meet(
            "that are not UTF-8",
            place,
            f"byte 0x{ord(byte[0]) - 0xDC00:02x} is not UTF-8",
            "save the file again as UTF-8, or say that its encoding is latin-1",
        )
    return "\0" in line or byte is not None


def _keep(fields: list[str], layout: Layout, place: str, faults: Faults, values: Values) -> None:
    """Append the line's values; or else a fault is met."""
    width = len(layout.names)
    if len(fields) > width:
        faults.meet(
            "with too many fields",
            place,
            f"{len(fields)} fields, the last one {short(fields[-1])}, but {width} were expected "
            f"({listed(layout.names)})",
            "quote a field that contains the separator",
        )
        return
    row: list[tuple[str, str | float | int]] = []
    for role, at in layout.columns.items():
        column = f"column {at + 1} ({short(layout.names[at])})"
        expected, remedy = _EXPECTED[role]
        if at >= len(fields):
            plural = "s" if len(fields) != 1 else ""
            faults.meet(
                "with too few fields",
                place,
                f"{column} is missing, because the line has {len(fields)} field{plural}; "
                f"{expected} was expected",
                remedy,
            )
            return
        value = _value(role, fields[at])
        if value is None:
            shown = short(fields[at]) if fields[at].strip() else "empty"
            faults.meet(
                _REASONS[role],
                f"{place}, {column}",
                f"{shown}, but {expected} was expected",
                remedy,
            )
            return
        row.append((role, value))
    for role, value in row:
        values[role].append(value)


def _value(role: str, text: str) -> str | float | int | None:
    """What the field means, or None if it means nothing."""
    if role == "rating":
        return float(text) if is_number(text) else None
    if role == "timestamp":
        return seconds(text)
    return text.strip() or None
