"""Reader of every MovieLens release, from the folder or directly from the zip.

| releases                         | ratings     | movies     | item vocabulary                  |
| -------------------------------- | ----------- | ---------- | -------------------------------- |
| 100K                             | u.data      | u.item     | every id from 1 to the largest   |
| 1M                               | ratings.dat | movies.dat | every id from 1 to the largest   |
| 10M                              | ratings.dat | movies.dat | movies listed, and movies rated  |
| 20M, 25M, 32M, latest, and small | ratings.csv | movies.csv | movies listed, and movies rated  |

The item vocabulary of 100K and 1M has every id up to the largest in the list of movies, rated or
not. For 1M these are 3,952 items, of which the list has 3,883 and the ratings 3,706: the raw id
space of the paper's experiments. So parameter counts and the candidates of top-N agree with the
paper.

The later releases number their movies with wide gaps (up to 292,757 for 87,585 movies in 32M).
Their vocabulary has every movie in the list, so that an item without ratings is in it, as in 1M,
and so that it does not depend on the ratings; and every rated movie that the list lacks.
"""

from __future__ import annotations

import csv
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import polars as pl

from cfuica.data.delimited import Content, Stream, open_content, parse
from cfuica.data.layout import FIND_OUT, Layout, ReadOptions, short
from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError
from cfuica.io import shown

# Contents by their path inside the folder or zip; nothing is opened until it is read.
Files = Mapping[PurePosixPath, Content]

# Raised by zipfile for a damaged, truncated, encrypted or unusual archive.
_ZIP_FAULTS = (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)
_ENCRYPTED = 0x1
# The largest release unpacks to 1.2 GB, which is 5 times its zip; small files may be very regular.
_UNPACKED_MOST = 8 << 30
_UNPACKED_RATIO, _UNPACKED_FREE = 100, 16 << 20

_START = 1 << 16
_NO_GENRES = "(no genres listed)"
_ITEMS = {"item": pl.Int64(), "title": pl.String(), "genres": pl.List(pl.String())}


def read_movielens(path: str | Path, options: ReadOptions = FIND_OUT) -> Interactions:
    """Read a folder or zip with a file of ratings and perhaps the list of movies beside it.

    The files may be in a folder of the zip, or one folder deeper; the list of movies is always the
    one beside the ratings. Of `options` those about rows, ratings and the encoding apply; options
    about columns are refused, because the columns of a release are fixed.
    """
    path = Path(path)
    _refuse_layout(options, path)
    files = files_in(path)
    form, folder = find_ratings(files, path)
    ratings, movies = folder / form.ratings, folder / form.movies
    content, name = files[ratings], f"{path}/{form.ratings}"
    layout = (
        Layout.of_text(_start(content, name), name)
        if form.separator is None
        else Layout.positional(form.separator)
    )
    frame, notes = parse(content, layout, name, options)
    _refuse_text_ids(frame["item"], name)
    items = None
    if movies in files:
        lines = partial(_lines, files, folder, path)
        rows = list(form.read_movies(lines, f"{path}/{form.movies}"))
        items = pl.DataFrame(rows, schema=_ITEMS, orient="row")
    space = _item_space(frame["item"], items, form)
    return Interactions.of_rows(
        frame,
        options=options,
        items=items,
        item_space=space,
        source=shown(path),
        source_notes=notes,
    )


def _item_space(rated: pl.Series, items: pl.DataFrame | None, form: Form) -> pl.Series | None:
    ids = rated if items is None else pl.concat([rated, items["item"]])
    last = int(ids.max())  # type: ignore[arg-type]
    if last <= form.last_dense_id:
        return pl.int_range(1, last + 1, dtype=pl.Int64, eager=True).alias("item")
    return None if items is None else ids.unique().sort()


# The movies of each form: an iterator of (id, title, genres).
Lines = Callable[[str], Iterator[tuple[int, str]]]
Movie = tuple[int, str, list[str]]


def _movies_100k(lines: Lines, place: str) -> Iterator[Movie]:
    """u.item: id|title|date|video date|url|one flag per genre, the genres named by u.genre."""
    genres = [genre for _, line in lines("u.genre") if (genre := line.split("|")[0])]
    for number, line in lines("u.item"):
        fields = line.split("|")
        if len(fields) < 2:
            raise _bad_movie(place, number, line, "id|title|...|genre flags")
        flags = fields[5:]
        of_movie = [genre for genre, flag in zip(genres, flags, strict=False) if flag == "1"]
        yield _movie_id(fields[0], place, number), fields[1], of_movie


def _movies_dat(lines: Lines, place: str) -> Iterator[Movie]:
    """movies.dat: id::title::genre|genre, where a title may itself contain '::'."""
    for number, line in lines("movies.dat"):
        ident, _, rest = line.partition("::")
        title, separator, genres = rest.rpartition("::")
        if not separator:
            raise _bad_movie(place, number, line, "id::title::genre|genre")
        yield _movie_id(ident, place, number), title, _genres(genres)


def _movies_csv(lines: Lines, place: str) -> Iterator[Movie]:
    """movies.csv: movieId,title,genre|genre with a header, a title with commas in quotes."""
    for number, line in lines("movies.csv"):
        fields = _csv_fields(line)
        if len(fields) != 3:
            raise _bad_movie(place, number, line, "id,title,genre|genre")
        if number == 1 and fields[0].casefold() == "movieid":
            continue
        yield _movie_id(fields[0], place, number), fields[1], _genres(fields[2])


def _csv_fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return []


def _genres(text: str) -> list[str]:
    return [] if text in ("", _NO_GENRES) else text.split("|")


@dataclass(frozen=True)
class Form:
    """File names and formats of a release."""

    ratings: str
    separator: str | None  # None: a header names the columns.
    movies: str
    read_movies: Callable[[Lines, str], Iterator[Movie]]
    # Largest id of the release whose vocabulary has every id; larger ids have gaps.
    last_dense_id: int


# 1M and 10M have the same form; no id of the former exceeds 3,952, those of 10M reach 65,133.
_FORMS = (
    Form("u.data", "\t", "u.item", _movies_100k, 1682),
    Form("ratings.dat", "::", "movies.dat", _movies_dat, 3952),
    Form("ratings.csv", None, "movies.csv", _movies_csv, 0),
)


def find_ratings(files: Files, path: Path) -> tuple[Form, PurePosixPath]:
    """The form and the folder of the ratings, the outermost one that has any."""
    found = [
        (len(place.parts), form, place.parent)
        for form in _FORMS
        for place in files
        if place.name == form.ratings and not _is_litter(place)
    ]
    if not found:
        *most, last = (form.ratings for form in _FORMS)
        raise DataError(
            f"{path} is not a MovieLens data set: it has no {', '.join(most)} or {last}; for any "
            f"other data give the file of ratings itself."
        )
    depth = min(deep for deep, _, _ in found)
    highest = [(form, folder) for deep, form, folder in found if deep == depth]
    folders = sorted({str(folder) for _, folder in highest})
    if len(folders) > 1:
        raise DataError(
            f"{path} has ratings in several folders ({', '.join(folders)}), and it is unclear "
            f"which are meant; give the path of one of them."
        )
    return highest[0]


def _is_litter(place: PurePosixPath) -> bool:
    """Whether macOS added the file to the archive."""
    return "__MACOSX" in place.parts or place.name.startswith("._")


def _refuse_layout(options: ReadOptions, path: Path) -> None:
    metadata_columns = ("user", "item", "rating", "timestamp", "separator", "header")
    given = [name for name in metadata_columns if getattr(options, name) is not None]
    if given:
        raise SettingsError(
            f"{path} is read as MovieLens, whose columns are known, but {' and '.join(given)} "
            f"was given; leave it out, or give the file of ratings itself."
        )


def _refuse_text_ids(ids: pl.Series, name: str) -> None:
    if ids.dtype.is_integer():
        return
    first = ids.filter(ids.cast(pl.Int64, strict=False).is_null()).first()
    raise DataError(
        f"{name}: the movie id {short(str(first))} is not a whole number, as those of "
        f"MovieLens are; fetch the data set again, or give the file itself if it is other data."
    )


def _start(content: Content, name: str) -> str:
    with open_content(content, name) as stream:
        return stream.read(_START).decode("utf-8", errors="replace")


def _lines(files: Files, folder: PurePosixPath, path: Path, name: str) -> Iterator[tuple[int, str]]:
    """(line number, line) of the lines that are not blank; none if there is no such file."""
    if folder / name not in files:
        return
    with open_content(files[folder / name], f"{path}/{name}") as stream:
        data = b"".join(iter(partial(stream.read, _START), b""))
    # UTF-8 is tried first: MovieLens before 2009 is latin-1, but copies converted by others exist,
    # and latin-1 would accept any bytes.
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")


def _movie_id(text: str, place: str, number: int) -> int:
    try:
        ident = int(text)
    except ValueError:
        ident = -1
    if not 0 <= ident < 2**63:
        raise _bad_movie(place, number, text, "a whole number from 0 as movie id")
    return ident


def _bad_movie(place: str, number: int, given: str, expected: str) -> DataError:
    shown = given if len(given) <= 60 else given[:57] + "..."
    return DataError(
        f"{place}, line {number}: {shown!r}, but {expected} was expected; fetch the data set again."
    )


def files_in(path: Path) -> Files:
    """The files of a folder and of its subfolders, or those of a zip."""
    if not path.is_dir():
        return _files_in_zip(path)
    found = [entry for pattern in ("*", "*/*") for entry in sorted(path.glob(pattern))]
    return {
        PurePosixPath(entry.relative_to(path).as_posix()): entry
        for entry in found
        if entry.is_file()
    }


def _files_in_zip(path: Path) -> Files:
    """The files of an archive; names are never used as paths, and links are left out."""
    with _zip_faults(str(path)), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        packed = path.stat().st_size
    # zipfile never returns more bytes of a file than the size that is stated here.
    unpacked = sum(member.file_size for member in members)
    if unpacked > min(_UNPACKED_MOST, _UNPACKED_FREE + _UNPACKED_RATIO * packed):
        raise DataError(
            f"{path} unpacks to {unpacked:,} bytes, far more than any data set of its size (a 'zip "
            f"bomb'), and was not read; fetch it again from a source that you trust."
        )
    return {
        PurePosixPath(member.filename): partial(_open_member, path, member)
        for member in members
        if not member.is_dir() and not stat.S_ISLNK(member.external_attr >> 16)
    }


@contextmanager
def _open_member(path: Path, member: zipfile.ZipInfo) -> Iterator[Stream]:
    """One file of an archive as a stream; nothing is extracted."""
    with ExitStack() as stack:
        with _zip_faults(f"{path}: its file {member.filename!r}"):
            if member.flag_bits & _ENCRYPTED:
                raise zipfile.BadZipFile("it is encrypted")
            # Other methods (bzip2, lzma) may unpack without bound in one call.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile("it has an unusual compression")
            archive = stack.enter_context(zipfile.ZipFile(path))
            file = stack.enter_context(archive.open(member))
        yield file


@contextmanager
def _zip_faults(name: str) -> Iterator[None]:
    try:
        yield
    except _ZIP_FAULTS as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(
            f"{name} cannot be read ({reason}); fetch the zip file again, or give its folder."
        ) from error
