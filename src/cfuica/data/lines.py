"""Read a text line by line, up to the first one that is not a behaviour, and say what is wrong.

Reading columns is fast but knows no lines. This is slow and knows them; it runs only once
something in a text is known to be unusual.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator

from cfuica.data.layout import Layout, is_number
from cfuica.errors import DataError

_EXPECTED = {
    "user": ("a user id", "give every behaviour a user"),
    "item": ("an item id", "give every behaviour an item"),
    "rating": ("a finite number", "correct the rating or remove the line"),
    "timestamp": ("seconds since 1970 as a number", "correct the time or remove the column"),
}


def sound_lines(text: str, layout: Layout, name: str) -> Iterator[list[str]]:
    """The fields of each line, blank ones left out; a DataError at the first faulty one."""
    number = layout.skip_lines
    try:
        for number, fields in _lines(text, layout):
            _check(fields, layout, f"{name}, line {number}")
            yield fields
    except csv.Error as error:
        raise DataError(
            f"{name}, line {number + 1}: the line cannot be split into fields ({error}); close "
            f"every quoted field, and double a quote that belongs to a value."
        ) from error


def _lines(text: str, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """(line number from 1, fields) of each line that is not blank, the header left out."""
    # Split at newlines only: str.splitlines would also split at characters that ids may contain.
    lines = text.removeprefix("\ufeff").split("\n")[layout.skip_lines :]
    if layout.separator == "::":
        for number, line in enumerate(lines, layout.skip_lines + 1):
            if line.strip():
                yield number, line.rstrip("\r").split("::")
        return
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=layout.separator, strict=True)
    for fields in reader:
        if len(fields) > 1 or (fields and fields[0].strip()):
            yield layout.skip_lines + reader.line_num, fields


def _check(fields: list[str], layout: Layout, place: str) -> None:
    if len(fields) > len(layout.names):
        raise DataError(
            f"{place}: {len(fields)} fields, the last one {fields[-1]!r}, but {len(layout.names)} "
            f"were expected ({', '.join(layout.names)}); quote a field that contains the separator."
        )
    for role, at in layout.columns.items():
        column = f"column {at + 1} ('{layout.names[at]}')"
        expected, remedy = _EXPECTED[role]
        if at >= len(fields):
            raise DataError(
                f"{place}: {column} is missing, because the line has {len(fields)} "
                f"field{'s' if len(fields) != 1 else ''}; {expected} was expected; {remedy}."
            )
        value = fields[at]
        good = is_number(value) if role in ("rating", "timestamp") else bool(value.strip())
        if good and role == "timestamp":
            good = math.fabs(float(value)) < 2**63
        if not good:
            shown = repr(value) if value.strip() else "empty"
            raise DataError(f"{place}, {column}: {shown}, but {expected} was expected; {remedy}.")
