"""How a delimited text file is laid out, found from its first line."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass

from cfuica.errors import DataError

ROLES = ("user", "item", "rating", "timestamp")

# Compared without case, underscores, hyphens and spaces; the first of several matches wins.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "userid", "uid"),
    "item": ("item", "itemid", "movieid", "iid", "productid"),
    "rating": ("rating", "score", "stars", "label"),
    "timestamp": ("timestamp", "time", "ts", "unixtimestamp"),
}
_SPELT = "user (or user_id, uid) and item (or item_id, movie_id, product_id)"
_SEPARATORS = ("\t", ",", ";", "|")


@dataclass(frozen=True)
class Layout:
    """Where in a line each part of a behaviour stands."""

    separator: str
    names: tuple[str, ...]
    """What to call each field of a line in a message."""
    columns: Mapping[str, int]
    """Role (user, item, rating, timestamp) to the position of its field."""
    skip_lines: int
    """Lines before the first behaviour: blank ones, and the header if there is one."""

    @classmethod
    def positional(cls, separator: str, width: int = 4, *, skip_lines: int = 0) -> Layout:
        """No header: user, item, rating, and perhaps timestamp, in this order."""
        names = ROLES[:width]
        return cls(separator, names, {role: at for at, role in enumerate(names)}, skip_lines)

    @classmethod
    def of_text(cls, start: str, name: str) -> Layout:
        """Find the layout from the beginning of the file called `name`."""
        lines = [line.rstrip("\r") for line in start.removeprefix("\ufeff").split("\n")]
        first = next((at for at, line in enumerate(lines) if line.strip()), None)
        if first is None:
            raise DataError(
                f"{name} is empty, but behaviours were expected: one per line, with a header that "
                f"names {_SPELT}."
            )
        line = lines[first]
        if "\r" in line:
            raise DataError(
                f"{name}, line {first + 1}: {_short(line)} contains a carriage return, but lines "
                f"must end with a newline; save the file again with the line ends of today."
            )
        separator = _separator(line)
        if separator is None:
            raise DataError(
                f"{name}, line {first + 1}: {_short(line)} has only one field, but at least user "
                f"and item were expected; separate the fields by a comma, tab, semicolon, '|' or "
                f"'::'."
            )
        fields = [field.strip() for field in split_line(line, separator)]
        columns = columns_by_name(fields)
        if "user" in columns and "item" in columns:
            return cls(separator, tuple(fields), columns, first + 1)
        if not columns and len(fields) in (3, 4) and is_number(fields[2]):
            return cls.positional(separator, len(fields), skip_lines=first)
        missing = " and ".join(role for role in ("user", "item") if role not in columns)
        raise DataError(
            f"{name}, line {first + 1}: no column for {missing} among "
            f"{', '.join(repr(field) for field in fields)}; name the columns {_SPELT}, or leave "
            f"the header out and give 3 or 4 columns: user, item, rating, timestamp."
        )


def split_line(line: str, separator: str) -> list[str]:
    """The fields of one line; only `::` knows no quotes."""
    if separator == "::":
        return line.split(separator)
    return next(csv.reader([line], delimiter=separator))


def is_number(text: str) -> bool:
    """Whether the text is a finite number in the notation that a reader of columns accepts."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _separator(line: str) -> str | None:
    if "::" in line:
        return "::"
    best = max(_SEPARATORS, key=lambda separator: len(split_line(line, separator)))
    return best if len(split_line(line, best)) > 1 else None


def columns_by_name(fields: list[str]) -> dict[str, int]:
    """Role to the position of its column, for the roles that a name is known for."""
    plain = [field.casefold().translate(str.maketrans("", "", "_- ")) for field in fields]
    found = {}
    for role, names in _NAMES.items():
        match = next((name for name in names if name in plain), None)
        if match is not None:
            found[role] = plain.index(match)
    return found


def _short(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")
