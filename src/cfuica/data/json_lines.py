"""Reader of JSON lines (one object per line; plain, gzip or zstd) into `Interactions`.

The keys of the objects are the columns, with the names and options of the other readers.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from cfuica.data.columns import canonical_rows
from cfuica.data.layout import FIND_OUT, Faults, ReadOptions, columns_of, short
from cfuica.data.memory import Memory
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.io import Stream, open_content, shown

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20  # Bytes that are read at a time.
_LINES = 1 << 16  # Lines that become columns at a time.
# A text without a line end is none; it must not fill the memory before we say so.
_LONGEST = 1 << 24


def holds_json(path: Path) -> bool:
    """Whether the text begins with an object; an array of objects is refused."""
    with open_content(path, shown(path)) as stream:
        start = stream.read(1 << 10).removeprefix(_BOM).lstrip()
    if start.startswith(b"[") and start[1:].lstrip().startswith(b"{"):
        raise DataError(
            f"{shown(path)} is one JSON array, but JSON lines were expected; write one object per "
            f"line, for example by jq -c '.[]'."
        )
    return start.startswith(b"{")


def read_json_lines(
    path: str | Path, options: ReadOptions = FIND_OUT, *, only: tuple[str, ...] | None = None
) -> Interactions:
    """Read one object per line; a key that is missing or null is a missing value.

    With `only` the rows are not interactions: only these columns are read, and every row stays.
    """
    path = Path(path)
    name = shown(path)
    faults, memory = Faults(name, skip=options.bad_rows == "skip"), Memory.of(name, options)
    keys: dict[str, str] = {}  # Role to the key of its values.
    parts: dict[str, list[pl.Series]] = {}
    numbers = array("q")  # Line number of each row.
    with open_content(path, name) as stream:
        objects = _objects(stream, faults, options.encoding or "utf-8")
        while lines := list(islice(objects, _LINES)):
            if not keys:
                names = list(dict.fromkeys(key for _, each in lines for key in each))
                place = f"{name}, line {lines[0][0]}"
                positions = columns_of(names, options, place, only=only)
                keys = {role: names[at] for role, at in positions.items()}
            for role, key in keys.items():
                column = _column([each.get(key) for _, each in lines])
                memory.take(int(column.estimated_size()))
                parts.setdefault(role, []).append(column)
            numbers.extend(number for number, _ in lines)
    notes = faults.notes(len(numbers))
    columns = {role: _joined(parts[role]).alias(key) for role, key in keys.items()}
    try:
        frame, more = canonical_rows(
            columns, lambda row: f"{name}, line {numbers[row]:,},", options
        )
    except DataError as error:
        raise error if name in str(error) else DataError(f"{name}: {error}") from None
    return Interactions.of_rows(
        frame, options=options, repeats=only is not None, source=name, source_notes=notes + more
    )


def _objects(stream: Stream, faults: Faults, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of its line, object) of every line that is not blank."""
    for number, line in enumerate(_lines(stream, faults.name), start=1):
        if not line.strip():
            continue
        try:
            text = line.decode(encoding)
            found = json.loads(text)
            if "\\u" in text:
                # Half of a pair of surrogates is no text.
                json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            found, reason = None, f" ({error})"
        else:
            reason = ""
        if isinstance(found, dict):
            yield number, found
        else:
            what = short(line.decode("utf-8", errors="replace").strip())
            faults.meet(
                "that are no JSON object",
                f"line {number}",
                f"{what} is no JSON object{reason}",
                "write one object per line",
            )


def _lines(stream: Stream, name: str) -> Iterator[bytes]:
    number, rest = 1, stream.read(_BLOCK).removeprefix(_BOM)
    while more := stream.read(_BLOCK):
        *lines, rest = (rest + more).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > _LONGEST:
            raise DataError(
                f"{name}, line {number}: more than {_LONGEST:,} bytes without a line end, but one "
                f"object per line was expected; write it so."
            )
    yield from rest.split(b"\n")


def _column(values: list[Any]) -> pl.Series:
    """The values as one type, as text where they have several; objects and lists are missing."""
    values = [None if isinstance(value, dict | list) else value for value in values]
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int, float}:
        try:
            return pl.Series(values, dtype=pl.Float64 if float in kinds else pl.Int64)
        except (OverflowError, TypeError):
            pass  # a number of too many digits, which may be an id
    if kinds == {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    return pl.Series([None if each is None else str(each) for each in values], dtype=pl.String)


def _joined(parts: list[pl.Series]) -> pl.Series:
    """Parts of different types are text, but for whole and other numbers."""
    kinds = {part.dtype for part in parts if part.null_count() < part.len()}
    if len(kinds) != 1:
        kinds = {pl.Float64() if kinds <= {pl.Int64(), pl.Float64()} else pl.String()}
    return pl.concat([part.cast(*kinds) for part in parts])
