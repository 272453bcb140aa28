"""The Netflix Prize files: small ones in exactly the forms in which people have them."""

from __future__ import annotations

import datetime
import io
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data import netflix
from cfuica.data.datasets import NETFLIX, RELEASES, fetch, resolve
from cfuica.data.layout import ReadOptions
from cfuica.data.netflix import read_netflix
from cfuica.data.readers import read_table
from cfuica.errors import CfuicaError, DataError, SettingsError

MOVIES = {
    1: b"1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n885013,4,2005-10-19\n",
    2: b"2:\n2059652,4,2005-09-05\n1488844,3,2005-04-19\n",
    3: b"3:\n822109,1,2004-02-29\n",
}
TITLES = (
    "1,2003,Dinosaur Planet\n2,2004,Isle of Man TT 2004 Review\n3,NULL,Amélie, Part II\n"
).encode("latin-1")
PROBE = b"1:\n1488844\n3:\n822109\n"
ROWS = [
    (1488844, 1, 3, "2005-09-06"),
    (822109, 1, 5, "2005-05-13"),
    (885013, 1, 4, "2005-10-19"),
    (2059652, 2, 4, "2005-09-05"),
    (1488844, 2, 3, "2005-04-19"),
    (822109, 3, 1, "2004-02-29"),
]
OTHERS = {"probe.txt": PROBE, "qualifying.txt": b"1:\n1046323,2005-12-19\n", "README": b"terms"}


def _tar(files: dict[str, bytes], mode: str = "w") -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode=mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return memory.getvalue()


def _training_set(movies: dict[int, bytes] = MOVIES) -> dict[str, bytes]:
    return {f"training_set/mv_{number:07}.txt": data for number, data in movies.items()}


def _write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _competition(tmp_path: Path) -> Path:
    outer = {"training_set.tar": _tar(_training_set()), "movie_titles.txt": TITLES, **OTHERS}
    path = tmp_path / "nf_prize_dataset.tar.gz"
    path.write_bytes(_tar({f"download/{name}": data for name, data in outer.items()}, "w:gz"))
    return path


COMBINED = {
    "combined_data_1.txt": MOVIES[1] + MOVIES[2],
    "combined_data_2.txt": MOVIES[3],
    "movie_titles.csv": TITLES,
    **OTHERS,
}


def _zip(tmp_path: Path) -> Path:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in COMBINED.items():
            archive.writestr(name, data)
    return path


FORMS = {
    "the tar": _competition,
    "unpacked once": lambda tmp: _write(
        tmp / "download",
        {"training_set.tar": _tar(_training_set()), "movie_titles.txt": TITLES, **OTHERS},
    ),
    "unpacked": lambda tmp: _write(
        tmp / "download", {**_training_set(), "movie_titles.txt": TITLES, **OTHERS}
    ),
    "combined": lambda tmp: _write(tmp / "kaggle", COMBINED),
    "combined, zip": _zip,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_table(form: str, tmp_path: Path) -> None:
    table = read_table(FORMS[form](tmp_path))
    _check(table.frame, ROWS)
    assert table.items is not None
    assert table.items.rows() == [
        (1, "Dinosaur Planet", 2003),
        (2, "Isle of Man TT 2004 Review", 2004),
        (3, "Amélie, Part II", None),
    ]


def _check(frame: pl.DataFrame, rows: list[tuple[int, int, int, str]]) -> None:
    assert frame.select("user", "item", "rating").rows() == [row[:3] for row in rows]
    days = pl.from_epoch(frame["timestamp"]).dt.strftime("%Y-%m-%d %H:%M:%S").to_list()
    assert days == [f"{row[3]} 00:00:00" for row in rows]


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_single_file_is_read_for_itself(end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mv_0000003.txt"
    path.write_bytes(MOVIES[3].replace(b"\n", end).rstrip())
    _check(read_table(path).frame, ROWS[-1:])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"5,3,2005-01-01\n", r"line 1: '5,3,2005-01-01' stands before any line such as '1:'"),
        (b"1:\n5,3,2005-01-01\n6,0,2005-01-01\n", r"line 3: '6,0,2005-01-01' .* not from 1 to 5"),
        (b"1:\n5,6,2005-01-01\n", "line 2: .* not from 1 to 5"),
        (b"1:\n5,,2005-01-01\n", "line 2: .* not from 1 to 5"),
        (b"1:\n\n5,5,2005-02-29\n", "line 3: .* does not end in a date"),
        (b"1:\n5,5,2005-13-01\n", "line 2: .* does not end in a date"),
        (b"1:\n5,5,2005-1-01\n", "line 2: .* does not end in a date"),
        (b"1:\n5,5,2005-01-01 \n", "line 2: .* does not end in a date"),
        (b"1:\n5,5\n", "line 2: '5,5', but '1:' or user,rating,date was expected"),
        (b"1:\nx,5,2005-01-01\n", "line 2: .* user,rating,date was expected"),
        (b"1:\n99999999999,5,2005-01-01\n", "line 2: .* user,rating,date was expected"),
        (b"1:\n5,3,2005-01-01\n0:\n", "line 3: '0:', but"),
        (b"1:\n5,3,2005-01-01\n4000000:\n", "line 3: '4000000:', but"),
    ],
)
def test_a_broken_line_is_refused_with_file_and_line(
    data: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path / "kaggle", {"combined_data_1.txt": data})
    for block in (7, 1 << 20):  # lines across blocks too
        monkeypatch.setattr(netflix, "_BLOCK", block)
        with pytest.raises(DataError, match=rf"combined_data_1\.txt, {said}"):
            read_table(path)


def test_broken_lines_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "combined_data_1.txt"
    path.write_bytes(b"1:\n5,3,2005-01-01\n6,0,2005-01-01\nx\n7,5,2005-01-02\n")
    table = read_netflix(path, ReadOptions(bad_rows="skip"))
    assert table.frame["user"].to_list() == [5, 7]
    assert "2 bad lines were left out; the first: " in table.source_notes[0]


@pytest.mark.parametrize("titles", [True, False])
def test_a_missing_movie_file_is_refused(titles: bool, tmp_path: Path) -> None:
    files = _training_set({1: MOVIES[1], 3: MOVIES[3]})
    path = _write(tmp_path / "netflix", files | ({"movie_titles.txt": TITLES} if titles else {}))
    with pytest.raises(DataError, match=r"no ratings of movie 2 .*mv_0000002\.txt"):
        read_table(path)


def test_a_missing_last_file_is_noticed_by_the_titles(tmp_path: Path) -> None:
    files = {"combined_data_1.txt": MOVIES[1] + MOVIES[2], "movie_titles.csv": TITLES}
    with pytest.raises(DataError, match="no ratings of movie 3 "):
        read_table(_write(tmp_path, files))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_cut_off_tar_is_refused(share: float, mode: str, tmp_path: Path) -> None:
    movies = {n: f"{n}:\n".encode() + b"7,4,2001-01-01\n" * 2_000 for n in range(1, 4)}
    inner = _tar(_training_set(movies))
    whole = _tar({"download/movie_titles.txt": TITLES, "download/training_set.tar": inner}, mode)
    path = tmp_path / ("nf.tar" if mode == "w" else "nf.tar.gz")
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"cut-off|damaged|no ratings of movie"):
        read_table(path)


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=9)), min_size=1, max_size=3))
def test_any_change_to_a_tar_ends_in_data_or_a_sentence(
    changes: list[tuple[float, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = {
        "download/training_set.tar": _tar(_training_set()),
        "download/movie_titles.txt": TITLES,
    }
    data = _tar(files)
    for place, new in changes:
        at = int(place * len(data))
        data = data[:at] + new + data[at + len(new) :]
    path = tmp_path_factory.mktemp("netflix") / "nf.tar"
    path.write_bytes(data)
    with suppress(CfuicaError):
        read_table(path)


def test_broken_titles_are_refused_with_their_line(tmp_path: Path) -> None:
    files = {"combined_data_1.txt": MOVIES[1], "movie_titles.csv": b"1,2003,A\n2;2004;B\n"}
    with pytest.raises(
        DataError, match=r"movie_titles\.csv, line 2: '2;2004;B', but id,year,title"
    ):
        read_table(_write(tmp_path, files))


def test_options_about_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="rating was given"):
        read_table(_write(tmp_path, COMBINED), ReadOptions(rating="3"))


DATES = st.dates(datetime.date(1970, 1, 1), datetime.date(2105, 12, 31))
RATINGS = st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 5), DATES), max_size=5)


@settings(max_examples=50, deadline=None)
@given(movies=st.lists(RATINGS, min_size=1, max_size=5), block=st.integers(1, 60))
def test_what_was_written_is_read(
    movies: list[list[tuple[int, int, datetime.date]]],
    block: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    movies[0].append((9, 4, datetime.date(2000, 2, 29)))
    lines = []
    rows = []
    for number, ratings in enumerate(movies, 1):
        lines.append(f"{number}:")
        for user, rating, date in {user: (user, *rest) for user, *rest in ratings}.values():
            lines.append(f"{user},{rating},{date}")
            rows.append((user, number, rating, str(date)))
    path = tmp_path_factory.mktemp("netflix") / "combined_data_1.txt"
    path.write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(netflix, "_BLOCK", block)
        patch.setattr(netflix, "_ROWS", 3)
        _check(read_table(path).frame, rows)


@pytest.mark.parametrize("form", ["the tar", "combined"])
def test_it_is_brought_into_the_cache_with_the_probe_apart(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CFUICA_DATA", raising=False)
    monkeypatch.setenv("CFUICA_CACHE", str(tmp_path / "cache"))
    got = fetch(RELEASES[NETFLIX], tmp_path / "cache", source=FORMS[form](tmp_path))
    assert got.verified.startswith("Not verified: it has 6 ratings by 4 users of 3 movies, but ")
    probe = read_table(got.folder / "probe.parquet")
    _check(probe.frame, [ROWS[0], ROWS[5]])
    _check(read_table(got.folder / "train.parquet").frame, ROWS[1:5])
    table = resolve("netflix")
    assert sorted(table.frame.select("user", "item").rows()) == sorted(row[:2] for row in ROWS)
    assert table.items is not None
    assert table.items["title"][2] == "Amélie, Part II"


def test_without_a_probe_all_is_in_the_training_file(tmp_path: Path) -> None:
    source = _write(tmp_path / "netflix", _training_set())
    got = fetch(RELEASES[NETFLIX], tmp_path / "cache", source=source)
    assert [file.name for file in got.folder.iterdir()] == ["train.parquet"]


def test_a_probe_of_other_ratings_is_refused(tmp_path: Path) -> None:
    source = _write(tmp_path / "netflix", {**_training_set(), "probe.txt": b"1:\n77\n"})
    with pytest.raises(DataError, match=r"1 pairs without a rating, such as user 77 of movie 1"):
        fetch(RELEASES[NETFLIX], tmp_path / "cache", source=source)
    assert not (tmp_path / "cache" / "netflix").exists()


def test_there_is_no_download(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"may not be redistributed.* netflix --from PATH"):
        fetch(RELEASES[NETFLIX], tmp_path / "cache")
