"""Types, weights and removals of events are read alike from text, columns and frames."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data import delimited
from cfuica.data.frames import as_pairs
from cfuica.data.layout import FIND_OUT, PAIR, ReadOptions
from cfuica.data.readers import read_table
from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError
from tests.data.test_readers_agree import defined, outcome

EVENTS = pl.DataFrame(
    {
        "user_id": [1, 2, 3],
        "event_type": ["view", "cart", "purchase"],
        "item_id": [10, 10, 20],
        "weight": [1.0, 2.5, 1.0],
        "removed": [None, "yes", "0"],
    }
)
WRITERS = {"csv": pl.DataFrame.write_csv, "parquet": pl.DataFrame.write_parquet}
REMOVALS = ReadOptions(removals=True)


@pytest.fixture(params=["csv", "parquet", "frame"])
def read(request, tmp_path):
    """What reads a frame in one of the forms."""

    def reader(frame: pl.DataFrame, options: ReadOptions = FIND_OUT) -> Interactions:
        if request.param == "frame":
            names = {"user_id": "user", "item_id": "item", "event_type": "type"}
            asked = {role: getattr(options, role) for role in ("type", "weight")}
            return Interactions.from_frame(
                frame.rename(names, strict=False),
                removals=options.removals,
                bad_rows=options.bad_rows,
                **{role: name or None for role, name in asked.items() if name is not None},
            )
        path = tmp_path / f"events.{request.param}"
        WRITERS[request.param](frame, path)
        return read_table(path, options)

    return reader


def test_types_and_weights_are_read_where_a_table_has_them(read):
    frame = read(EVENTS).frame
    assert frame.schema == {
        "user": pl.Int64, "item": pl.Int64, "type": pl.String, "weight": pl.Float64
    }  # fmt: skip
    assert frame.rows() == [(1, 10, "view", 1.0), (2, 10, "cart", 2.5), (3, 20, "purchase", 1.0)]


def test_removals_are_read_from_events_alone(read):
    frame = read(EVENTS, REMOVALS).frame
    assert frame.schema["removed"] == pl.Boolean
    assert frame["removed"].to_list() == [False, True, False]
    assert "removed" not in read(EVENTS).frame.columns


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("event_type", None, "type"),
        ("event_type", " ", "type"),
        ("weight", 0.0, "above 0"),
        ("weight", -1.0, "above 0"),
        ("weight", float("inf"), "above 0"),
        ("weight", None, "above 0"),
        ("removed", "perhaps", "true or false"),
    ],
)
def test_a_bad_value_is_refused_or_left_out(read, column, value, message):
    values = pl.Series(column, [value, *EVENTS[column][1:]], EVENTS.schema[column])
    bad = EVENTS.with_columns(values)
    with pytest.raises(DataError, match=message):
        read(bad, REMOVALS)
    table = read(bad, ReadOptions(removals=True, bad_rows="skip"))
    assert table.frame["user"].to_list() == [2, 3]
    assert len(table.source_notes) == 1


def test_other_columns_serve_by_option_and_none_by_an_empty_name(read):
    frame = EVENTS.rename({"event_type": "type"}).with_columns(kind=pl.lit("x"), n=pl.lit(7))
    own = read(frame, ReadOptions(type="kind", weight="n")).frame
    assert own.select("type", "weight").rows() == [("x", 7.0)] * 3
    assert read(frame, ReadOptions(type="", weight="")).frame.columns == ["user", "item"]


def test_pairs_to_predict_have_neither(tmp_path):
    path = tmp_path / "events.csv"
    EVENTS.with_columns(weight=pl.lit(0)).write_csv(path)
    assert read_table(path, only=PAIR).frame.columns == list(PAIR)
    pairs = as_pairs({"user": [1], "item": [2], "type": [None], "weight": [0]})
    assert pairs.frame.columns == list(PAIR)


def test_a_file_without_a_header_stays_what_it_was(tmp_path):
    (tmp_path / "x.csv").write_text("ann,action,5\nbob,plays,4\n")
    rows = [("ann", "action", 5.0), ("bob", "plays", 4.0)]
    assert read_table(tmp_path / "x.csv").frame.rows() == rows


def test_movielens_has_neither(tmp_path):
    (tmp_path / "ratings.dat").write_text("1::10::4::978300760\n")
    with pytest.raises(SettingsError, match="weight was given"):
        read_table(tmp_path, ReadOptions(weight="2"))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["1", "2", ""]),
            st.sampled_from(["view", " cart ", "", " ", '""', "\u2028x"]),
            st.sampled_from(["1", "0.5", "", "0", "-1", "nan", "inf", "1e400", "1_0", " 2"]),
            st.sampled_from([",true", ",", "", ",No", ", YES", ",1.0", ",2", ',""']),
        ),
        min_size=1,
        max_size=4,
    ),
    bad_rows=st.sampled_from(["refuse", "skip"]),
)
def test_reading_columns_is_reading_every_line(rows, bad_rows):
    names = ("user", "item", "type", "weight", "removed")
    layout = delimited.Layout(",", names, {role: at for at, role in enumerate(names)}, 0)
    data = "".join(f"{user},7,{kind},{weight}{rest}\n" for user, kind, weight, rest in rows)
    options = ReadOptions(bad_rows=bad_rows, removals=True)
    assert outcome(data.encode(), layout, options) == defined(data.encode(), layout, options)
