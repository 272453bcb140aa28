"""MovieLens 100K and 1M: small copies of their form, and the real ones where they are."""

from __future__ import annotations

import time
import zipfile

import pytest

from cfuica.data.movielens import read_movielens
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError

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


def _folder(path, files):
    path.mkdir()
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
            ["ratings.dat, line 2, column 3 ('rating')", "'x'"],
        ),
        ({**ONE_M, "movies.dat": b"1::A::B\n2;C\n"}, ["movies.dat, line 2: '2;C'"]),
        ({**ONE_M, "movies.dat": b"one::A::B\n"}, ["movies.dat, line 1: 'one'", "whole number"]),
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


def test_broken_archives_are_refused(tmp_path):
    whole = _zip(tmp_path / "whole.zip", ONE_M).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.zip is not a whole zip file"):
        read_movielens(tmp_path / "cut.zip")
    damaged = bytearray(whole)
    at = whole.index(b"ratings.dat") + len(b"ratings.dat") + 5
    damaged[at : at + 8] = b"\xff" * 8
    (tmp_path / "damaged.zip").write_bytes(damaged)
    with pytest.raises(DataError, match=r"damaged\.zip: its member set/ratings\.dat cannot be"):
        read_movielens(tmp_path / "damaged.zip")
    with pytest.raises(DataError, match=r"absent\.zip cannot be read \(No such file"):
        read_movielens(tmp_path / "absent.zip")


def test_nothing_is_extracted_from_a_hostile_archive(tmp_path):
    files = {"../../evil/ratings.dat": ONE_M["ratings.dat"]}
    table = read_movielens(_zip(tmp_path / "evil.zip", files, inside=""))
    assert table.n == 3
    assert [path.name for path in tmp_path.iterdir()] == ["evil.zip"]


def test_real_1m_has_the_papers_axes_and_loads_quickly(data_path):
    path = data_path("ml-1m/ml-1m.zip")
    start = time.perf_counter()
    table = BehaviourTable.read(path)
    users, items, scale = table.users, table.item_ids, table.scale
    matrix = table.matrix(users=users, items=items, scale=scale)
    assert time.perf_counter() - start < 3
    assert (matrix.n_users, matrix.n_items, matrix.n_behaviours) == (6040, 3952, 1_000_209)
    assert scale.values == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert (matrix.by_item.offsets[1:] > matrix.by_item.offsets[:-1]).sum() == 3706
    assert table.frame.row(0) == (1, 1193, 5.0, 978300760), "file order"
    assert table.items is not None
    assert table.items.height == 3883
    assert table.source_notes == ()


def test_real_100k(data_path):
    table = BehaviourTable.read(data_path("ml-100k"))
    assert (table.n, table.users.size, table.item_ids.size) == (100_000, 943, 1682)
    assert table.items is not None
    assert table.items.row(0) == (1, "Toy Story (1995)", ["Animation", "Children's", "Comedy"])
