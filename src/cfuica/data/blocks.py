"""A stream of text in blocks of whole records, so that no file has to fit into memory."""

from __future__ import annotations

import numpy as np

_QUOTE, _LINE, _RETURN = (ord(char) for char in '"\n\r')


def whole_records(data: bytes, separator: str, quotes: bool, *, last: bool) -> int | None:
    """How many bytes of `data` are whole records; None if its quotes are not regular.

    Quotes are regular where each pair encloses one field, or adjoins another pair inside one
    (a doubled quote); with `quotes` false they are characters like any other. `data` starts with
    a record, and ends with one if it is the `last` of its file.
    """
    if not quotes or b'"' not in data:
        return len(data) if last else data.rfind(b"\n") + 1
    inner = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(inner == _QUOTE)
    if last and at.size % 2:
        return None
    # A line end at either side: a field may start the data or end it.
    padded = np.full(inner.size + 2, _LINE, np.uint8)
    padded[1:-1] = inner
    around = [ord(separator), _LINE, _QUOTE]
    before_open = padded[at[0::2]]
    after_close = padded[at[1::2] + 2]
    if not (np.isin(before_open, around).all() and np.isin(after_close, [*around, _RETURN]).all()):
        return None
    if last:
        return len(data)
    ends = np.flatnonzero(inner == _LINE)
    outside = ends[np.searchsorted(at, ends) % 2 == 0]
    return int(outside[-1]) + 1 if outside.size else 0


def end_of_lines(data: bytes, n: int) -> int:
    """Where the first n lines of `data` end; it has as many line ends."""
    return int(np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE)[n - 1]) + 1 if n else 0
