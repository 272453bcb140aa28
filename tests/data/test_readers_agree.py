"""Reading columns and reading lines are two readers of one language."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data import delimited
from cfuica.data.layout import ROLES, Layout, ReadOptions
from cfuica.errors import DataError

PIECES = [
    *"019.-+eE_ \t\n\r,;\"'", "\r\n", '""', '"\n', '",', "::", "1,2,3,4\n", "a", "é", "\u2028",
    "\x85", "inf", "nan", "1e3", "007", "-0", "2001-01-31", "T12:00:00Z", '"a,b"', '"a""b"',
    "\ufeff", "NULL", '"1","2","3","4"\r\n', " 7 ,8, 3,9\n",
    # Lines that are nearly right.
    '5" x,2,3,4\n', '"a"b,2,3,4\n', '"a" ,2,3,4\n', 'a, "b",3,4\n', 'a,"b""",3,4\n', 'a"",b,3,4\n',
    '"a"b"c",2,3,4\n', "1,2\r,3,4\n", "a\rb,2,3,4\n", '"a\rb",2,3,4\n', '"a\n', 'b",2,3,4\n',
    "1,2,3,4,5\n", "1,2,3\n",
]  # fmt: skip


@pytest.mark.parametrize("separator", [",", "::"])
@pytest.mark.parametrize("bad_rows", ["refuse", "skip"])
@settings(max_examples=120, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=25),
    block=st.sampled_from([3, 17, 1 << 20]),
    wide=st.booleans(),
)
def test_the_result_is_that_of_reading_every_line(separator, bad_rows, pieces, block, wide):
    names = (*ROLES, "note") if wide else ROLES
    layout = Layout(separator, names, {role: at for at, role in enumerate(ROLES)}, 0)
    text = "".join(pieces)
    data = (text.replace(",", "::") if separator == "::" else text).encode()
    options = ReadOptions(bad_rows=bad_rows)
    slow = outcome(data, layout, options, block=1 << 20, fast=False)
    assert outcome(data, layout, options, block=block, fast=True) == slow


def outcome(data, layout, options, *, block, fast):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK", block)
        if not fast:
            patch.setattr(delimited._Reader, "_columns", lambda self, block: None)
        try:
            frame, notes = delimited.parse(lambda: BytesIO(data), layout, "x.csv", options)
        except DataError as error:
            return str(error)
    return frame.schema, frame.rows(), notes
