"""MovieLens: every release, from the folder or directly from the zip; and NCF's test set of 1M.

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

NCF's published test set (He et al., Neural Collaborative Filtering, WWW 2017) has a test item and
99 negatives for each of the 6,040 users of 1M. Its files have ids of their own: a user is
MovieLens's less 1, and items are numbered by their first appearance in ratings.dat, as listed in
`item_map.csv`.
"""

from __future__ import annotations

import csv
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.columns import Rows
from cfuica.data.datasets import homes
from cfuica.data.delimited import parse
from cfuica.data.layout import FIND_OUT, Layout, ReadOptions, refuse_column_options, short
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.io import Content, open_content, shown

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
    refuse_column_options(options, f"{path} is read as MovieLens")
    files = files_in(path)
    form, folder = find_ratings(files, path)
    content, name = files[folder / form.ratings], f"{path}/{form.ratings}"
    if form.separator is None:
        with open_content(content, name) as stream:
            layout = Layout.of_text(stream.read(_START).decode("utf-8", errors="replace"), name)
    else:
        layout = Layout.positional(form.separator)
    rows = Rows(options, name)
    parse(content, layout, rows)
    frame, notes = rows.frame()
    if not (ids := frame["item"]).dtype.is_integer():
        first = ids.filter(ids.cast(pl.Int64, strict=False).is_null()).first()
        raise DataError(
            f"{name}: the movie id {short(str(first))} is not a whole number, as those of "
            f"MovieLens are; fetch the data set again, or give the file itself if it is other data."
        )
    items = _movies(form, files, folder, path) if folder / form.movies in files else None
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


# The movies of a release: id, title and genres as text, None where a line has another form.
Movie = tuple[str, str, list[str]]


def _movie_100k(line: str, genres: list[str]) -> Movie | None:
    """u.item: id|title|date|video date|url|one flag per genre, the genres named by u.genre."""
    fields = line.split("|")
    if len(fields) < 2:
        return None
    flags = zip(genres, fields[5:], strict=False)
    return fields[0], fields[1], [genre for genre, flag in flags if flag == "1"]


def _movie_dat(line: str, _: list[str]) -> Movie | None:
    """movies.dat: id::title::genre|genre, where a title may itself contain '::'."""
    first, separator, genres = line.rpartition("::")
    ident, also, title = first.partition("::")
    return (ident, title, _genres(genres)) if separator and also else None


def _movie_csv(line: str, _: list[str]) -> Movie | None:
    """movies.csv: movieId,title,genre|genre with a header, a title with commas in quotes."""
    try:
        ident, title, genres = next(csv.reader([line], strict=True))
    except (csv.Error, ValueError):
        return None
    return ident, title, _genres(genres)


def _genres(text: str) -> list[str]:
    return [] if text in ("", _NO_GENRES) else text.split("|")


@dataclass(frozen=True)
class Form:
    """File names and formats of a release."""

    ratings: str
    separator: str | None  # None: a header names the columns.
    movies: str
    # From a line of the list of movies and the names of the genres to the movie.
    read_movie: Callable[[str, list[str]], Movie | None]
    movie_line: str  # The form of such a line, for messages.
    # Largest id of the release whose vocabulary has every id; larger ids have gaps.
    last_dense_id: int


# 1M and 10M have the same form; no id of the former exceeds 3,952, those of 10M reach 65,133.
_FORMS = (
    Form("u.data", "\t", "u.item", _movie_100k, "id|title|...|genre flags", 1682),
    Form("ratings.dat", "::", "movies.dat", _movie_dat, "id::title::genre|genre", 3952),
    Form("ratings.csv", None, "movies.csv", _movie_csv, "id,title,genre|genre", 0),
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


def _movies(form: Form, files: Files, folder: PurePosixPath, path: Path) -> pl.DataFrame:
    """The list of movies: item, title, genres."""
    lines = partial(_lines, files, folder, path)
    genres = [genre for _, line in lines("u.genre") if (genre := line.split("|")[0])]
    rows = []
    for number, line in lines(form.movies):
        movie = form.read_movie(line, genres)
        ident = movie[0] if movie else ""
        if number == 1 and form.separator is None and ident.casefold() == "movieid":
            continue
        is_id = ident.isascii() and ident.strip(" ").isdecimal() and int(ident) < 2**63
        if movie is None or not is_id:
            given = short(line if movie is None else ident)
            expected = "a whole number from 0 as movie id" if movie else form.movie_line
            raise DataError(
                f"{path}/{form.movies}, line {number}: {given}, but {expected} was expected; fetch "
                f"the data set again."
            )
        rows.append((int(ident), *movie[1:]))
    return pl.DataFrame(rows, schema=_ITEMS, orient="row")


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
def _open_member(path: Path, member: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """One file of an archive as a stream; nothing is extracted."""
    with _zip_faults(f"{path}: its file {member.filename!r}"):
        if member.flag_bits & _ENCRYPTED:
            raise zipfile.BadZipFile("it is encrypted")
        # Other methods (bzip2, lzma) may unpack without bound in one call.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile("it has an unusual compression")
        with zipfile.ZipFile(path) as archive:
            file = archive.open(member)  # which keeps the archive's file open
    with file:
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


FOLDER = "ml-1m-ncf"
RATINGS, NEGATIVES, ITEMS = "ml-1m.test.rating", "ml-1m.test.negative", "item_map.csv"


@dataclass(frozen=True, eq=False)
class NcfTest:
    """The test set in MovieLens's ids, one row per user."""

    users_u: NDArray[np.int64]
    items_u: NDArray[np.int64]
    times_u: NDArray[np.int64]  # (U,) the timestamp of the test interaction, in seconds
    folder: Path  # The folder of the files.

    def negatives(self) -> NDArray[np.int64]:
        """(U, 99) the negatives as published; 156 of them are their user's own test item.

        They are read on demand, because a split needs the test items alone.
        """
        numbers = _integers(self.folder / NEGATIVES)
        items_uc = _in_movielens(numbers[:, 1:], self.folder)
        same_users = np.array_equal(numbers[:, 0] + 1, self.users_u)
        if not (same_users and np.array_equal(items_uc[:, 0], self.items_u)):
            raise DataError(
                f"{self.folder / NEGATIVES} does not have the users and test items of "
                f"{self.folder / RATINGS} in their order; fetch both again."
            )
        return items_uc[:, 1:]

    def rows_in(self, table: Interactions) -> NDArray[np.int64] | None:
        """(U,) the row of each test interaction; None where the table is not MovieLens 1M.

        The table is MovieLens 1M if it has every test interaction with its timestamp.
        """
        if not table.has_times:
            return None
        wanted = {"user": self.users_u, "item": self.items_u, "timestamp": self.times_u}
        there = table.frame.select(pl.col(*wanted).cast(pl.Int64, strict=False))
        found = pl.DataFrame(wanted).join(
            there.with_row_index("row"), on=list(wanted), how="left", maintain_order="left"
        )
        if found.height != self.users_u.size or found["row"].null_count():
            return None
        return found["row"].cast(pl.Int64).to_numpy()


def find_ncf() -> NcfTest | None:
    """NCF's test set, if its files are in a folder of data sets."""
    for folder in (home / FOLDER for home in homes()):
        if all((folder / file).is_file() for file in (RATINGS, NEGATIVES, ITEMS)):
            return read_ncf(folder)
    return None


def where_ncf_is_looked_for() -> str:
    """For messages: which files are looked for in which folders."""
    places = " or ".join(str(home / FOLDER) for home in homes())
    return f"{RATINGS}, {NEGATIVES} and {ITEMS} in {places}"


def read_ncf(folder: Path) -> NcfTest:
    """Read the test items from the folder of the files."""
    ratings = _integers(folder / RATINGS, 4)
    items_u = _in_movielens(ratings[:, 1], folder)
    return NcfTest(ratings[:, 0] + 1, items_u, ratings[:, 3], folder)


def _in_movielens(items: NDArray[np.int64], folder: Path) -> NDArray[np.int64]:
    """MovieLens's ids of NCF's items."""
    item_map = _integers(folder / ITEMS, 2, header=1)
    if not np.array_equal(item_map[:, 0], np.arange(len(item_map))):
        raise DataError(
            f"{folder / ITEMS}: the first column is not 0, 1, 2, ...; fetch the file again."
        )
    if items.min() < 0 or items.max() >= len(item_map):
        raise DataError(
            f"{folder}: there is an item that {ITEMS} does not list, which goes from 0 to "
            f"{len(item_map) - 1}; fetch the files again."
        )
    movies: NDArray[np.int64] = item_map[items, 1]
    return movies


def _integers(path: Path, width: int | None = None, *, header: int = 0) -> NDArray[np.int64]:
    """The numbers of each line, `width` of them, separated by tabs or commas.

    A line of negatives such as `(0,25)<tab>1064<tab>174` is user, test item, and any number more.
    """
    try:
        plain = path.read_text("ascii").translate(str.maketrans(",", "\t", "()"))
        lines = [line.split("\t") for line in plain.splitlines()[header:]]
        numbers = np.array(lines, dtype=np.int64)
    except (OSError, ValueError) as error:
        raise DataError(_damaged(path, error)) from None
    found = numbers.shape[1] if numbers.ndim == 2 else 0
    if found != width if width else found < 3:
        stated = f"{width} whole numbers in a line were expected"
        why = stated if width else "its lines do not hold a pair and its negatives"
        raise DataError(_damaged(path, why))
    return numbers


def _damaged(path: Path, why: object) -> str:
    reason = next(iter(str(why).splitlines()), type(why).__name__).rstrip(".:")
    return f"{path} is not as NCF published it ({reason}); fetch it again."
