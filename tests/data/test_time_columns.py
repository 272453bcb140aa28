"""The whole column tells the unit of numbers and the order of dates; where it cannot, we ask."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data import delimited, time_columns
from cfuica.data.frames import as_events, as_plain_event
from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.data.readers import read_table
from cfuica.data.table import Interactions
from cfuica.data.time_columns import as_times, in_seconds
from cfuica.data.times import DATES, EITHER, pattern_of, seconds_by_format
from cfuica.errors import DataError, SettingsError
from tests.data.test_readers_agree import defined, is_time, outcome

DAY = 1_569_888_000  # 2019-10-01


def read(values, options: ReadOptions = FIND_OUT) -> list[int | None]:
    return in_seconds(as_times(pl.Series("when", values), options), options)[0].to_list()


@pytest.fixture(params=["csv", "parquet", "frame"])
def table(request, tmp_path):
    """What reads a column of times in one of the forms."""

    def make(times, options: ReadOptions = FIND_OUT) -> Interactions:
        frame = pl.DataFrame({"user": range(len(times)), "item": 7, "timestamp": times})
        if request.param == "frame":
            unit, form = options.time_unit, options.time_format
            return Interactions.from_frame(frame, time_unit=unit, time_format=form)
        path = tmp_path / f"x.{request.param}"
        {"csv": frame.write_csv, "parquet": frame.write_parquet}[request.param](path)
        return read_table(path, options)

    return make


@pytest.mark.parametrize(
    ("unit", "scale"), [("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9)]
)
def test_smaller_units_are_found_and_converted_with_a_note(table, unit, scale):
    made = table([DAY * scale, DAY * scale + scale - 1, 0])
    assert made.frame["timestamp"].to_list() == [DAY, DAY, 0]
    assert made.source_notes == (
        f"The times in 'timestamp' are {unit} since 1970: converted to seconds.",
    )


def test_seconds_and_small_numbers_stay_as_they_are(table):
    for times in ([DAY, DAY + 5, 0], [1, 2, 3], [-5, 0, 20_000]):
        made = table(times)
        assert made.frame["timestamp"].to_list() == times
        assert made.source_notes == ()


def test_units_that_are_mixed_are_refused_unless_one_is_given(table):
    times = [DAY, DAY * 1000]
    with pytest.raises(DataError, match=rf"such as {DAY} \(s\) and {DAY}000 \(ms\).*--time-unit"):
        table(times)
    assert table(times, ReadOptions(time_unit="s")).frame["timestamp"].to_list() == times
    in_ms = table(times, ReadOptions(time_unit="ms")).frame["timestamp"].to_list()
    assert in_ms == [DAY // 1000, DAY]


@pytest.mark.parametrize(
    ("times", "form"),
    [
        ([20260601, 20260602], "%Y%m%d"),
        ([2026060123, 2026060200], "%Y%m%d%H"),
        ([202606011230, 202512311230], "%Y%m%d%H%M"),
        ([20260601123000, 20260602123000, 0], "%Y%m%d%H%M%S"),
    ],
)
def test_numbers_that_look_like_dates_are_refused_with_the_remedy(table, times, form):
    with pytest.raises(DataError, match=rf"such as {times[0]},.* --time-format {form} "):
        table(times)
    made = table(times[:2], ReadOptions(time_format=form)).frame["timestamp"]
    expected = [dt.datetime.strptime(f"{time}+0000", f"{form}%z").timestamp() for time in times[:2]]
    assert made.to_list() == expected
    assert table(times, ReadOptions(time_unit="s")).frame["timestamp"].to_list() == times


@pytest.mark.parametrize(
    "text",
    [
        "2019-10-01 00:00:00 UTC", "2019-10-01T00:00:00Z", "2019-10-01 01:00:00+01:00",
        "2019-10-01T00:00:00.999Z", "2019/10/01", "2019/10/1 0:00", "01.10.2019", "1.10.2019 00:00",
        "2019-10-01", "2019-W40-2", "20191001T000000", "2019-09-30 19:00:00-0500",
    ],
)  # fmt: skip
def test_dates_of_common_forms_are_read(table, text):
    assert table([text, text]).frame["timestamp"].to_list() == [DAY, DAY]


def test_the_column_tells_the_day_from_the_month(table):
    day_first = table(["01/10/2019", "13/10/2019"])
    assert day_first.frame["timestamp"].to_list() == [DAY, DAY + 12 * 86_400]
    assert day_first.source_notes == (
        "Dates such as '13/10/2019' are read with the day first.",
    )  # fmt: skip
    month_first = table(["10-01-2019 00:00", "10-13-2019 00:00"])
    assert month_first.frame["timestamp"].to_list() == [DAY, DAY + 12 * 86_400]
    assert table(["10/10/2019"]).frame["timestamp"].to_list() == [DAY + 9 * 86_400]


def test_what_no_column_tells_is_asked_for(table):
    with pytest.raises(DataError, match=r"'01/10/2019'.*--time-format '%d/%m/%Y' or '%m/%d/%Y'"):
        table(["01/10/2019", "02/10/2019"])
    with pytest.raises(DataError, match=r"both '13/10/2019'.* and '10/13/2019'.*write them alike"):
        table(["13/10/2019", "10/13/2019"])
    options = ReadOptions(time_format="%d/%m/%Y")
    assert table(["01/10/2019"], options).frame["timestamp"].to_list() == [DAY]


def test_a_time_that_is_not_of_the_format_is_named(tmp_path):
    (tmp_path / "x.csv").write_text("user,item,time\n1,2,01/10/2019\n1,3,2019-10-01\n")
    with pytest.raises(
        DataError, match=r"line 3, has '2019-10-01' in column 3 .* must be a time of the form"
    ):
        read_table(tmp_path / "x.csv", ReadOptions(time_format="%d/%m/%Y"))


@pytest.mark.parametrize(
    "options",
    [
        ReadOptions(time_unit="ms", time_format="%Y"),
        ReadOptions(time_unit="days"),  # type: ignore[arg-type]
        ReadOptions(time_format="%Q"),
        ReadOptions(time_format="%H:%M"),
        ReadOptions(time_format=""),
    ],
)
def test_options_that_mean_nothing_are_refused(options, tmp_path):
    (tmp_path / "x.csv").write_text("user,item,time\n1,2,3\n")
    for reading in (lambda: read(["1"], options), lambda: read_table(tmp_path / "x.csv", options)):
        with pytest.raises(SettingsError, match=r"time (unit|format)"):
            reading()


def test_a_file_without_a_header_may_have_any_date(tmp_path):
    (tmp_path / "x.csv").write_text("ann,7,5,31.12.2019\nbob,7,5,01.10.2019\n")
    assert read_table(tmp_path / "x.csv").frame["timestamp"].to_list()[1] == DAY


def test_one_event_in_milliseconds_is_converted_too():
    assert as_plain_event([(1, 2, 3.0, DAY)], rated=False) == (1, 2, 3.0, DAY)
    event = [(1, 2, 3.0, DAY * 1000)]
    assert as_plain_event(event, rated=False) is None
    assert as_events(event).frame["timestamp"].to_list() == [DAY]


PIECES = [
    "1", "-7", "1.5", "1e3", "20190101", "2019-10-01", "2019/10/1", "1.10.2019", "01/10/2019",
    "13/10/2019", "10-13-2019", "T12:00", " 12:00:59", " 7:5", ".5", "Z", " UTC", "+01:00", "-0500",
    "+25:00", "x", " ", "\u0661", "0000-01-01", "2019-02-29", "2020-02-29", "2019-10/01", "1_0",
    "inf", "9" * 30, "2019-W40-2",
]  # fmt: skip
_texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=_texts, form=st.sampled_from([None, "%Y-%m-%d", "%d/%m/%Y %H:%M", "%Y%m%d"]))
def test_a_column_has_the_times_that_its_texts_are(text, form):
    options = ReadOptions(time_format=form)
    times = as_times(pl.Series([text]), options)
    assert (times.null_count() == 0) == is_time(text, form)
    if form is not None and is_time(text, form):
        assert in_seconds(times, options)[0][0] == seconds_by_format(text.strip(), form)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(_texts, min_size=1, max_size=4),
    bad_rows=st.sampled_from(["refuse", "skip"]),
    block=st.sampled_from([12, 1 << 20]),
)
def test_reading_columns_is_reading_every_line(texts, bad_rows, block):
    names = ("user", "item", "timestamp")
    layout = delimited.Layout(",", names, {role: at for at, role in enumerate(names)}, 0)
    data = "".join(f"1,7,{text}\n" for text in texts).encode()
    options = ReadOptions(bad_rows=bad_rows)
    assert outcome(data, layout, options, block) == defined(data, layout, options)


@settings(deadline=None)
@given(st.datetimes(min_value=dt.datetime(1000, 1, 1)))
def test_every_form_gives_the_same_second(moment):
    expected = int((moment.replace(microsecond=0) - dt.datetime(1970, 1, 1)).total_seconds())
    for form in ("%Y-%m-%dT%H:%M:%S.%fZ", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y %H:%M:%S UTC"):
        assert read([moment.strftime(form)]) == [expected]
    form = "%m/%d/%Y %H:%M:%S"
    assert read([moment.strftime(form)], ReadOptions(time_format=form)) == [expected]


def test_patterns_are_those_of_formats_with_leading_zeros_alone():
    assert pattern_of("%d.%m.%Y") == r"^(?P<d>[0-9]{2})\.(?P<m>[0-9]{2})\.(?P<Y>[0-9]{4})$"
    assert [pattern_of(form) for form in ("%y-%m-%d", "%Y%m", "%Y%Y%m%d", "%b%Y%m%d")] == [None] * 4
    forms = [*DATES, *(form for pair in EITHER.values() for form in pair)]
    assert len(set(forms)) == len(forms)


def test_a_long_column_is_taken_apart_in_slices(monkeypatch):
    texts = [f"{day:02d}/{month:02d}/2019" for day in (1, 13) for month in (1, 2, 12)]
    whole = read(texts)
    monkeypatch.setattr(time_columns, "_SLICE", 2)
    assert read(texts) == whole
