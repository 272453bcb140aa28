"""What a file is, is found; and however the same rows are written, they are read the same."""

from __future__ import annotations

import datetime as dt
import os
import zipfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica import io
from cfuica.data import readers
from cfuica.data.layout import FIND_OUT, PAIR, ReadOptions
from cfuica.data.readers import read_table
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from tests.data.files import COLUMNAR, COLUMNS, LATIN_1, TEXT, delimited

FORMS = {**TEXT, **COLUMNAR}
ROWS = [(1, 10, 4.0, 100), (2, 10, 3.5, 200), (1, 20, 5.0, 300)]

# Characters that latin-1 has, and that separate nothing here.
_words = st.text(st.sampled_from("abzéÿ019-_.' "), min_size=1, max_size=8)
_texts = _words.map(str.strip).filter(lambda word: word and not word.lstrip("-").isdecimal())
_rows = st.sampled_from(["whole numbers", "text"]).flatmap(
    lambda kind: st.dictionaries(
        st.tuples(*[st.integers(-(2**63), 2**63 - 1) if kind == "whole numbers" else _texts] * 2),
        st.tuples(st.sampled_from([0.5, 1.0, 3.25, -7.0]), st.integers(-(2**36), 2**36)),
        min_size=1,
        max_size=6,
    ).map(lambda cells: [(*pair, *values) for pair, values in cells.items()])
)


@pytest.mark.parametrize("form", FORMS)
def test_the_kind_of_a_file_is_found(tmp_path, form):
    suffix, write = FORMS[form]
    path = tmp_path / f"ratings{suffix}"
    path.write_bytes(write(ROWS))
    table = read_table(str(path))
    assert table.frame.columns == list(COLUMNS)
    assert table.frame.rows() == ROWS
    assert table.source == str(path)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(rows=_rows)
def test_what_was_written_is_read(tmp_path_factory, form, rows):
    suffix, write = FORMS[form]
    path = tmp_path_factory.getbasetemp() / f"round-trip{suffix}"
    path.write_bytes(write(rows))
    table = read_table(path, LATIN_1.get(form, FIND_OUT))
    assert table.frame.rows() == rows
    expected = Interactions.from_frame(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))
    assert table.sha256() == expected.sha256()


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    write = COLUMNAR["parquet"][1]
    (tmp_path / "part-0.parquet").write_bytes(write(ROWS[:2]))
    (tmp_path / "part-1.parquet").write_bytes(write(ROWS[2:]))
    assert read_table(tmp_path).frame.rows() == ROWS


def test_a_folder_or_zip_of_movielens_is_known(tmp_path):
    text = delimited(ROWS, "::").partition("\n")[2]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "ratings.dat").write_text(text)
    archive = tmp_path / "named.otherwise"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(folder / "ratings.dat", "ml/ratings.dat")
    for path in (folder, archive):
        assert read_table(path).frame.select("user", "item").rows() == [row[:2] for row in ROWS]


def test_rows_may_repeat_where_they_are_to_be_predicted(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("user,item\n1,2\n1,2\n")
    assert read_table(path, only=PAIR).n == 2
    assert read_table(path).n == 1


def test_of_a_pair_to_predict_only_the_ids_are_read(tmp_path):
    rows = [(1, 10, "", "tomorrow"), (1, 20, "NA", "")]
    expected = [row[:2] for row in rows]
    for form in ("csv", "parquet", "feather"):
        path = tmp_path / f"pairs.{form}"
        frame = pl.DataFrame(rows, schema=list(COLUMNS), orient="row")
        {"csv": frame.write_csv, "parquet": frame.write_parquet, "feather": frame.write_ipc}[form](
            path
        )
        table = read_table(path, ReadOptions(bad_rows="skip"), only=PAIR)
        assert table.frame.rows() == expected
        assert table.source_notes == ()
        with pytest.raises(DataError):
            read_table(path)
    path = tmp_path / "pairs.csv"
    path.write_text("1::10::3\n1::20::\n")
    assert read_table(path, only=PAIR).frame.rows() == expected


def test_options_reach_the_reader(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("who;what\n1;2\n;3\n")
    options = ReadOptions(user="who", item="what", separator=";", bad_rows="skip")
    table = Interactions.read(path, options)
    assert table.frame.rows() == [(1, 2)]
    assert "1 of 2 rows are no interactions and were left out" in table.source_notes[0]


def test_what_is_not_there_is_refused_by_name():
    with pytest.raises(DataError, match=r"absent\.csv cannot be read \(No such file"):
        read_table(Path("absent.csv"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe\.csv is neither a file nor a folder.*save it"):
        read_table(tmp_path / "pipe.csv")


@pytest.mark.parametrize("form", FORMS)
def test_a_name_that_is_not_utf_8_is_read_and_can_be_printed(tmp_path, form):
    suffix, write = FORMS[form]
    path = tmp_path / os.fsdecode(b"caf\xe9" + suffix.encode())
    try:
        path.write_bytes(write(ROWS))
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    table = read_table(path)
    assert table.n == len(ROWS)
    assert "".join((table.source, *table.source_notes)).encode()


@pytest.mark.parametrize("form", FORMS)
def test_only_some_columns_of_a_file_are_read_and_every_row_stays(tmp_path, form):
    suffix, write = FORMS[form]
    path = tmp_path / f"ratings{suffix}"
    path.write_bytes(write(ROWS))
    history = read_table(path, only=("item", "rating")).frame
    assert history.columns == ["item", "rating"]
    assert history.rows() == [row[1:3] for row in ROWS]
    assert read_table(path, only=("user",)).frame.rows() == [row[:1] for row in ROWS]


@pytest.mark.parametrize(
    ("text", "only", "rows"),
    [
        ("user\n1\n2\n", ("user",), [(1,), (2,)]),
        ("7\n\n8\n", ("user",), [(7,), (8,)]),
        ("user_id,name\na,x\nb,y\n", ("user",), [("a",), ("b",)]),
        ('user\n"a,b"\nc\n', ("user",), [("a,b",), ("c",)]),
        ("item,rating\n10,4\n20,5\n", ("item", "rating"), [(10, 4.0), (20, 5.0)]),
        ("10,4\n20,5\n", ("item", "rating"), [(10, 4.0), (20, 5.0)]),
        ("rating\titem\n4\tx y\n", ("item", "rating"), [("x y", 4.0)]),
        ("1::10::4::100\n", ("item", "rating"), [(10, 4.0)]),
    ],
)
def test_files_without_pairs_are_read_as_well(tmp_path, text, only, rows):
    (tmp_path / "given").write_text(text)
    assert read_table(tmp_path / "given", only=only).frame.rows() == rows


def test_text_ids_of_one_column_need_a_header_or_the_option_that_there_is_none(tmp_path):
    (tmp_path / "given").write_text("alice\nbob\n")
    with pytest.raises(DataError, match=r"no column for user among 'alice'; name the columns user"):
        read_table(tmp_path / "given", only=("user",))
    users = read_table(tmp_path / "given", ReadOptions(header=False), only=("user",))
    assert users.frame["user"].to_list() == ["alice", "bob"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item\n10\n", "'item' has only one field, but at least item and rating were expected"),
        ("user,item\n1,10\n", "no column for rating among 'user', 'item'"),
        (
            "item,rating\n10,\n",
            "line 2, has '' in column 2 ('rating'), but the rating must be a finite number",
        ),
    ],
)
def test_what_is_missing_of_the_given_columns_is_reported(tmp_path, text, message):
    (tmp_path / "given").write_text(text)
    with pytest.raises(DataError) as caught:
        read_table(tmp_path / "given", only=("item", "rating"))
    assert message in str(caught.value)


KEEP_EMPTY = ReadOptions(empty_rating="keep")


@pytest.mark.parametrize("form", FORMS)
def test_empty_ratings_stay_with_an_option_and_refused_otherwise(tmp_path, form):
    suffix, write = FORMS[form]
    path = tmp_path / f"events{suffix}"
    path.write_bytes(write([(2, 10, 3.5, 200), (1, 10, None, 100)]))
    table = read_table(path, KEEP_EMPTY)
    assert table.frame.rows() == [(2, 10, 3.5, 200), (1, 10, None, 100)]
    with pytest.raises(DataError, match=r"finite number"):
        read_table(path)


def test_only_an_empty_rating_stays_not_a_wrong_or_a_missing_one(tmp_path):
    path = tmp_path / "events.csv"
    for row, message in {
        "1,2,bad,5": "line 3, has 'bad' in column 3 ('rating'), but the rating must be",
        "1,2,nan,5": "line 3, has 'nan' in column 3 ('rating'), but the rating must be",
        "1,2": "column 3 ('rating') is missing, because the line has 2 fields",
        "1,2,,soon": "has 'soon' in column 4 ('timestamp'), but the timestamp must be a",
    }.items():
        path.write_text(f"user,item,rating,timestamp\n1,1, ,5\n{row}\n")
        with pytest.raises(DataError) as caught:
            read_table(path, KEEP_EMPTY)
        assert message in str(caught.value)


def test_an_empty_rating_of_a_frame_stays_with_an_option():
    frame = pl.DataFrame({"user": [1, 2, 3], "item": [1, 1, 1], "rating": ["4", None, " "]})
    table = Interactions.from_frame(frame, empty_rating="keep")
    assert table.frame["rating"].to_list() == [4.0, None, None]
    for wrong in ("x", "nan"):
        with pytest.raises(DataError, match="finite number"):
            Interactions.from_frame(
                frame.with_columns(rating=pl.Series(["4", wrong, None])), empty_rating="keep"
            )


@pytest.mark.parametrize(
    "header",
    [
        "customer_id,product,ordered_at",
        "Customer,SKU,Event-Time",
        "client_id,article_id,t_dat",
        "buyer,stock code,InvoiceDate",
        "visitorid,content_id,created_at",
    ],
)
def test_columns_of_shops_are_found_by_name(tmp_path, header):
    (tmp_path / "x.csv").write_text(f"price,{header}\n9.5,ann,7,2019-10-01\n")
    assert read_table(tmp_path / "x.csv").frame.rows() == [("ann", 7, 1_569_888_000)]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("who,what\n1,2\n", ("--user-column", "--item-column")),
        ("user item\n1 2\n", ("--separator",)),
        ("user,item,rating\n1,2,x\n", ("--bad-rows skip",)),
    ],
)
def test_an_error_names_the_options_that_help(tmp_path, text, options):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        read_table(tmp_path / "x.csv")
    assert all(option in str(caught.value) for option in options)


def test_a_table_without_ratings_is_told_about_ranking(tmp_path):
    (tmp_path / "x.csv").write_text("user,item\n1,2\n")
    with pytest.raises(DataError, match=r"has no ratings.* --task ranking"):
        read_table(tmp_path / "x.csv").rated()


@pytest.mark.parametrize("form", [*FORMS, "folder"])
def test_the_progress_of_reading_goes_up_to_the_whole(tmp_path, monkeypatch, form):
    monkeypatch.setattr(io, "_BLOCK", 300)
    monkeypatch.setattr(readers, "_ROWS", 20)
    rows = [(n, 10 + n, 3.5, 200 + n) for n in range(100)]
    path = tmp_path / f"x{'' if form == 'folder' else FORMS[form][0]}"
    if form == "folder":
        path.mkdir()
        for part in (rows[:50], rows[50:]):
            (path / f"part-{part[0][0]}.parquet").write_bytes(FORMS["parquet"][1](part))
    else:
        path.write_bytes(FORMS[form][1](rows))
    said = []
    table = read_table(path, ReadOptions(progress=lambda *given: said.append(given)))
    assert table.n == 100
    assert {name for name, _ in said} == {str(path)}
    done = [part for _, part in said]
    assert done == sorted(done)
    assert done[-1] == 1
    assert all(0 < part <= 1 for part in done)


def test_parts_of_different_types_are_one_column(tmp_path):
    day = dt.datetime(2019, 10, 1)
    users = [
        pl.Series([1, 2]),
        pl.Series(["x", "007"]),
        pl.Series(["a", "b"], dtype=pl.Categorical),
    ]
    times = [
        pl.Series([5, 6]),
        pl.Series([day, day]),
        pl.Series(["2019-10-01", "2019-10-01T00:00"]),
    ]
    for part, (user, time) in enumerate(zip(users, times, strict=True)):
        frame = pl.DataFrame({"user": user, "item": [1, 2], "timestamp": time})
        frame.write_parquet(tmp_path / f"part-{part}.parquet")
    table = read_table(tmp_path).frame
    assert table["user"].to_list() == ["1", "2", "x", "007", "a", "b"]
    assert table["timestamp"].to_list() == [5, 6, *[1_569_888_000] * 4]


def test_times_of_rows_left_out_do_not_tell_the_unit(tmp_path):
    given = {"user": [1, None, 3], "item": [1, 2, 3], "timestamp": [7, 1_569_888_000_000, 9]}
    pl.DataFrame(given).write_parquet(tmp_path / "x.parquet")
    table = read_table(tmp_path / "x.parquet", ReadOptions(bad_rows="skip"))
    assert table.frame["timestamp"].to_list() == [7, 9]
