"""Delimited text: what is read, and what a message says about what is not."""

from __future__ import annotations

import gzip
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest

from cfuica.data.layout import ReadOptions
from cfuica.data.readers import read_table
from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError

ROWS = [(1, 10, 4.0, 100), (2, 10, 3.5, 200), (1, 20, 5.0, 300)]
COLUMNS = ("user", "item", "rating", "timestamp")


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes):
        path = tmp_path / "data.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def _text(separator=",", header=None, rows=ROWS, end="\n"):
    lines = [separator.join(header)] if header else []
    lines += [separator.join(str(value) for value in row) for row in rows]
    return end.join(lines) + end


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::"])
@pytest.mark.parametrize("header", [None, COLUMNS], ids=["bare", "header"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_separator_with_or_without_header(write, separator, header, end):
    path = write(_text(separator, header, end=end))
    table = read_table(path)
    assert table.frame.rows() == ROWS
    assert table.frame.schema == {
        "user": pl.Int64,
        "item": pl.Int64,
        "rating": pl.Float64,
        "timestamp": pl.Int64,
    }
    assert table.source == str(path)
    assert table.source_notes == ()


@pytest.mark.parametrize(
    "header",
    [
        ("user_id", "item_id", "score", "time"),
        ("userId", "movieId", "rating", "timestamp"),
        ("uid", "iid", "stars", "ts"),
        ("USERID", "product_id", "Label", "unix_timestamp"),
        ('"user"', '"movie_id"', '"rating"', '"timestamp"'),
        ("User-ID", "ISBN", "Book-Rating", "date"),
        ("reviewerID", "asin", "overall", "unixReviewTime"),
        ("user_id", "business_id", "stars", "date"),
        ("user_id:token", "item_id:token", "rating:float", "timestamp:float"),
    ],
)
def test_columns_are_found_by_their_usual_names(write, header):
    assert read_table(write(_text(header=header))).frame.rows() == ROWS


def test_columns_may_stand_anywhere_among_others(write):
    path = write('note,rating,item,"",user\n"a,b",4,10,,1\n"c\nd",3,10,x,2\n')
    assert read_table(path).frame.rows() == [(1, 10, 4.0), (2, 10, 3.0)]


def test_ratings_are_optional_with_a_header(write):
    assert read_table(write("user,item\na,b\n")).frame.columns == ["user", "item"]


def test_without_a_header_a_fourth_column_is_optional(write):
    assert read_table(write("1,2,3\n")).frame.rows() == [(1, 2, 3.0)]


def test_ids_stay_text_unless_every_one_reads_the_same_as_an_integer(write):
    path = write("007,1,3\n8,2,4\n9,-3,5\n")
    frame = read_table(path).frame
    assert frame["user"].to_list() == ["007", "8", "9"]
    assert frame["item"].to_list() == [1, 2, -3]
    huge = str(2**64)
    assert read_table(write(f"{huge},1,3\n")).frame["user"].to_list() == [huge]


def test_spaces_around_values_do_not_count(write):
    path = write("user, item, rating\nann , 7, 3\nbob, 8 , 4 \n")
    assert read_table(path).frame.rows() == [("ann", 7, 3.0), ("bob", 8, 4.0)]


def test_fractions_of_seconds_are_dropped(write):
    frame = read_table(write("1,1,3,100.9\n1,2,4,1e3\n")).frame
    assert frame["timestamp"].to_list() == [100, 1000]
    assert frame["timestamp"].dtype == pl.Int64


def test_dates_become_seconds_beside_numbers(write):
    lines = [
        ("1970-01-02", 86_400),
        ("1970-01-02T00:00:01Z", 86_401),
        ("1970-01-02 00:00:01.9", 86_401),
        ("1970-01-02T01:00:01+01:00", 86_401),
        ("1969-12-31T23:59:59.5Z", -1),
        ("1500000000", 1_500_000_000),
    ]
    text = "".join(f"1,{item},3,{time}\n" for item, (time, _) in enumerate(lines))
    frame = read_table(write(text)).frame
    assert frame["timestamp"].to_list() == [seconds for _, seconds in lines]
    assert frame["timestamp"].dtype == pl.Int64


def test_blank_lines_and_a_missing_last_newline_do_no_harm(write):
    text = "\n\nuser,item,rating\n\n1,2,3\n   \n2,2,4\n\n\n1,3,5"
    assert read_table(write(text)).frame.rows() == [(1, 2, 3.0), (2, 2, 4.0), (1, 3, 5.0)]


def test_a_byte_order_mark_does_no_harm(write):
    bom = b"\xef\xbb\xbf"
    for header in (None, COLUMNS):
        assert read_table(write(bom + _text(header=header).encode())).frame.rows() == ROWS
    blank = bom + _text(header=COLUMNS).encode() + b"\n"
    assert read_table(write(blank)).frame.rows() == ROWS


def test_utf8_ids_and_latin1_ids_are_read(write):
    text = "user,item,rating\nJosé,Łódź,3\nann,b,4\n"
    table = read_table(write(text))
    assert table.frame["item"].to_list() == ["Łódź", "b"]
    assert table.source_notes == ()
    latin = "user,item,rating\nann,b,4\nJosé,c,3\n".encode("latin-1")
    table = read_table(write(latin))
    assert table.frame["user"].to_list() == ["ann", "José"]
    assert "byte 0xe9 in line 3): read as latin-1" in table.source_notes[0]


def test_repeated_pairs_are_counted_and_the_latest_stays(write):
    table = read_table(write("1,1,3,20\n2,1,3,1\n1,1,5,30\n1,1,4,10\n"))
    assert table.frame.rows() == [(2, 1, 3.0, 1), (1, 1, 5.0, 30)]
    assert table.source_notes[0].startswith("2 earlier interactions")


HEAD = "user,item,rating,timestamp\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", ["is empty"]),
        (" \n\n", ["is empty"]),
        (HEAD, ["has no interactions"]),
        ("user,rating\n1,2\n", ["line 1: no column for item", "'user', 'rating'", "item_id"]),
        ("a,b,c\n1,2,3\n", ["line 1: no column for user and item", "'a', 'b', 'c'"]),
        ("\nfilm,rating\n", ["line 2: no column for user and item"]),
        ("1,2\n", ["line 1: no column for user and item"]),
        ("1,2,3,4,5\n", ["line 1: no column for user and item"]),
        ("user,item\r1,2\r", ["line 1", "a carriage return", "save the file again"]),
        (HEAD + "1,2\r3,4,5\nx,2,y,4", ["line 2: the line cannot be split"]),
        ('1\t2\t3\t4\n2\t3\t4\t"', ["line 2: the line cannot be split"]),
        ("hello\n", ["line 1: 'hello' has only one field"]),
        (
            HEAD + "1,2,3,4\n1,3,good,4\n1,4,bad,4\n",
            ["line 3, has 'good' in column 3 ('rating')", "a finite number", "remove the row"],
        ),
        ("1,2,3\n1,3,x\n", ["line 2, has 'x' in column 3 ('rating')"]),
        ("1::2::3\n\n1::3::x\n", ["line 3, has 'x' in column 3 ('rating')"]),
        (HEAD + "1,2,nan,4\n", ["line 2, has 'nan' in column 3 ('rating')"]),
        (HEAD + "1,2,3,4\n1,3,-inf,4\n", ["line 3, has '-inf' in column 3 ('rating')"]),
        (HEAD + "1,2,1e999,4\n", ["line 2, has '1e999' in column 3 ('rating')"]),
        (HEAD + "1,2,1_0,4\n", ["line 2, has '1_0' in column 3 ('rating')"]),
        (HEAD + "1,2,,4\n", ["line 2, has '' in column 3 ('rating')"]),
        (
            HEAD + "1,2,3,4\n,3,3,4\n",
            ["line 3, has '' in column 1 ('user')", "the user must be an id"],
        ),
        (
            HEAD + "1,2,3,4\n1,  ,3,4\n",
            ["line 3, has '  ' in column 2 ('item')", "the item must be an id"],
        ),
        (HEAD + '1,"",3,4\n', ["line 2, has '' in column 2 ('item')"]),
        (HEAD + "1,2,3,4\n,,,\n", ["line 3, has '' in column 1 ('user')"]),
        (
            HEAD + "1,2,3,4\n1,3\n",
            ["line 3: column 3 ('rating') is missing", "2 fields; give every line the 4 fields"],
        ),
        (HEAD + "1\n", ["line 2: column 2 ('item') is missing", "1 field;"]),
        (HEAD + "1,2,3,4,5\n", ["line 2: 5 fields", "'5'", "4 were expected"]),
        (
            HEAD + "1,2,3,yesterday\n",
            ["line 2, has 'yesterday' in column 4 ('timestamp')", "seconds"],
        ),
        (HEAD + "1,2,3,1e30\n", ["line 2, has '1e30' in column 4 ('timestamp')"]),
        (HEAD + "1,2,3,\n", ["line 2, has '' in column 4 ('timestamp')"]),
        (HEAD + '"a\nb",2,3,4\n1,2,x,4\n', ["line 4, has 'x' in column 3 ('rating')"]),
        (HEAD + '1,2,3,4\n"1,2,3,4\n1,2,3,4\n', ["the line cannot be split into fields"]),
        (
            HEAD.encode() + b"1,\0,3,4\n",
            ["line 2: a zero byte", "not a text file"],
        ),
        (HEAD.encode("utf-16"), ["is not a text file", "UTF-8"]),
        (HEAD.encode() + b"Jos\xe9,2,bad,4\n", ["line 2, has 'bad' in column 3 ('rating')"]),
    ],
)
def test_a_faulty_file_is_refused_by_place_value_and_remedy(write, content, says):
    path = write(content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    message = str(caught.value)
    for part in (str(path), *says):
        assert part in message
    assert "\n" not in message


def test_a_fault_late_in_a_large_file_is_found(write):
    lines = [f"{row % 997},{row},{row % 5 + 1},{row}" for row in range(50_000)]
    lines[43_210] = "1,43210,three,4"
    with pytest.raises(DataError, match=r"line 43212, has 'three' in column 3 \('rating'\)"):
        read_table(write(HEAD + "\n".join(lines) + "\n"))


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"absent.csv cannot be read \(No such file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="not a MovieLens data set"):
        read_table(tmp_path)


def test_a_table_reads_a_path_by_its_kind(write):
    assert Interactions.read(str(write(_text()))).frame.rows() == ROWS


@pytest.mark.parametrize(
    "text",
    [
        "user,item,rating,ti::tle\n1,2,3,a\n",
        "user,item,rating,t::i::t::le\n1,2,3,a\n",
        "us::er,item,rating,user\na,2,3,1\n",
        "user::item::rating::title, year, more, and more\n1::2::3::a, b, c, d, e\n",
        "title::user::item::rating, of 5, or none\na::1::2::3\n",
        "user::item::rating\n1::2::3\n",
        "user::item\n1::2\n",
    ],
)
def test_double_colons_and_other_separators_may_be_inside_fields(write, text):
    assert read_table(write(text)).frame.row(0)[:2] == (1, 2)


def test_any_separator_may_be_given(write):
    for separator in (" ", "::", "|||", "§", "a"):
        path = write(_text(separator))
        assert read_table(path, ReadOptions(separator=separator)).frame.rows() == ROWS
    for tab in ("\t", "\\t", "tab"):
        assert read_table(write(_text("\t")), ReadOptions(separator=tab)).frame.rows() == ROWS
    # A comma in every line, but they are not what separates.
    path = write("user;item;title, year\n1;2;a, 1\n")
    assert read_table(path, ReadOptions(separator=";")).frame.rows() == [(1, 2)]


@pytest.mark.parametrize("separator", ["", '"', "\n", ",\0"])
def test_what_cannot_separate_is_refused(write, separator):
    with pytest.raises(SettingsError, match=r"data\.csv.* cannot separate fields"):
        read_table(write(_text()), ReadOptions(separator=separator))


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("who,what,how\n1,2,3\n", ReadOptions("who", "what", "how"), [(1, 2, 3.0)]),
        ("WHO,what,how\n1,2,3\n", ReadOptions("who", "What", "HOW"), [(1, 2, 3.0)]),
        ("who,what,how\n1,2,3\n", ReadOptions("2", "1", "3"), [(2, 1, 3.0)]),
        ("who,what,how\n1,2,3\n", ReadOptions("2", "1", "how"), [(2, 1, 3.0)]),
        ("user,item,score,other\n1,2,3,4\n", ReadOptions(rating="other"), [(1, 2, 4.0)]),
        ("user,item,rating,x\n1,2,3,4\n", ReadOptions(timestamp="rating"), [(1, 2, 3)]),
        ("9,1,2,3,8\n", ReadOptions("2", "3", "4"), [(1, 2, 3.0)]),
        ("1,2,x,y,3\n", ReadOptions(rating="5"), [(1, 2, 3.0)]),
        ("ann,film\nbob,play\n", ReadOptions("1", "2"), [("ann", "film"), ("bob", "play")]),
        ("ann,film\nbob,play\n", ReadOptions(header=False), [("ann", "film"), ("bob", "play")]),
        ("user,item\nbob,play\n", ReadOptions(header=False), [("user", "item"), ("bob", "play")]),
        ("a,b,2001-01-31\n", ReadOptions(timestamp="3", item="2"), [("a", "b", 980_899_200)]),
        ("1,2,3\n4,5,6\n", ReadOptions("1", "2", "3", header=True), [(4, 5, 6.0)]),
    ],
)
def test_columns_and_header_may_be_given(write, text, options, rows):
    assert read_table(write(text), options).frame.rows() == rows


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("user,item\n1,2\n", ReadOptions(rating="stars"), r"line 1: no column 'stars' for the rat"),
        ("user,item\n1,2\n", ReadOptions(rating="3"), r"no column '3' .* number from 1 to 2"),
        ("1,2,3\n", ReadOptions(user="0"), "no column '0' for the user"),
        ("user,item\n1,2\n", ReadOptions(user="1", item="1"), "column 1 was given for both user"),
        ("1,2,3,4,5\n", ReadOptions(header=False), "no column for user and item"),
        ("1,2\n", ReadOptions(separator=";"), "only one field.* ';' was given as the separator"),
    ],
)
def test_columns_that_are_not_there_are_refused(write, text, options, says):
    with pytest.raises(DataError, match=says):
        read_table(write(text), options)


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compress", [gzip.compress, _zstd])
def test_compressed_files_are_known_by_content(write, compress):
    whole = compress(_text(header=COLUMNS).encode())
    assert read_table(write(whole)).frame.rows() == ROWS
    assert read_table(write(whole + compress(b"3,10,1,1\n"))).n == 4, "two members"
    for cut in (5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(DataError, match=r"data\.csv is a damaged (gzip|zstd) file"):
            read_table(write(whole[:cut]), ReadOptions(bad_rows="skip"))
    with pytest.raises(DataError, match="is empty"):
        read_table(write(compress(b"")))


def test_the_encoding_may_be_given(write):
    text = "user,item,rating\nJosé,c,3\nann,b,4\n"
    latin = ReadOptions(encoding="latin-1")
    table = read_table(write(text.encode("latin-1")), latin)
    assert table.frame["user"].to_list() == ["José", "ann"]
    assert table.source_notes == ()
    assert read_table(write(text), latin).frame["user"][0] == "JosÃ©", "as told"
    with pytest.raises(DataError, match=r"line 2: byte 0xe9 is not UTF-8; .* latin-1"):
        read_table(write(text.encode("latin-1")), ReadOptions(encoding="utf-8"))
    skipping = ReadOptions(encoding="utf-8", bad_rows="skip")
    table = read_table(write(text.encode("latin-1")), skipping)
    assert table.frame["user"].to_list() == ["ann"]
    assert "1 that are not UTF-8" in table.source_notes[0]


def test_names_of_columns_may_be_latin1(write):
    path = write("Benützer,item\n1,2\n".encode("latin-1"))
    assert read_table(path, ReadOptions(user="Benützer")).frame.rows() == [(1, 2)]


def test_bad_rows_are_left_out_and_counted(write):
    bad = [
        "1,3,good,4",
        "1,4",
        ",5,3,4",
        "1,,3,4",
        "1,6,3,soon",
        "1,7,3,4,5",
        "1,8,,4",
        '"1"2,9,3,4',
    ]
    path = write(HEAD + "1,2,3,4\n" + "\n".join(bad) + "\n\n2,2,3,4\n1,\0,3,4\n")
    table = read_table(path, ReadOptions(bad_rows="skip"))
    assert table.frame.rows() == [(1, 2, 3.0, 4), (2, 2, 3.0, 4)]
    (note,) = table.source_notes
    assert note.startswith("9 of 11 rows are no interactions and were left out (2 with a rating th")
    for part in ("1 with too few", "1 with too many", "1 without a user", "1 without an item"):
        assert part in note
    assert note.endswith(
        f"the first one: {path}, line 3, has 'good' in column 3 ('rating'), but the rating must be "
        f"a finite number."
    )


def test_a_lone_quote_costs_one_row(write):
    text = HEAD + '1,2,3,4\n"1,3,3,4\n1,4,3,4\n' + "".join(f"2,{i},3,4\n" for i in range(20_000))
    table = read_table(write(text), ReadOptions(bad_rows="skip"))
    assert table.n == 20_002
    assert "were left out (1 that cannot be split into fields)" in table.source_notes[0]


def test_a_file_of_bad_rows_alone_is_refused(write):
    with pytest.raises(
        DataError, match=r"No row is an interaction \(2 with a rating .*, line 2, has"
    ):
        read_table(write(HEAD + "1,2,x,4\n1,2,y,4\n"), ReadOptions(bad_rows="skip"))


def test_quoted_fields_may_span_blocks(write):
    note = '"' + 'a ""word"", and\r\nanother ' * 2000 + '"'
    text = "note,user,item,rating\n" + "".join(f"{note},{u},1,3\n" for u in range(200))
    table = read_table(write(text))
    assert table.frame["user"].to_list() == list(range(200))


def test_text_ids_in_a_late_block_make_all_ids_text(write):
    text = "".join(f"{row},1,3\n" for row in range(600_000)) + "007,1,3\n"
    users = read_table(write(text)).frame["user"]
    assert users[0] == "0"
    assert users[599_999] == "599999"
    assert users[600_000] == "007"


MEMORY = """
import sys
from cfuica.data.readers import read_table
from cfuica.errors import DataError
from cfuica.ops.runtime import peak_memory_gb
try:
    read_table(sys.argv[1])
except DataError as error:
    print(error)
print(peak_memory_gb())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is inherited elsewhere")
def test_a_fault_at_the_end_of_a_large_file_is_found_in_little_memory(write):
    path = write(HEAD + "1,2,3,4\n" * 3_000_000 + "1,2,x,4\n")
    run = [sys.executable, "-c", MEMORY, str(path)]
    said, peak = subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()
    assert "line 3000002, has 'x' in column 3 ('rating')" in said
    assert float(peak) < 0.5
