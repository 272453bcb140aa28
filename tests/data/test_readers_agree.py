"""The typed scan of a text gives what a plain definition does: csv line by line, every value."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from io import BytesIO

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cfuica import io
from cfuica.data.columns import Rows
from cfuica.data.delimited import parse
from cfuica.data.layout import ROLES, Layout, ReadOptions
from cfuica.data.time_columns import as_times, in_seconds
from cfuica.data.times import DATES, EITHER, seconds, seconds_by_format
from cfuica.errors import DataError
from tests.data.files import TEXT
from tests.data.test_readers_damaged import NUMBERS, ROWS, damaged

# The definition.

TRUTH = {"": False, **dict.fromkeys(["false", "0", "0.0", "no"], False)}
TRUTH |= dict.fromkeys(["true", "1", "1.0", "yes"], True)


def is_time(text: str, time_format: str | None = None) -> bool:
    """Whether the text is a time: of the format, or else a number or a date of any form."""
    text = text.strip()
    if time_format is not None:
        return seconds_by_format(text, time_format) is not None
    forms = (*DATES, *(form for pair in EITHER.values() for form in pair))
    return seconds(text) is not None or any(_is_date(text, form) for form in forms)


def _is_date(text: str, form: str) -> bool:
    found = re.fullmatch(form, text)
    if found is None:
        return False
    parts = {name: part or "0" for name, part in found.groupdict().items()}
    clock = ":".join(parts[name].zfill(2) for name in "HMS")
    zone = re.sub("(?i)0|utc|gmt", "", parts["zone"]) and parts["zone"]
    date = f"{parts['Y']}-{parts['m'].zfill(2)}-{parts['d'].zfill(2)}T{clock}"
    return seconds(f"{date}{zone.upper()}") is not None


def _id(text: str) -> str | None:
    # The separators of ASCII are no spaces to polars.
    return re.sub(r"^[^\S\x1c-\x1f]+|[^\S\x1c-\x1f]+$", "", text) or None


def _number(text: str) -> float | None:
    try:
        return float(text) if math.isfinite(float(text)) and "_" not in text else None
    except ValueError:
        return None


def _weight(text: str) -> float | None:
    weight = _number(text)
    return weight if weight is not None and weight > 0 else None


def _records(text: str, layout: Layout) -> Iterator[tuple[int, list[str] | None]]:
    """(number of its line, fields) of each record; None where quotes are invalid."""
    lines = text.removesuffix("\n").split("\n")
    at = 0
    while at < len(lines):
        if not layout.quotes:
            fields, n = lines[at].removesuffix("\r").split(layout.separator), 1
        else:
            reader = csv.reader(
                (line + "\n" for line in lines[at:]), delimiter=layout.separator, strict=True
            )
            try:
                fields, n = next(reader), reader.line_num
            except csv.Error:
                yield at + 1, None
                at += 1
                continue
        if len(fields) > 1 or "".join(fields).strip():
            yield at + 1, fields
        at += n


def _row(fields: list[str] | None, layout: Layout, options: ReadOptions) -> list | None:
    parsers: dict[str, Callable[[str], object]] = {
        "user": _id,
        "item": _id,
        "type": _id,
        "rating": _number,
        "weight": _weight,
        "timestamp": lambda text: text if is_time(text, options.time_format) else None,
        "removed": lambda text: TRUTH.get(text.strip().lower()),
    }
    if fields is None or len(fields) > len(layout.names):
        return None
    if re.search("[\0\udc80-\udcff]", "".join(fields)):
        return None
    row = []
    for role, at in layout.columns.items():
        if at >= len(fields) and role != "removed":
            return None
        text = fields[at] if at < len(fields) else ""
        value = parsers[role](text)
        if value is None and not (role == "rating" and not text.strip() and _keeps(options)):
            return None
        row.append(value)
    return row


def _keeps(options: ReadOptions) -> bool:
    return options.empty_rating == "keep"


def defined(data: bytes, layout: Layout, options: ReadOptions) -> tuple:
    """What reading must give: (columns, how many rows are left out, line of the first one), or the
    line that is refused."""
    data, encoding = data.removeprefix(b"\xef\xbb\xbf"), options.encoding
    if encoding is None:
        try:
            data.decode()
        except UnicodeDecodeError:
            encoding = "latin-1"
    text = data.decode(encoding or "utf-8", errors="surrogateescape")
    found = [(line, _row(fields, layout, options)) for line, fields in _records(text, layout)]
    bad = [line for line, row in found if row is None]
    good = [row for _, row in found if row is not None]
    if not good or (bad and options.bad_rows == "refuse"):
        return ("refused", bad[0] if bad else None)
    columns = dict(zip(layout.columns, map(list, zip(*good, strict=True)), strict=True))
    for role in {"user", "item"} & columns.keys():
        ids = columns[role]
        if all(re.fullmatch("0|-?[1-9][0-9]{0,18}", i) and -(2**63) <= int(i) < 2**63 for i in ids):
            columns[role] = [int(i) for i in ids]
    if "timestamp" in columns:
        # Only the whole column tells what its times mean.
        try:
            times = as_times(pl.Series(columns["timestamp"]), options)
            columns["timestamp"] = in_seconds(times, options)[0].to_list()
        except DataError:
            return ("refused", None)
    return (columns, len(bad), bad[0] if bad else None)


# What is compared with it.


def outcome(data: bytes, layout: Layout, options: ReadOptions, block: int = 1 << 20) -> tuple:
    rows = Rows(options, "x.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "_BLOCK", block)
        try:
            parse(lambda: BytesIO(data), layout, rows)
            frame, notes = rows.frame()
        except DataError as error:
            return ("refused", _first_line(str(error)))
    left_out = [note for note in notes if "rows are no interactions" in note]
    n = int(left_out[0].split()[0].replace(",", "")) if left_out else 0
    return (frame.to_dict(as_series=False), n, _first_line("".join(left_out)))


def _first_line(message: str) -> int | None:
    found = re.search(r"x\.csv, line ([0-9,]+)", message)
    return int(found[1].replace(",", "")) if found else None


PIECES = [
    *"019.-+eE_ \t\n\r,;\"'", "\r\n", '""', '"\n', '",', "::", "1,2,3,4\n", "a", "é", "\u2028",
    "\x85", "inf", "nan", "1e3", "007", "-0", "2001-01-31", "T12:00:00Z", '"a,b"', '"a""b"',
    "\ufeff", "NULL", '"1","2","3","4"\r\n', " 7 ,8, 3,9\n",
    # Lines that are nearly right.
    '5" x,2,3,4\n', '"a"b,2,3,4\n', '"a" ,2,3,4\n', 'a, "b",3,4\n', 'a,"b""",3,4\n', 'a"",b,3,4\n',
    '"a"b"c",2,3,4\n', "1,2\r,3,4\n", "a\rb,2,3,4\n", '"a\rb",2,3,4\n', '"a\n', 'b",2,3,4\n',
    "1,2,3,4,5\n", "1,2,3\n",
]  # fmt: skip
_blocks = st.sampled_from([3, 17, 1 << 20])
_options = st.builds(
    ReadOptions,
    bad_rows=st.sampled_from(["refuse", "skip"]),
    empty_rating=st.sampled_from(["refuse", "keep"]),
    encoding=st.sampled_from([None, "utf-8", "latin-1"]),
)


@pytest.mark.parametrize("separator", [",", "::"])
@settings(max_examples=120, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=25),
    options=_options,
    block=_blocks,
    wide=st.booleans(),
)
def test_a_text_of_any_pieces(separator, pieces, options, block, wide):
    names = (*ROLES, "note") if wide else ROLES
    layout = Layout(separator, names, {role: at for at, role in enumerate(ROLES)}, 0)
    text = "".join(pieces)
    data = (text.replace(",", "::") if separator == "::" else text).encode()
    assert outcome(data, layout, options, block) == defined(data, layout, options)


@pytest.mark.parametrize("separator", [",", "::", "\t"])
@settings(max_examples=100, deadline=None)
@given(data=st.data(), options=_options, block=_blocks)
def test_a_damaged_file(separator, data, options, block):
    form = {",": "csv", "::": "::", "\t": "tsv"}[separator]
    rows = data.draw(st.sampled_from([ROWS, NUMBERS]))
    text = data.draw(damaged(TEXT[form][1](rows).partition(b"\n")[2]))
    # csv refuses longer fields, and polars reads them.
    assume(max(map(len, text.split(b"\n"))) < csv.field_size_limit())
    layout = Layout.positional(separator)
    assert outcome(text, layout, options, block) == defined(text, layout, options)
