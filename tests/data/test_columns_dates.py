from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.data.columns import date_of, day_of, seconds_of
from cfuica.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2000-11-20", 974_678_400),
        ("974678400", 974_678_400),
        ("-5", -5),
        ("2000-11-20T12:00:00", 974_721_600),
        ("2000-11-20T12:00:00+01:00", 974_718_000),
        ("2000-11-20T12:00:00Z", 974_721_600),
        ("2000-11-20T12:00:00.25", 974_721_601),
        ("1969-12-31T23:59:58.5", -1),
        (" 1.5 ", 2),
    ],
)
def test_dates_are_in_utc_unless_they_say_otherwise(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "yesterday", "20.11.2000", "2000-13-01", "1_0", "nan", "9" * 20]
)
def test_what_is_not_a_date_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a date: give one like 2000-11-20"):
        seconds_of(text)


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_a_date_reads_as_it_was_written(seconds: int) -> None:
    assert seconds_of(date_of(seconds)) == seconds


def test_seconds_outside_the_calendar_stay_a_number() -> None:
    assert date_of(10**15) == "1000000000000000"
    assert day_of(10**15) == "1000000000000000"


def test_a_day_is_the_date_without_its_time() -> None:
    assert day_of(974_678_400) == "2000-11-20"
