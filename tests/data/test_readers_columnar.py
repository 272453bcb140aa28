"""Parquet and Arrow IPC files."""

from __future__ import annotations

import datetime as dt
import os
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from cfuica.data.layout import PAIR, ReadOptions
from cfuica.data.readers import read_table
from cfuica.data.table import Interactions
from cfuica.errors import DataError

COLUMNS = {
    "user": ["b", "a", "b"],
    "item": [10, 9, 9],
    "rating": [4.0, 2.0, 5.0],
    "timestamp": [30, 20, 10],
}


def parquet(path: Path, table: pa.Table) -> Path:
    pl.DataFrame(table).write_parquet(path)
    return path


def arrow_parquet(path: Path, table: pa.Table) -> Path:
    pa.parquet.write_table(table, path, row_group_size=2)
    return path


def ipc_file(path: Path, table: pa.Table, **options: object) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, **options) as file:
        file.write_table(table, max_chunksize=2)
    return path


def ipc_stream(path: Path, table: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    return path


def compressed(path: Path, table: pa.Table) -> Path:
    return ipc_file(path, table, options=pa.ipc.IpcWriteOptions(compression="zstd"))


WRITERS = [parquet, arrow_parquet, ipc_file, ipc_stream, compressed]
every_kind = pytest.mark.parametrize("write", WRITERS)


@every_kind
def test_every_kind_of_file_gives_the_table_of_its_frame(write, tmp_path):
    path = write(tmp_path / "ratings", pa.table(COLUMNS))
    table = read_table(path)
    assert table.frame.to_dict(as_series=False) == COLUMNS
    assert table.sha256() == Interactions.from_frame(COLUMNS).sha256()
    assert table.source == str(path)
    assert table.source_notes == ()


@every_kind
def test_columns_are_found_by_the_names_of_text_files_and_others_are_left_behind(write, tmp_path):
    given = {
        "note": [b"x"] * 3,
        "Timestamp": COLUMNS["timestamp"],
        "score": COLUMNS["rating"],
        "more": [[1], [2], [3]],
        "movieId": COLUMNS["item"],
        "user_id": COLUMNS["user"],
    }
    table = read_table(write(tmp_path / "ratings", pa.table(given)))
    assert table.frame.to_dict(as_series=False) == COLUMNS


@every_kind
@pytest.mark.parametrize(
    "told",
    [
        {"user": "who", "item": "what", "rating": "how", "timestamp": "when"},
        {"user": "4", "item": "2", "rating": "3", "timestamp": "1"},
        {"user": "who", "item": "2", "rating": "how", "timestamp": "1"},
    ],
)
def test_columns_may_be_given_by_name_or_number(write, told, tmp_path):
    names = {"timestamp": "when", "item": "what", "rating": "how", "user": "who"}
    given = pa.table({names[role]: COLUMNS[role] for role in names})
    table = read_table(write(tmp_path / "ratings", given), ReadOptions(**told))
    assert table.frame.to_dict(as_series=False) == COLUMNS


def test_a_column_that_was_given_serves_no_other_role(tmp_path):
    given = {"user": [1, 2], "item": [3, 4], "score": [5, 6], "rating": [0, 0]}
    path = parquet(tmp_path / "ratings", pa.table(given))
    table = read_table(path, ReadOptions(timestamp="rating", rating="score"))
    assert table.frame["rating"].to_list() == [5.0, 6.0]
    assert table.frame["timestamp"].to_list() == [0, 0]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"user": "who"}, r"no column 'who' for the user among 'user', 'item', "),
        ({"user": "5"}, r"no column '5' .* a name of these or a number from 1 to 4\.$"),
        ({"user": "0"}, "no column '0'"),
        ({"user": "1", "item": "user"}, "column 1 was given for both user and item"),
    ],
)
def test_columns_that_are_not_there_are_named(told, says, tmp_path):
    path = parquet(tmp_path / "ratings", pa.table(COLUMNS))
    with pytest.raises(DataError, match=says) as raised:
        read_table(path, ReadOptions(**told))
    assert str(path) in str(raised.value)


def test_missing_columns_are_named(tmp_path):
    path = ipc_file(tmp_path / "x.arrow", pa.table({"a": [1], "item": [2]}))
    says = f"{path}: no column for user among 'a', 'item'; name the columns "
    with pytest.raises(DataError, match=re.escape(says)):
        read_table(path)


@every_kind
@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["x", "y"]),
        pa.array(["x", "y"], pa.large_string()),
        pa.array(["x", "y"]).dictionary_encode(),
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2**64 - 1], pa.uint64()),
        pa.array([7, 8]).dictionary_encode(),
    ],
    ids=lambda ids: str(ids.type)[:14],
)
def test_ids_are_text_or_whole_numbers_of_any_kind(write, ids, tmp_path):
    path = write(tmp_path / "ratings", pa.table({"user": ids, "item": [1, 1]}))
    assert read_table(path).frame["user"].to_list() == ids.to_pylist()


@every_kind
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.bool_()], ids=str)
def test_ids_of_other_types_are_refused_with_file_and_column(write, kind, tmp_path):
    user = pa.array([True] if kind == pa.bool_() else [b"x"], kind)
    path = write(tmp_path / "ratings", pa.table({"user": user, "item": [1]}))
    with pytest.raises(
        DataError, match=r"Column 'user' has type B.*whole numbers or text"
    ) as error:
        read_table(path)
    assert str(error.value).startswith(f"{path}: ")


@every_kind
@pytest.mark.parametrize(
    "ratings",
    [
        pa.array([1, 5], pa.int8()),
        pa.array([0.5, 5], pa.float32()),
        pa.array([Decimal("0.50"), Decimal("-9.99")], pa.decimal128(5, 2)),
        pa.array([True, False]),
    ],
    ids=lambda ratings: str(ratings.type),
)
def test_ratings_are_numbers_of_any_kind(write, ratings, tmp_path):
    given = pa.table({"user": [1, 2], "item": [1, 1], "rating": ratings})
    found = read_table(write(tmp_path / "ratings", given)).frame["rating"]
    assert found.dtype == pl.Float64
    assert found.to_list() == [float(rating) for rating in ratings.to_pylist()]


MOMENT = dt.datetime(2020, 1, 1, 12, 0, 7, 900_000, tzinfo=dt.UTC)


@every_kind
@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        (pa.array([1577880007], pa.int64()), 1577880007),
        (pa.array([7], pa.uint8()), 7),
        (pa.array([7.9]), 7),
        (pa.array([-0.5]), -1),
        (pa.array(["1577880007"]), 1577880007),
        (pa.array(["-0.5"], pa.large_string()), -1),
        (pa.array(["2020-01-01T12:00:07Z"], pa.string_view()), 1577880007),
        (pa.array([dt.date(2020, 1, 1)]), 1577836800),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")), 1577880007),
        (pa.array([MOMENT], pa.timestamp("ns", tz="UTC")), 1577880007),
        (pa.array([MOMENT], pa.timestamp("ms", tz="Asia/Kolkata")), 1577880007),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_times_are_numbers_dates_or_datetimes(write, times, seconds, tmp_path):
    given = pa.table({"user": [1], "item": [1], "timestamp": times})
    found = read_table(write(tmp_path / "ratings", given)).frame["timestamp"]
    assert found.dtype == pl.Int64
    assert found.to_list() == [seconds]


def test_a_duration_is_no_time_and_a_list_no_rating(tmp_path):
    for role, values in (("timestamp", [dt.timedelta(1)]), ("rating", [[1.0]])):
        path = parquet(tmp_path / role, pa.table({"user": [1], "item": [1], role: values}))
        with pytest.raises(DataError, match=f"Column '{role}' has type .*, but the {role} must be"):
            read_table(path)


BAD = [
    ("user", pa.array(["a", "b", None]), "None in column 'user', but the user must be an id"),
    ("user", pa.array(["a", "b", ""]), "'' in column 'user', but the user must be an id"),
    ("item", pa.array([1, 2, None]), "None in column 'item', but the item must be an id"),
    ("stars", pa.array([1, 2, None]), "None in column 'stars', but the rating must be a finite nu"),
    ("stars", pa.array([1, 2, np.nan]), "nan in column 'stars', but the rating must be a finite"),
    ("stars", pa.array([1, 2, np.inf]), "inf in column 'stars', but the rating must be a finite"),
    ("time", pa.array([1, 2, None]), "None in column 'time', but the timestamp must be a date or"),
]


KINDS = {
    "user": "without a user",
    "item": "without an item",
    "stars": "with a rating that is no finite number",
    "time": "with a time that is none",
}


@every_kind
@pytest.mark.parametrize(("name", "values", "found"), BAD)
def test_bad_rows_are_refused_or_skipped_with_file_row_column_and_value(
    write, name, values, found, tmp_path
):
    good = {"user": ["a", "b", "c"], "item": [1, 2, 3], "stars": [1, 2, 3], "time": [1, 2, 3]}
    path = write(tmp_path / "ratings", pa.table({**good, name: values}))
    says = f"{path}, row 3, has {found}"
    with pytest.raises(DataError, match=f"^{re.escape(says)}.*; correct it or remove the row"):
        read_table(path)
    table = read_table(path, ReadOptions(bad_rows="skip"))
    assert table.frame["item"].to_list() == [1, 2]
    assert table.source_notes[0].startswith(
        f"1 of 3 rows are no interactions and were left out (1 {KINDS[name]}); the first one: "
        f"{says}"
    )


def test_skipped_rows_are_counted_once_and_the_first_is_shown(tmp_path):
    given = {"user": ["a", None, "c", "d"], "item": [1, None, 3, 4], "rating": [None, 1.0, 2.0, 3]}
    path = parquet(tmp_path / "ratings", pa.table(given))
    table = read_table(path, ReadOptions(bad_rows="skip"))
    assert table.frame["user"].to_list() == ["c", "d"]
    assert table.source_notes == (
        f"2 of 4 rows are no interactions and were left out (1 without a user, 1 with a rating "
        f"that is no finite number); the first one: {path}, row 1, has None in column 'rating', "
        f"but the rating must be a finite number.",
    )
    nothing = parquet(tmp_path / "nothing", pa.table({"user": [None, ""], "item": ["x", "y"]}))
    with pytest.raises(DataError, match=r"No row is an interaction .*nothing, row 1, has None"):
        read_table(nothing, ReadOptions(bad_rows="skip"))


@every_kind
def test_repeated_pairs_count_once_but_may_be_predicted_twice(write, tmp_path):
    given = {"user": [1, 2, 1], "item": [1, 1, 1], "rating": [3, 4, 5]}
    path = write(tmp_path / "ratings", pa.table(given))
    assert read_table(path).frame["rating"].to_list() == [4, 5]
    assert read_table(path, only=PAIR).frame.rows() == [(1, 1), (2, 1), (1, 1)]


@every_kind
@pytest.mark.parametrize("means", ["implicit", "drop"])
def test_values_that_mean_no_rating(write, means, tmp_path):
    given = {"user": [1, 2, 3], "item": [1, 1, 1], "rating": [0, 4, 5]}
    options = ReadOptions(no_rating=(0.0,), no_rating_means=means)
    table = read_table(write(tmp_path / "ratings", pa.table(given)), options)
    assert table.frame["rating"].to_list() == ([None, 4, 5] if means == "implicit" else [4, 5])


# What polars cannot read by itself.


@pytest.mark.parametrize("write", [arrow_parquet, ipc_file, ipc_stream, compressed])
def test_texts_that_are_no_utf8_are_refused_before_anything_reads_them(write, tmp_path, capfd):
    offsets, texts = np.array([0, 2, 4], np.int32), b"ab\xff\xfe"
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
    users = pa.Array.from_buffers(pa.string(), 2, buffers)
    path = write(tmp_path / "ratings", pa.table({"user": users, "item": [3, 4]}))
    with pytest.raises(DataError, match=re.escape(f"{path} is damaged")):
        read_table(path)
    assert "panicked" not in capfd.readouterr().err


@every_kind
@pytest.mark.parametrize("zone", ["+05:30", "-03:00", "Foo/Bar"])
def test_times_in_a_zone_without_a_name_are_points_in_time(write, zone, tmp_path, capfd):
    if write is parquet:
        pytest.skip("polars writes no such zone")
    times = pa.array([1000, 2000], pa.timestamp("ms", zone))
    path = write(tmp_path / "ratings", pa.table({"user": [1, 2], "when": times, "item": [3, 4]}))
    table = read_table(path, ReadOptions(timestamp="when"))
    assert table.frame.rows() == [(1, 3, 1), (2, 4, 2)]
    assert read_table(path).frame.rows() == [(1, 3), (2, 4)]
    assert "panicked" not in capfd.readouterr().err


def test_such_zones_are_read_in_partitions_too(tmp_path):
    times = pa.array([1000, 2000], pa.timestamp("ms", "+05:30"))
    (tmp_path / "user=7").mkdir()
    arrow_parquet(tmp_path / "user=7/0.parquet", pa.table({"timestamp": times, "item": [3, 4]}))
    assert read_table(tmp_path).frame.rows() == [(7, 3, 1), (7, 4, 2)]


@every_kind
def test_a_name_that_is_not_utf_8_is_read(write, tmp_path):
    given = write(tmp_path / "ratings", pa.table(COLUMNS))
    try:
        path = given.rename(tmp_path / os.fsdecode(b"caf\xe9"))
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    table = read_table(path)
    assert table.n == 3
    assert table.source.endswith(r"caf\udce9")


# Folders.


def test_a_folder_is_read_in_the_order_of_its_paths_whatever_else_is_there(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "_old").mkdir()
    pl.DataFrame({"user": [3], "item": [1], "rating": [1]}).write_parquet(tmp_path / "b/1.parquet")
    narrow = pl.DataFrame({"rating": [2.5], "user": [1], "item": [1]}).cast({"user": pl.Int8})
    narrow.write_parquet(tmp_path / "a.parquet")
    for name in ("_SUCCESS", ".a.parquet.crc", ".hidden.parquet", "_old/x.parquet", "readme.txt"):
        (tmp_path / name).write_text("not a table")
    table = read_table(tmp_path)
    assert table.frame.to_dict(as_series=False) == {
        "user": [1, 3], "item": [1, 1], "rating": [2.5, 1.0],
    }  # fmt: skip


def test_a_folder_with_the_name_of_a_file_is_read_once(tmp_path):
    inner = tmp_path / "ratings.parquet"
    inner.mkdir()
    pl.DataFrame({"user": [1, 2], "item": [1, 1]}).write_parquet(inner / "part-0.parquet")
    assert read_table(tmp_path, only=PAIR).n == 2


def test_hive_partitions_are_columns(tmp_path):
    folder = tmp_path / "copy=1" / "[1]"
    for user, day in (("ann", "2020-01-02"), ("bob", "2020-01-01")):
        part = folder / f"user={user}" / f"date={day}"
        part.mkdir(parents=True)
        pl.DataFrame({"item": [1, 2], "rating": [3, 4]}).write_parquet(part / "0.parquet")
    table = read_table(folder, ReadOptions(timestamp="date"))
    assert table.frame["user"].to_list() == ["ann", "ann", "bob", "bob"]
    assert table.frame["timestamp"].to_list() == [1577923200] * 2 + [1577836800] * 2


def test_a_bad_row_of_a_folder_is_found_in_its_file(tmp_path):
    for name, rating in (("a", [1, 2, 3]), ("b", [1.0, None, 3])):
        frame = pl.DataFrame({"user": [name] * 3, "item": [1, 2, 3], "rating": rating})
        frame.write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'b.parquet'}, row 2, has None")):
        read_table(tmp_path)
    assert read_table(tmp_path, ReadOptions(bad_rows="skip")).n == 5


def test_folders_that_are_none_of_ours_are_refused(tmp_path):
    (tmp_path / "_metadata.parquet").touch()
    with pytest.raises(DataError, match="has no Parquet files"):
        read_table(tmp_path)
    pl.DataFrame({"user": [1], "item": [1], "rating": [1]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"user": [1], "item": [2]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet has columns for user, item, but .*a\.parquet"):
        read_table(tmp_path)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(DataError, match=r"b\.parquet is damaged"):
        read_table(tmp_path)


# Damaged and foreign files.


def complaint(path: Path) -> str | None:
    """What is said of a file that cannot be read; None of one that can."""
    try:
        read_table(path)
    except DataError as error:
        return str(error)
    return None


@every_kind
def test_a_file_that_was_cut_short_is_reported_in_one_sentence(write, tmp_path, capfd):
    whole = write(tmp_path / "whole", pa.table(COLUMNS)).read_bytes()
    path = tmp_path / "cut.parquet"
    for length in (0, 3, 8, len(whole) // 3, len(whole) // 2, 2 * len(whole) // 3):
        path.write_bytes(whole[:length])
        said = complaint(path)
        if said is None:
            assert write is ipc_stream, "which alone does not say where it ends"
            continue
        assert said.startswith(f"{path} ")
        assert "\n" not in said
    assert capfd.readouterr() == ("", "")


@every_kind
def test_damage_anywhere_is_reported_in_one_sentence_or_does_no_harm(write, tmp_path, capfd):
    whole = write(tmp_path / "whole", pa.table(COLUMNS)).read_bytes()
    path = tmp_path / "damaged"
    met = 0
    for start in range(8, len(whole), max(8, len(whole) // 40)):
        wrong = bytes(byte ^ 0x5A for byte in whole[start : start + 8])
        path.write_bytes(whole[:start] + wrong + whole[start + 8 :])
        said = complaint(path)
        if said is not None:
            met += 1
            assert str(path) in said
            assert "\n" not in said
    assert met > 0
    assert "panicked" not in capfd.readouterr().err


def test_foreign_and_missing_files_are_refused(tmp_path):
    (tmp_path / "x.parquet").write_text("user,item\n1,2\n")
    with pytest.raises(DataError, match=r"begins with b'user,i', but a Parquet or Arrow IPC file"):
        read_table(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"y\.parquet cannot be read \(No such file"):
        read_table(tmp_path / "y.parquet")
    for write in WRITERS:
        path = write(tmp_path / "empty", pa.table({"user": [1], "item": [1]}).slice(0, 0))
        with pytest.raises(DataError, match="has no interactions"):
            read_table(path)
