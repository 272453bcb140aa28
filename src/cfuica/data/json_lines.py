"""Reader of JSON lines (one object per line; plain, gzip or zstd).

The keys of the objects are the columns, with the names and options of the other readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import polars as pl

from cfuica.data.columns import Fault, Rows
from cfuica.data.layout import PAIR, columns_of, short
from cfuica.errors import DataError
from cfuica.io import Stream, open_content, shown

_BOM = b"\xef\xbb\xbf"
_LINES = 1 << 16  # Lines that become columns at a time.


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


def read_json_lines(path: Path, rows: Rows, only: tuple[str, ...] | None = None) -> None:
    """Read one object per line; a key that is missing or null is a missing value.

    With `only` the rows are not interactions: only these columns are read.
    """
    name, options = rows.name, rows.options
    keys: dict[str, str] = {}  # Role to the key of its values, from the first object on.
    nothing = {role: role for role in only or PAIR}
    with open_content(path, name) as stream:
        objects = _objects(stream, options.encoding or "utf-8")
        while lines := list(islice(objects, _LINES)):
            numbers, found, faults = zip(*lines, strict=True)
            if not keys and any(found):
                names = list(dict.fromkeys(key for each in found for key in each))
                first = next(number for number, each in zip(numbers, found, strict=True) if each)
                positions = columns_of(names, options, f"{name}, line {first}", only=only)
                keys = {role: names[at] for role, at in positions.items()}
            columns = {
                role: _column([each.get(key) for each in found]).alias(key)
                for role, key in (keys or nothing).items()
            }
            bad = {row: fault for row, fault in enumerate(faults) if fault is not None}
            rows.add(columns, partial(_place, name, numbers), bad)
            rows.report(stream.done)


def _place(name: str, numbers: tuple[int, ...], row: int) -> str:
    return f"{name}, line {numbers[row]:,},"


def _objects(stream: Stream, encoding: str) -> Iterator[tuple[int, dict[str, Any], Fault | None]]:
    """(number of its line, object, what is wrong with it) of every line that is not blank."""
    blocks = (block.removesuffix(b"\n").split(b"\n") for block, _ in stream.blocks())
    for number, line in enumerate(chain.from_iterable(blocks), start=1):
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
            yield number, found, None
        else:
            what = short(line.decode("utf-8", errors="replace").strip())
            said = f"{what} is no JSON object{reason}"
            yield number, {}, ("that are no JSON object", said, "write one object per line")


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
