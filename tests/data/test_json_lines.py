"""JSON lines are read as the other forms are: the same roles, types and errors."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica import io
from cfuica.data import json_lines
from cfuica.data.layout import PAIR, ReadOptions
from cfuica.data.readers import read_table
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from tests.data.files import zstd

EVENTS = [
    {"customer": "ann", "sku": 7, "event_type": "view", "event_time": "2019-10-01 00:00:00 UTC"},
    {"customer": "bob", "sku": 8, "event_type": "cart", "event_time": "2019-10-01T00:00:01Z"},
]
ROWS = [("ann", 7, 1_569_888_000, "view"), ("bob", 8, 1_569_888_001, "cart")]


def text_of(events: list[dict]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


@pytest.fixture
def write(tmp_path):
    def written(text: str | bytes, name: str = "events.jsonl"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / name

    return written


@pytest.mark.parametrize(
    ("name", "packed"),
    [("a.jsonl", bytes), ("a.json", bytes), ("a.ndjson.gz", gzip.compress), ("a.zst", zstd)],
)
def test_objects_are_rows_in_any_file(write, name, packed):
    table = read_table(write(packed(b"\xef\xbb\xbf\n " + text_of(EVENTS).encode()), name))
    assert table.frame.columns == ["user", "item", "timestamp", "type"]
    assert table.frame.rows() == ROWS


def test_keys_may_come_in_any_order_and_be_absent(write):
    path = write('{"item": 1, "user": 2, "note": {"a": []}}\n\n{"user": 3, "rating": 4, "item": 5}')
    table = read_table(path, ReadOptions(empty_rating="keep"))
    assert table.frame.rows() == [(2, 1, None), (3, 5, 4.0)]
    with pytest.raises(DataError, match=r"events\.jsonl, line 1, has None in column 'rating'"):
        read_table(path)
    assert read_table(path, only=PAIR).frame.rows() == [(2, 1), (3, 5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"user": 1, "item"', r"line 2: .* is no JSON object \(.*; write one object per line"),
        ("[1, 2]", "line 2: '\\[1, 2\\]' is no JSON object; write"),
        ("nothing", "line 2: 'nothing' is no JSON object"),
        ("[" * 100_000, "line 2: .* is no JSON object"),
        (b'{"user": "\xff", "item": 2, "rating": 3}', "line 2: .* is no JSON object .*utf-8"),
        ('{"user": "\\ud800", "item": 2, "rating": 3}', "line 2: .* is no JSON object"),
        ('{"user": 1, "item": 2, "rating": NaN}', "line 2, has nan in column 'rating'"),
        ('{"user": {"id": 1}, "item": 2, "rating": 3}', "line 2, has None in column 'user'"),
    ],
)
def test_a_bad_line_is_named_or_left_out(write, line, message):
    line = line.encode() if isinstance(line, str) else line
    path = write(b'{"user": 1, "item": 1, "rating": 3}\n' + line + b"\n")
    with pytest.raises(DataError, match=message):
        read_table(path)
    table = read_table(path, ReadOptions(bad_rows="skip"))
    assert table.frame.rows() == [(1, 1, 3.0)]
    assert "left out" in table.source_notes[0]


def test_an_array_and_endless_lines_are_refused(write, monkeypatch):
    with pytest.raises(DataError, match=r"one JSON array, .*one object per line"):
        read_table(write('[\n {"user": 1, "item": 2}]', "x.json"))
    monkeypatch.setattr(io, "_LONGEST", 20)
    monkeypatch.setattr(io, "_BLOCK", 16)
    with pytest.raises(DataError, match="line 1: more than 20 bytes without a line end"):
        read_table(write('{"user": 1, "item": 2, "rating": 3}'))


def test_no_column_for_the_user_names_the_option(write):
    with pytest.raises(DataError, match=r"line 1: no column for user .*--user-column"):
        read_table(write('{"who": 1, "item": 2}\n'))
    options = ReadOptions(user="who")
    assert read_table(write('{"who": 1, "item": 2}\n'), options).frame.rows() == [(1, 2)]


@settings(max_examples=40, deadline=None)
@given(
    users=st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
        st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=5),
    ),
    lines=st.sampled_from([1, 2, 100]),
)
def test_what_was_written_is_read(tmp_path_factory, users, lines):
    path = tmp_path_factory.getbasetemp() / "x.jsonl"
    path.write_text(text_of([{"user": user, "item": at} for at, user in enumerate(users)]))
    expected = Interactions.from_frame({"user": users, "item": range(len(users))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_LINES", lines)
        assert read_table(path).sha256() == expected.sha256()


def test_ids_of_two_types_are_text_wherever_they_stand(write, monkeypatch):
    path = write(text_of([{"user": user, "item": 1} for user in (1, 2, "x", 2**70)]))
    for lines in (1, 2, 100):
        monkeypatch.setattr(json_lines, "_LINES", lines)
        assert read_table(path).frame["user"].to_list() == ["1", "2", "x", str(2**70)]


def test_lines_and_values_that_are_bad_are_counted_together(write):
    good, worse = '{"user": 1, "item": 2, "rating": 3}', '{"user": 1, "item": 4, "rating": "x"}'
    path = write(f"{good}\n{worse}\nnothing\n")
    with pytest.raises(DataError, match="line 2, has 'x' in column 'rating'"):
        read_table(path)
    (note,) = read_table(path, ReadOptions(bad_rows="skip")).source_notes
    assert note.startswith("2 of 3 rows are no interactions and were left out (1 that are no JSON")
