"""Times as text has them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.data.times import seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (" 12 ", 12),
        ("-1.5", -2),
        ("1e3", 1000),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("1e30", None),
        ("nan", None),
        ("inf", None),
        ("1_0", None),
        ("", None),
        ("yesterday", None),
        ("2001-02-30", None),
        ("31/01/2001", None),
        ("9" * 5000, None),
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.9", -1),
        ("2001-01-31T12:00:00Z", 980_942_400),
        ("2001-01-31 12:00:00+02:00", 980_935_200),
    ],
)
def test_numbers_and_dates_are_seconds_and_nothing_else_is(text, expected):
    assert seconds(text) == expected


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_any_date_is_its_seconds(moment):
    whole = moment.replace(microsecond=0)
    assert dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
        seconds=seconds(moment.isoformat()) or 0
    ) == (whole)
