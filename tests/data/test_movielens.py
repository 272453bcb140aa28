"""Releases of MovieLens: small copies of their form, and the real ones where they are."""

from __future__ import annotations

import csv
import io
import time
import tracemalloc
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica import io as cfuica_io
from cfuica.data.layout import ReadOptions
from cfuica.data.movielens import read_movielens
from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError

ONE_M = {
    "ratings.dat": b"1::3::5::978300760\n2::1::3::978302109\n1::1::4::978301968\n",
    "movies.dat": "1::Toy Story (1995)::Animation|Comedy\n"
    "3::Amélie::Part II::Drama\n"
    "6::Unrated (2000)::Horror\n".encode("latin-1"),
}
HUNDRED_K = {
    "u.data": b"196\t2\t3\t881250949\n22\t1\t1\t878887116\n",
    "u.item": "1|Toy Story (1995)|01-Jan-1995||http://x|0|1|1\n"
    "2|Léon (1994)|01-Jan-1994||http://y|0|0|0\n"
    "4|unknown||||1|0|0\n".encode("latin-1"),
    "u.genre": b"unknown|0\nAction|1\nComedy|2\n\n",
}


TEN_M = {
    "ratings.dat": b"1::122::5::838985046\n1::65133::3.5::838983525\n",
    "movies.dat": "122::Boomerang (1992)::Comedy|Romance\n"
    "8606::Pull My Daisy (1958)::(no genres listed)\n"
    "65133::Amélie::Part II::Drama\n".encode(),
}
TWENTY_M = {
    "ratings.csv": b"userId,movieId,rating,timestamp\r\n1,296,5.0,1147880044\r\n"
    b"3,292757,0.5,1147868817\r\n3,7,0.5,1147868818\r\n",
    "movies.csv": "movieId,title,genres\r\n"
    '11,"American President, The (1995)",Comedy|Drama|Romance\r\n'
    '296,"He said ""Léon"", then left",(no genres listed)\r\n'
    "292757,Plain (2023),Drama\r\n".encode(),
    "tags.csv": b"userId,movieId,tag,timestamp\r\n1,296,good,1\r\n",
}


def _folder(path, files):
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def _zip(path, files, inside="set/"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if inside:
            archive.writestr(inside, b"")
        for name, data in files.items():
            archive.writestr(inside + name, data)
    return path


@pytest.fixture(params=["folder", "zip"])
def pack(request, tmp_path):
    def pack(files):
        if request.param == "folder":
            return _folder(tmp_path / "set", files)
        return _zip(tmp_path / "set.zip", files)

    return pack


def test_1m_from_folder_or_zip(pack):
    path = pack(ONE_M)
    table = read_movielens(path)
    assert table.frame.rows() == [
        (1, 3, 5.0, 978300760),
        (2, 1, 3.0, 978302109),
        (1, 1, 4.0, 978301968),
    ]
    assert table.items is not None
    assert table.items.rows() == [
        (1, "Toy Story (1995)", ["Animation", "Comedy"]),
        (3, "Amélie::Part II", ["Drama"]),
        (6, "Unrated (2000)", ["Horror"]),
    ]
    assert table.item_ids.ids.to_list() == [1, 2, 3, 4, 5, 6]
    assert table.source == str(path)


def test_100k_from_folder_or_zip(pack):
    table = read_movielens(pack(HUNDRED_K))
    assert table.frame.rows() == [(196, 2, 3.0, 881250949), (22, 1, 1.0, 878887116)]
    assert table.items is not None
    assert table.items.rows() == [
        (1, "Toy Story (1995)", ["Action", "Comedy"]),
        (2, "Léon (1994)", []),
        (4, "unknown", ["unknown"]),
    ]
    assert table.item_ids.ids.to_list() == [1, 2, 3, 4]


def test_10m_from_folder_or_zip_has_half_stars_and_the_listed_movies_as_axis(pack):
    table = read_movielens(pack(TEN_M))
    assert table.frame.rows() == [(1, 122, 5.0, 838985046), (1, 65133, 3.5, 838983525)]
    assert table.items is not None
    assert table.items.rows() == [
        (122, "Boomerang (1992)", ["Comedy", "Romance"]),
        (8606, "Pull My Daisy (1958)", []),
        (65133, "Amélie::Part II", ["Drama"]),
    ]
    assert table.item_ids.ids.to_list() == [122, 8606, 65133]


def test_later_releases_from_folder_or_zip(pack):
    path = pack(TWENTY_M)
    table = read_movielens(path)
    assert table.frame.rows() == [
        (1, 296, 5.0, 1147880044),
        (3, 292757, 0.5, 1147868817),
        (3, 7, 0.5, 1147868818),
    ]
    assert table.items is not None
    assert table.items.rows() == [
        (11, "American President, The (1995)", ["Comedy", "Drama", "Romance"]),
        (296, 'He said "Léon", then left', []),
        (292757, "Plain (2023)", ["Drama"]),
    ]
    assert table.item_ids.ids.to_list() == [7, 11, 296, 292757], "listed, or rated, no gaps"
    assert table.source == str(path)
    assert table.source_notes == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [("u.data", "1\t{}\t3\t1\n"), ("ratings.dat", "1::{}::3::1\n")],
)
def test_an_absurd_id_does_not_span_an_absurd_axis(pack, name, text):
    files = {name: (text.format(1) + text.format(10**15)).encode()}
    assert read_movielens(pack(files)).item_ids.ids.to_list() == [1, 10**15]


_TITLES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20
).filter(lambda title: title.strip() == title)


@given(st.lists(_TITLES, min_size=1, max_size=6))
def test_any_title_in_movies_csv_comes_back(tmp_path_factory, titles):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["movieId", "title", "genres"])
    writer.writerows([number, title, "Drama"] for number, title in enumerate(titles, 1))
    folder = tmp_path_factory.mktemp("titles")
    (folder / "movies.csv").write_bytes(text.getvalue().encode())
    (folder / "ratings.csv").write_bytes(TWENTY_M["ratings.csv"])
    items = read_movielens(folder).items
    assert items is not None
    assert items["title"].to_list() == titles


@pytest.mark.parametrize("inside", ["", "ml-1m/", "a/b/c/"])
def test_the_movies_are_those_beside_the_ratings(tmp_path, inside):
    files = {f"{inside}{name}": data for name, data in ONE_M.items()}
    litter = {
        "__MACOSX/ratings.dat": b"litter",
        f"__MACOSX/{inside}._ratings.dat": b"litter",
        f"{inside}deep/er/movies.dat": b"litter",
        f"{inside}deep/er/ratings.dat": b"litter",
        f"{inside}deep/er/u.data": b"litter",
        "movies/movies.dat": b"litter",
    }
    for number, indices in enumerate(({**files, **litter}, {**litter, **files})):
        path = _zip(tmp_path / f"{number}.zip", indices, inside="")
        table = read_movielens(path)
        assert table.n == 3
        assert table.items is not None
        assert table.items.height == 3


def test_a_folder_around_the_folder_will_do(tmp_path):
    _folder(tmp_path / "outer" / "ml-1m", ONE_M)
    assert read_movielens(tmp_path / "outer").n == 3
    _folder(tmp_path / "outer" / "ml-25m", TWENTY_M)
    with pytest.raises(DataError, match=r"ratings in several folders \(ml-1m, ml-25m\)"):
        read_movielens(tmp_path / "outer")


def test_naming_columns_that_are_known_is_refused(pack):
    path = pack(ONE_M)
    with pytest.raises(SettingsError, match="columns are known, but item and separator was given"):
        read_movielens(path, ReadOptions(item="2", separator=";"))
    assert read_movielens(path, ReadOptions(bad_rows="skip")).n == 3


def test_ratings_alone_are_enough(pack):
    table = read_movielens(pack({"ratings.dat": ONE_M["ratings.dat"]}))
    assert table.items is None
    assert table.item_ids.ids.to_list() == [1, 2, 3]


def test_movies_converted_to_utf8_are_read_too(pack):
    files = {**ONE_M, "movies.dat": "1::Amélie::Drama\r\n".encode()}
    items = read_movielens(pack(files)).items
    assert items is not None
    assert items.rows() == [(1, "Amélie", ["Drama"])]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"README": b"x"}, ["is not a MovieLens data set", "u.data, ratings.dat or ratings.csv"]),
        (
            {**ONE_M, "ratings.dat": b"1::3::5::1\n2::3::x::1\n"},
            ["ratings.dat, line 2, has 'x' in column 3 ('rating')"],
        ),
        ({**ONE_M, "movies.dat": b"1::A::B\n2;C\n"}, ["movies.dat, line 2: '2;C'"]),
        ({**ONE_M, "movies.dat": b"one::A::B\n"}, ["movies.dat, line 1: 'one'", "whole number"]),
        ({**ONE_M, "ratings.dat": b"1::x3::5::1\n"}, ["ratings.dat: the movie id 'x3'"]),
        (
            {**ONE_M, "ratings.dat": b"1::" + b"x" * 5000 + b"::5::1\n"},
            ["ratings.dat: the movie id 'xxx", "xxx...' is not a whole number"],
        ),
        (
            {**TWENTY_M, "movies.csv": b"movieId,title,genres\n1,A,B\n2,C\n"},
            ["movies.csv, line 3: '2,C'", "id,title,genre|genre"],
        ),
        ({**TWENTY_M, "movies.csv": b'1,A,B\n2,"C,D\n'}, ["movies.csv, line 2: "]),
        ({**TWENTY_M, "movies.csv": b"1,A,B\nx,C,D\n"}, ["movies.csv, line 2: 'x'"]),
        (
            {**TWENTY_M, "ratings.csv": b"userId,movieId,rating,timestamp\n1,2,x,3\n"},
            ["ratings.csv, line 2, has 'x' in column 3 ('rating')"],
        ),
        ({**HUNDRED_K, "u.item": b"1|A\n2\n"}, ["u.item, line 2: '2'"]),
        ({**HUNDRED_K, "u.item": b"x|A\n"}, ["u.item, line 1: 'x'", "whole number"]),
    ],
)
def test_faulty_copies_are_refused_by_file_and_line(pack, files, says):
    path = pack(files)
    with pytest.raises(DataError) as caught:
        read_movielens(path)
    for part in (str(path), *says):
        assert part in str(caught.value)


def _refused(path, data):
    """The message of reading an archive of these bytes."""
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_movielens(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def _changed(path, signature, offset, value):
    """The archive with another number in the last header of this kind."""
    data = bytearray(path.read_bytes())
    at = data.rindex(signature) + offset
    data[at : at + len(value)] = value
    return data


def test_broken_archives_are_refused(tmp_path):
    whole = _zip(tmp_path / "whole.zip", ONE_M).read_bytes()
    path = tmp_path / "bad.zip"
    assert "bad.zip cannot be read (File is not a zip" in _refused(path, whole[: len(whole) // 2])
    damaged = bytearray(whole)
    at = whole.index(b"ratings.dat") + len(b"ratings.dat") + 5
    damaged[at : at + 8] = b"\xff" * 8
    assert "bad.zip/ratings.dat cannot be read (" in _refused(path, damaged)
    not_utf8 = _zip(path, {"\u00e9": b""}).read_bytes().replace("\u00e9".encode(), b"\xff\xff")
    assert "bad.zip cannot be read ('utf-8' codec" in _refused(path, not_utf8)
    with pytest.raises(DataError, match=r"absent\.zip cannot be read \(No such file"):
        read_movielens(tmp_path / "absent.zip")


@given(st.data())
def test_any_change_to_an_archive_ends_in_data_or_a_sentence(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("changed") / "set.zip"
    content = bytearray(_zip(path, {"ratings.dat": ONE_M["ratings.dat"]}).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(DataError):
        read_movielens(path)


def test_hostile_archives_are_refused(tmp_path):
    files = {"ratings.dat": ONE_M["ratings.dat"] * (1 << 20)}
    path = _zip(tmp_path / "set.zip", files)
    assert "unpacks to 59,768,832 bytes, far more than any data set" in _refused(
        path, path.read_bytes()
    )
    # The size in the list is 10 bytes; no more than these are read, and their checksum is wrong.
    assert "cannot be read (Bad CRC-32" in _refused(
        path, _changed(path, b"PK\x01\x02", 24, (10).to_bytes(4, "little"))
    )
    assert "its file 'set/ratings.dat' cannot be read (it is encrypted)" in _refused(
        path, _changed(_zip(path, {"ratings.dat": ONE_M["ratings.dat"]}), b"PK\x01\x02", 8, b"\x01")
    )


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_cannot_be_bounded_are_refused(tmp_path, compression):
    path = tmp_path / "odd.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("ratings.dat", ONE_M["ratings.dat"])
    assert "it has an unusual compression" in _refused(path, path.read_bytes())


def test_ratings_in_a_zip_are_read_block_by_block(tmp_path, monkeypatch):
    rows = range(600_000)
    text = "".join(f"{row % 6000}::{row // 6000 + 1}::5::978300760\n" for row in rows).encode()
    path = _zip(tmp_path / "set.zip", {"ratings.dat": text})
    monkeypatch.setattr(cfuica_io, "_BLOCK", 1 << 18)
    tracemalloc.start()
    try:
        assert read_movielens(path).n == len(rows)
        assert tracemalloc.get_traced_memory()[1] < len(text) / 2
    finally:
        tracemalloc.stop()


def test_nothing_is_extracted_from_a_hostile_archive(tmp_path):
    files = {"../../evil/ratings.dat": ONE_M["ratings.dat"]}
    table = read_movielens(_zip(tmp_path / "evil.zip", files, inside=""))
    assert table.n == 3
    assert [path.name for path in tmp_path.iterdir()] == ["evil.zip"]


def test_real_1m_has_the_papers_vocabularies_and_loads_quickly(data_path):
    path = data_path("ml-1m/ml-1m.zip")
    start = time.perf_counter()
    table = Interactions.read(path)
    users, items, scale = table.users, table.item_ids, table.scale
    matrix = table.matrix(users=users, items=items, scale=scale)
    assert time.perf_counter() - start < 3
    assert (matrix.n_users, matrix.n_items, matrix.n_interactions) == (6040, 3952, 1_000_209)
    assert scale.values == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert (matrix.by_item.offsets[1:] > matrix.by_item.offsets[:-1]).sum() == 3706
    assert table.frame.row(0) == (1, 1193, 5.0, 978300760), "file order"
    assert table.items is not None
    assert table.items.height == 3883
    assert table.source_notes == ()


def test_real_100k(data_path):
    table = Interactions.read(data_path("ml-100k"))
    assert (table.n, table.users.size, table.item_ids.size) == (100_000, 943, 1682)
    assert table.items is not None
    assert table.items.row(0) == (1, "Toy Story (1995)", ["Animation", "Children's", "Comedy"])
