"""Zip files from strangers: members are read or extracted within limits, and nothing escapes."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cfuica.data.delimited import Stream
from cfuica.errors import DataError

# What zipfile raises for broken, truncated, encrypted or exotic members.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)
_CHUNK = 1 << 20
_ENCRYPTED = 0x1 | 0x40 | 0x2000  # also "strong encryption", and "the list itself is encrypted"


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold; the largest MovieLens has 1.2 GB, 5 times its zip."""

    total_bytes: int = 8 << 30
    ratio: int = 100
    """Bytes that may come out for each byte of the archive ..."""
    free_bytes: int = 16 << 20
    """... beyond these, because little files may be very regular."""
    members: int = 10_000


LIMITS = Limits()


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, open; a DataError if it is none."""
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give a zip file or a folder."
        ) from error
    except _DAMAGE as error:
        raise DataError(f"{path} is not a whole zip file ({error}); fetch it again.") from error
    with archive:
        yield archive


def member_names(path: Path) -> list[str]:
    """The names of the files in the archive, as they stand there: not to be used as paths."""
    with opened(path) as archive:
        return [member.filename for member in archive.infolist() if not member.is_dir()]


@contextmanager
def open_member(path: Path, name: str, limits: Limits = LIMITS) -> Iterator[Stream]:
    """The content of one member, chunk by chunk; nothing is written anywhere."""
    with (
        opened(path) as archive,
        closing(_chunks(archive, archive.getinfo(name), _Budget(path, limits))) as chunks,
    ):
        yield _Chunked(chunks)


class _Chunked:
    """Chunks as a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes more."""
        chunk = self._rest or next(self._chunks, b"")
        self._rest = chunk[size:]
        return chunk[:size]


def extract(path: Path, into: Path, limits: Limits = LIMITS) -> None:
    """Write every member under the empty folder `into`, flushed to the disk.

    All names are judged before the first byte is written. What comes out is counted as it comes,
    whatever the archive says of itself.
    """
    with opened(path) as archive:
        members = archive.infolist()
        _judge(path, members, limits)
        budget = _Budget(path, limits)
        for member in members:
            target = into.joinpath(*PurePosixPath(member.filename).parts)
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                for chunk in _chunks(archive, member, budget):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())


class _Budget:
    """How many bytes may still come out of an archive."""

    def __init__(self, path: Path, limits: Limits) -> None:
        by_ratio = limits.free_bytes + limits.ratio * path.stat().st_size
        self._left = min(limits.total_bytes, by_ratio)
        self._path = path

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise DataError(
                f"{self._path} expands to far more than any data set would (a 'zip bomb'), so "
                f"reading it was stopped; fetch it again from a source that you trust."
            )


def _chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: _Budget) -> Generator[bytes]:
    path = archive.filename
    # Others (bzip2, lzma) may expand without bound inside one call.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _unreadable(path, member, "an unusual compression")
    if member.flag_bits & _ENCRYPTED:
        raise _unreadable(path, member, "it is encrypted")
    try:
        with archive.open(member) as file:
            while chunk := file.read(_CHUNK):
                budget.spend(len(chunk))
                yield chunk
    except _DAMAGE as error:
        raise _unreadable(path, member, error) from error


def _unreadable(path: str | None, member: zipfile.ZipInfo, why: object) -> DataError:
    return DataError(
        f"{path}: its member {member.filename} cannot be read ({why}); fetch the file again."
    )


def _judge(path: Path, members: list[zipfile.ZipInfo], limits: Limits) -> None:
    """Refuse an archive that could write elsewhere, or one place twice."""
    if len(members) > limits.members:
        raise _hostile(path, f"it has {len(members):,} members")
    files: set[PurePosixPath] = set()
    folders: set[PurePosixPath] = set()
    for member in members:
        name = member.orig_filename
        if fault := _fault_of_name(name) or _fault_of_kind(member):
            raise _hostile(path, f"its member {name!r} {fault}")
        # Compared as the least particular file system would.
        place = PurePosixPath(unicodedata.normalize("NFC", name).casefold())
        if not member.is_dir():
            if place in files:
                raise _hostile(path, f"its member {name!r} occurs twice")
            files.add(place)
        folders.update(place.parents)
    if both := files & folders:
        raise _hostile(path, f"its member {str(min(both))!r} is a file and a folder")


def _fault_of_name(name: str) -> str | None:
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "has an absolute path"
    if ".." in parts:
        return "points outside the archive"
    if any(part in ("", ".") or part != part.rstrip(". ") for part in parts):
        return "has a part that is empty or ends with a dot or space"
    if re.search(r'[\x00-\x1f\x7f\\:*?"<>|]', name):
        return "has a character that not every system allows"
    return None


def _fault_of_kind(member: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a special file"
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted"
    return None


def _hostile(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} was not extracted, because {why}; fetch it again from a source that you trust."
    )
