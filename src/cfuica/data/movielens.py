"""MovieLens 100K and 1M, from the folder or straight from the zip.

The item axis of both spans every id from 1 to the largest in the list of movies, rated or not.
For 1M these are 3,952 items, of which the list has 3,883 and the ratings 3,706: the raw id space
of the paper's experiments. Keeping it makes parameter counts and the candidates of top-N agree
with the paper's, and an item that nobody rated yet has its place.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import polars as pl

from cfuica.data.layout import Layout
from cfuica.data.readers import parse
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError

# What zipfile raises for broken, truncated, encrypted or exotic members.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)

Files = Mapping[str, Callable[[], bytes]]


def read_movielens(path: str | Path) -> BehaviourTable:
    """Read a folder or zip with u.data and u.item (100K), or ratings.dat and movies.dat (1M)."""
    path = Path(path)
    files = _files_in_folder(path) if path.is_dir() else _files_in_zip(path)
    for release in _RELEASES:
        if release.ratings in files:
            return _read(release, files, path)
    known = " or ".join(release.ratings for release in _RELEASES)
    raise DataError(
        f"{path} is not MovieLens 100K or 1M: it has no {known}; for any other data give the file "
        f"of ratings itself."
    )


def _read(release: _Release, files: Files, path: Path) -> BehaviourTable:
    frame, notes = parse(
        files[release.ratings](), Layout.positional(release.separator), f"{path}/{release.ratings}"
    )
    items = release.read_items(files, path) if release.movies in files else None
    ids = frame["item"] if items is None else pl.concat([frame["item"], items["item"]])
    space = None
    if ids.dtype.is_integer():
        last = int(ids.max())  # type: ignore[arg-type]
        space = pl.int_range(1, last + 1, dtype=pl.Int64, eager=True).alias("item")
    return BehaviourTable.of_rows(
        frame, items=items, item_space=space, source=str(path), source_notes=notes
    )


def _items_100k(files: Files, path: Path) -> pl.DataFrame:
    """u.item: id|title|date|video date|url|one flag per genre, the genres named by u.genre."""
    genres = (
        [line.split("|")[0] for _, line in _text_lines(files, "u.genre") if line.split("|")[0]]
        if "u.genre" in files
        else []
    )
    rows = []
    for number, line in _text_lines(files, "u.item"):
        fields = line.split("|")
        if len(fields) < 2:
            raise _bad_movie(f"{path}/u.item", number, line, "id|title|...|genre flags")
        flags = fields[5:]
        rows.append(
            (
                _movie_id(fields[0], f"{path}/u.item", number),
                fields[1],
                [genre for genre, flag in zip(genres, flags, strict=False) if flag == "1"],
            )
        )
    return _items_frame(rows)


def _items_1m(files: Files, path: Path) -> pl.DataFrame:
    """movies.dat: id::title::genre|genre, where a title may itself contain '::'."""
    rows = []
    for number, line in _text_lines(files, "movies.dat"):
        ident, _, rest = line.partition("::")
        title, separator, genres = rest.rpartition("::")
        if not separator:
            raise _bad_movie(f"{path}/movies.dat", number, line, "id::title::genre|genre")
        movie = _movie_id(ident, f"{path}/movies.dat", number)
        rows.append((movie, title, genres.split("|") if genres else []))
    return _items_frame(rows)


@dataclass(frozen=True)
class _Release:
    ratings: str
    separator: str
    movies: str
    read_items: Callable[[Files, Path], pl.DataFrame]


_RELEASES = (
    _Release("u.data", "\t", "u.item", _items_100k),
    _Release("ratings.dat", "::", "movies.dat", _items_1m),
)


def _items_frame(rows: list[tuple[int, str, list[str]]]) -> pl.DataFrame:
    schema: dict[str, pl.DataType] = {
        "item": pl.Int64(),
        "title": pl.String(),
        "genres": pl.List(pl.String()),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _text_lines(files: Files, name: str) -> list[tuple[int, str]]:
    """(line number, line) of the lines that are not blank; MovieLens before 2015 is latin-1."""
    # UTF-8 is tried first: copies converted by others exist, and latin-1 would accept any bytes.
    data = files[name]()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    lines = enumerate(text.split("\n"), 1)
    return [(number, line.rstrip("\r")) for number, line in lines if line.strip()]


def _movie_id(text: str, place: str, number: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise _bad_movie(place, number, text, "a whole number as movie id") from None


def _bad_movie(place: str, number: int, given: str, expected: str) -> DataError:
    shown = given if len(given) <= 60 else given[:57] + "..."
    return DataError(
        f"{place}, line {number}: {shown!r}, but {expected} was expected; fetch the data set again."
    )


def _files_in_folder(folder: Path) -> Files:
    return {entry.name: entry.read_bytes for entry in sorted(folder.iterdir()) if entry.is_file()}


def _files_in_zip(path: Path) -> Files:
    """The files of an archive by their last name; nothing is extracted, so nothing can escape."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info.filename for info in archive.infolist() if not info.is_dir()]
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give a folder or zip of MovieLens."
        ) from error
    except _DAMAGE as error:
        raise DataError(f"{path} is not a whole zip file ({error}); fetch it again.") from error
    return {PurePosixPath(member).name: _member_reader(path, member) for member in members}


def _member_reader(path: Path, member: str) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(member)
        except _DAMAGE as error:
            raise DataError(
                f"{path}: its member {member} cannot be read ({error}); fetch the file again."
            ) from error

    return read
