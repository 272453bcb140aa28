"""The Netflix Prize data set, in the forms in which people have it.

| form                                | ratings                                         |
| ----------------------------------- | ----------------------------------------------- |
| the competition's tar, or unpacked  | training_set.tar or training_set/mv_0000001.txt |
| the later copy, as folder or zip    | combined_data_1.txt to combined_data_4.txt      |

In both, a line `N:` begins movie N, and a line `user,rating,YYYY-MM-DD` is a rating of it.
`movie_titles.txt` (or .csv) has `id,year,title` in latin-1. `probe.txt` has users below each `N:`,
the pairs that competitors tested on. `qualifying.txt`, which has no ratings, is not read.

In the cache (`cfuica data get netflix --from PATH`) the probe pairs are in `probe.parquet` and all
others in `train.parquet`.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.columns import Rows
from cfuica.data.layout import FIND_OUT, ReadOptions, refuse_column_options, short
from cfuica.data.memory import check_taken, most_memory
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.io import open_content, shown

TRAIN, PROBE = "train.parquet", "probe.parquet"
COUNTS = (100_480_507, 480_189, 17_770)  # ratings, users and movies of the whole data set

_TITLES = re.compile(r"movie_titles\.(txt|csv)")
_RATINGS = re.compile(r"mv_\d+\.txt|combined_data_\d+\.txt")
_TAR, _TARS = "training_set.tar", (".tar", ".tar.gz", ".tgz")
_FIRST_LINE = re.compile(rb"\d+:\r?\n")
_MOST_MOVIES = 1 << 20
_SECONDS_PER_DAY = 86_400
_BLOCK = 1 << 22  # Bytes parsed at a time.
_ROWS = 1 << 22  # Rows of an array.
_BYTES_PER_ROW = 24  # As columns of a table.
_LONGEST_LINE = 1 << 16
_SMALL = 1 << 26  # Most bytes of the files beside the ratings.

Progress = Callable[[int, int | None], None]


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def is_netflix(path: Path, start: bytes) -> bool:
    """Whether a folder, archive or text is of the Netflix Prize; `start` are its first bytes."""
    if path.is_dir():
        names = [entry.name for entry in path.glob("*")]
        ratings = "training_set" in names or _TAR in names or any(map(_RATINGS.fullmatch, names))
        return ratings or (TRAIN in names and any(map(_TITLES.fullmatch, names)))
    if start.startswith(b"PK"):
        try:
            with zipfile.ZipFile(path) as archive:
                names = [PurePosixPath(name).name for name in archive.namelist()]
        except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile):
            return False  # The reader of zip files says what is wrong.
        return any(map(_RATINGS.fullmatch, names))
    return path.name.lower().endswith(_TARS) or _FIRST_LINE.match(start) is not None


def read_netflix(path: str | Path, options: ReadOptions = FIND_OUT) -> Interactions:
    """Read all ratings of a folder, tar, zip or single file, or of the cache, with the titles.

    Of `options` those about rows, ratings and memory apply; options about columns are refused.
    """
    path = Path(path)
    refuse_column_options(options, f"{path} is read as Netflix Prize data")
    if (path / TRAIN).is_file():
        return _cached(path, options)
    files = _read(path, options)
    frame = pl.DataFrame([files.taken(name) for name in ("user", "item", "rating", "timestamp")])
    return Interactions.of_rows(
        frame,
        options=options,
        items=files.titles,
        source=shown(path),
        source_notes=files.notes(),
    )


def _cached(folder: Path, options: ReadOptions) -> Interactions:
    from cfuica.data.readers import read_columnar

    rows = Rows(options, shown(folder))
    read_columnar(folder, rows)
    frame, notes = rows.frame()
    titles = next((file for file in folder.iterdir() if _TITLES.fullmatch(file.name)), None)
    return Interactions.of_rows(
        frame,
        options=options,
        items=None if titles is None else _titles(titles.read_bytes(), titles),
        source=rows.name,
        source_notes=notes,
    )


def write_netflix(
    path: Path, folder: Path, progress: Progress = lambda done, total: None
) -> tuple[int, int, int]:
    """Write ratings and titles into `folder`; (ratings, users, movies).

    The pairs of probe.txt are written apart, so that they can be tested on.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = _read(path, FIND_OUT, progress)
    schema = pa.schema([("user", pa.int32()), ("item", pa.int32()), ("rating", pa.int8()),
                        ("timestamp", pa.int64())])  # fmt: skip
    in_probe = _ProbePairs(files)
    users: list[NDArray[np.int32]] = []
    with (
        pq.ParquetWriter(folder / TRAIN, schema, compression="zstd") as train,
        pq.ParquetWriter(folder / PROBE, schema, compression="zstd") as probe,
    ):
        for rows in files.parts:
            times = rows.days.astype(np.int64) * _SECONDS_PER_DAY
            columns = [rows.users, rows.movies, rows.ratings, times]
            table = pa.table(columns, schema)
            mask = in_probe(rows)
            train.write_table(table.filter(pa.array(~mask)))
            if mask.any():
                probe.write_table(table.filter(pa.array(mask)))
            users = [np.unique(np.concatenate([*users, rows.users]))]
    in_probe.check()
    if not in_probe.found:
        (folder / PROBE).unlink()
    if files.titles_bytes is not None:
        (folder / "movie_titles.txt").write_bytes(files.titles_bytes)
    return files.n, users[0].size, int(np.count_nonzero(files.is_movie))


@dataclass
class _Rows:
    """Parsed rows, each (n,)."""

    users: NDArray[np.int32]
    movies: NDArray[np.int32]
    ratings: NDArray[np.int8]
    days: NDArray[np.int32]  # since 1970

    @classmethod
    def empty(cls) -> _Rows:
        wide = (np.empty(_ROWS, np.int32) for _ in range(3))
        users, movies, days = wide
        return cls(users, movies, np.empty(_ROWS, np.int8), days)

    def cut(self, n: int) -> _Rows:
        return _Rows(self.users[:n], self.movies[:n], self.ratings[:n], self.days[:n])


@dataclass
class _Files:
    """What has been read so far."""

    path: Path
    options: ReadOptions
    most: float  # Bytes that rows may take.
    progress: Progress
    parts: list[_Rows] = field(default_factory=list)
    titles_bytes: bytes | None = None
    titles: pl.DataFrame | None = None
    probe: _Rows | None = None
    is_movie: NDArray[np.bool_] = field(
        default_factory=lambda: np.zeros(_MOST_MOVIES, dtype=np.bool_)
    )
    bad: int = 0
    first_bad: str = ""
    _filled: int = 0  # rows in the last part
    _bytes: int = 0
    _taken: int = 0

    @property
    def n(self) -> int:
        return sum(part.users.size for part in self.parts)

    def finish(self) -> None:
        """Cut the last part; refuse what has no ratings or lacks a movie."""
        if self.parts:
            self._take(self._filled)
            self.parts[-1] = self.parts[-1].cut(self._filled)
        if not self.n:
            raise DataError(
                f"{self.path} has no ratings of the Netflix Prize; give nf_prize_dataset.tar.gz, "
                f"its folder, or the folder of combined_data_1.txt to combined_data_4.txt."
            )
        listed = 0 if self.titles is None else int(self.titles["item"].max() or 0)  # type: ignore
        last = max(int(np.flatnonzero(self.is_movie)[-1]), min(listed, _MOST_MOVIES - 1))
        missing = np.flatnonzero(~self.is_movie[1 : last + 1]) + 1
        if missing.size and not _is_text(self.path):
            raise DataError(
                f"{self.path} has no ratings of movie {missing[0]:,} ({missing.size:,} of {last:,} "
                f"movies are missing): its file training_set/mv_{missing[0]:07}.txt, or one of "
                f"combined_data_1.txt to combined_data_4.txt, is not there; unpack the data "
                f"again, or give a file of ratings alone."
            )

    def _take(self, rows: int) -> None:
        self._taken += _BYTES_PER_ROW * rows
        check_taken(shown(self.path), self._taken, self.most)

    def notes(self) -> tuple[str, ...]:
        if not self.bad:
            return ()
        return (f"{self.bad:,} bad lines were left out; the first: {self.first_bad}.",)

    def taken(self, name: str) -> pl.Series:
        """A column of all rows, in the types of a table; the parts give theirs up."""
        source = {"user": "users", "item": "movies", "rating": "ratings", "timestamp": "days"}[name]
        column = np.concatenate([getattr(part, source) for part in self.parts])
        for part in self.parts:
            setattr(part, source, column[:0])
        if name == "rating":
            return pl.Series(name, column.astype(np.float64))
        if name == "timestamp":
            return pl.Series(name, column.astype(np.int64) * _SECONDS_PER_DAY)
        return pl.Series(name, column)

    def lines(self, stream: _Readable, name: str, *, pairs: bool = False) -> None:
        """Parse a text of ratings into the parts, or of pairs into `probe`."""
        from cfuica.ops.movie_lines import AT, FILLED, FULL, LINE, MORE, read_lines

        parts = [] if pairs else self.parts
        state = np.zeros(4, np.int64)
        state[FILLED] = 0 if pairs else self._filled
        is_movie = np.zeros_like(self.is_movie) if pairs else self.is_movie
        rest, ended = b"", False
        while not ended:
            block = stream.read(_BLOCK)
            self._bytes += len(block)
            ended = not block
            data = np.frombuffer(rest + (block or b"\n" * bool(rest)), np.uint8)
            state[AT] = 0
            while True:
                if not parts or state[FILLED] == parts[-1].users.size:
                    parts.append(_Rows.empty())
                    self._take(int(state[FILLED]))
                    state[FILLED] = 0
                rows = parts[-1]
                ended_by = read_lines(
                    data, state, pairs, rows.users, rows.movies, rows.ratings, rows.days, is_movie
                )
                if ended_by == MORE:
                    break
                if ended_by != FULL:
                    at = int(state[AT])
                    before = data[max(at - 200, 0) : at].tobytes()
                    self._meet(int(ended_by), before, name, int(state[LINE]), pairs)
            rest = data[state[AT] :].tobytes()
            if len(rest) > _LONGEST_LINE:
                raise DataError(
                    f"{name}, line {state[LINE] + 1:,}, is longer than any line of the Netflix "
                    f"Prize; fetch the data again."
                )
            self.progress(self._bytes, None)
        if pairs:
            parts[-1] = parts[-1].cut(int(state[FILLED]))
            self.probe = _Rows(
                *(np.concatenate([getattr(part, each) for part in parts]) for each in _FIELDS)
            )
        else:
            self._filled = int(state[FILLED])

    def _meet(self, fault: int, before: bytes, name: str, line: int, pairs: bool) -> None:
        from cfuica.ops.movie_lines import BAD_DATE, BAD_RATING, NO_MOVIE

        text = short(before.rstrip(b"\n").rpartition(b"\n")[2].rstrip(b"\r").decode("latin-1"))
        found = {
            NO_MOVIE: f"{text} stands before any line such as '1:', which begins a movie",
            BAD_RATING: f"{text} has a rating that is not from 1 to 5",
            BAD_DATE: f"{text} does not end in a date such as 2005-09-06",
        }.get(
            fault, f"{text}, but '1:' or {'a user' if pairs else 'user,rating,date'} was expected"
        )
        if self.options.bad_rows != "skip":
            raise DataError(
                f"{name}, line {line:,}: {found}; fetch the data again, or leave out such lines "
                f"by --bad-rows skip."
            )
        self.first_bad = self.first_bad or f"{name}, line {line:,}: {found}"
        self.bad += 1


_FIELDS = ("users", "movies", "ratings", "days")


class _ProbePairs:
    """Which rows are in probe.txt."""

    def __init__(self, files: _Files) -> None:
        self._path, probe = files.path, files.probe
        self._pairs = np.unique(_pairs(probe)) if probe is not None else np.empty(0, np.int64)
        self._is_found = np.zeros(self._pairs.size, dtype=np.bool_)

    def __call__(self, rows: _Rows) -> NDArray[np.bool_]:
        pairs = _pairs(rows)
        if not self._pairs.size:
            return np.zeros(pairs.size, dtype=np.bool_)
        place = np.minimum(np.searchsorted(self._pairs, pairs), self._pairs.size - 1)
        mask: NDArray[np.bool_] = self._pairs[place] == pairs
        self._is_found[place[mask]] = True
        return mask

    @property
    def found(self) -> bool:
        return bool(self._is_found.any())

    def check(self) -> None:
        """Refuse pairs without a rating."""
        missing = self._pairs[~self._is_found]
        if missing.size:
            movie, user = divmod(int(missing[0]), 1 << 32)
            raise DataError(
                f"{self._path}: probe.txt has {missing.size:,} pairs without a rating, such as "
                f"user {user} of movie {movie}; give the probe.txt of these ratings, or none."
            )


def _pairs(rows: _Rows) -> NDArray[np.int64]:
    return (rows.movies.astype(np.int64) << 32) + rows.users


def _read(
    path: Path, options: ReadOptions, progress: Progress = lambda done, total: None
) -> _Files:
    """Parse everything that a folder, archive or file has."""
    files = _Files(path, options, most_memory(options), progress)
    try:
        for name, stream in _texts(path):
            short_name = PurePosixPath(name).name
            if _TITLES.fullmatch(short_name):
                files.titles_bytes = _whole(stream, name)
                files.titles = _titles(files.titles_bytes, name)
            elif short_name == "probe.txt":
                files.lines(stream, name, pairs=True)
            else:
                files.lines(stream, name)
    except (tarfile.TarError, EOFError, OverflowError, ValueError) as error:
        raise DataError(
            f"{path} has a damaged or cut-off tar ({error}); fetch it again, or give the folder it "
            f"unpacks to."
        ) from error
    files.finish()
    return files


def _whole(stream: _Readable, name: str) -> bytes:
    data = b"".join(iter(lambda: stream.read(_BLOCK), b""))
    if len(data) > _SMALL:
        raise DataError(f"{name} is far larger than that of the Netflix Prize; fetch it again.")
    return data


def _titles(data: bytes, name: str | Path) -> pl.DataFrame:
    """item, title, year: of lines `id,year,title`, where a title may have commas."""
    rows = []
    for number, line in enumerate(data.decode("latin-1").splitlines(), 1):
        if not line.strip():
            continue
        ident, year, title = (*line.split(",", 2), "", "")[:3]
        has_year = year == "NULL" or (year.isascii() and year.isdecimal() and len(year) <= 4)
        if not (ident.isascii() and ident.isdecimal() and len(ident) <= 9 and has_year and title):
            raise DataError(
                f"{name}, line {number:,}: {short(line)}, but id,year,title was expected; fetch "
                f"the data again."
            )
        rows.append((int(ident), title, None if year == "NULL" else int(year)))
    types = {"item": pl.Int32(), "title": pl.String(), "year": pl.Int64()}
    return pl.DataFrame(rows, schema=types, orient="row")


def _wanted(name: str) -> bool:
    match = _RATINGS.fullmatch(name) or _TITLES.fullmatch(name)
    return bool(match) or name in (_TAR, "probe.txt")


def _is_text(path: Path) -> bool:
    """Whether it is a file of ratings alone, neither folder nor archive."""
    archive = path.name.lower().endswith(_TARS) or path.is_dir()
    return not archive and not zipfile.is_zipfile(path)


def _texts(path: Path) -> Iterator[tuple[str, Any]]:
    """(name, stream) of every text, in order; each is read before the next is opened."""
    if path.is_dir():
        inside = [path, *(each for each in [path / "training_set"] if each.is_dir())]
        found = [file for folder in inside for file in folder.iterdir() if _wanted(file.name)]
        unpacked = any(file.name.startswith("mv_") for file in found)
        for file in sorted(found, key=lambda file: (len(file.parts), _in_order(file.name))):
            if file.name != _TAR:
                with open_content(file, shown(file)) as stream:
                    yield shown(file), stream
            elif not unpacked:
                yield from _tar_texts(file)
    elif _is_text(path):
        with open_content(path, shown(path)) as stream:
            yield shown(path), stream
    elif path.name.lower().endswith(_TARS):
        yield from _tar_texts(path)
    else:
        from cfuica.data.movielens import files_in

        members = files_in(path)
        for place in sorted(members, key=lambda place: _in_order(place.name)):
            if _wanted(place.name):
                with open_content(members[place], f"{path}/{place}") as stream:
                    yield f"{path}/{place}", stream


def _in_order(name: str) -> tuple[str, int]:
    """The titles and the probe last; files of ratings by their number."""
    word, _, number = PurePosixPath(name).stem.rpartition("_")
    return (word, int(number)) if number.isdecimal() else ("z", 0)


def _tar_texts(path: Path) -> Iterator[tuple[str, Any]]:
    """The texts of a tar and of the training_set.tar in it; nothing is extracted."""
    with open_content(path, shown(path)) as stream:
        yield from _members(stream, shown(path))


def _members(stream: _Readable, name: str) -> Iterator[tuple[str, Any]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
        for member in archive:
            short_name = PurePosixPath(member.name).name
            if not member.isfile() or not _wanted(short_name):
                continue
            content = archive.extractfile(member)
            if short_name == _TAR:
                yield from _members(content, f"{name}/{short_name}")
            else:
                yield f"{name}/{short_name}", content
