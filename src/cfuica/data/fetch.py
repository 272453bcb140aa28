"""A public data set into the cache: fetched or given, verified, extracted, whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cfuica.data.archive import LIMITS, extract
from cfuica.data.catalogue import MOVIELENS, Release
from cfuica.data.download import (
    PATIENCE,
    DownloadError,
    Patience,
    Report,
    bytes_of,
    discard,
    download,
)
from cfuica.errors import DataError
from cfuica.io import Record, locked, record, recorded, sha256_of_file, sha256_of_files, sync_folder

# The first lines of each file of ratings; whole and half stars.
_STARS = r"[0-5](\.[05])?"
_FIRST_LINES = {
    "u.data": rf"\d+\t\d+\t{_STARS}\t\d+\n",
    "ratings.dat": rf"\d+::\d+::{_STARS}::\d+(\.\d+)?\n",
    "ratings.csv": rf"userId,movieId,rating,timestamp\n\d+,\d+,{_STARS},\d+\n",
}
# How far the size of the ratings may be from the one known: other line ends make 4 percent.
_SIZE_TOLERANCE = 0.1


@dataclass(frozen=True)
class Watcher:
    """Who is told how it goes."""

    say: Callable[[str], None] = lambda text: None
    report: Report = lambda done, total: None


NOBODY = Watcher()


@dataclass(frozen=True)
class Fetched:
    """A data set in the cache."""

    folder: Path
    new: bool
    """False: it was there already."""
    verified: str
    """How far its content is known to be right, as a sentence."""


def fetch(
    release: Release,
    cache: Path,
    *,
    source: Path | None = None,
    force: bool = False,
    mirror: str = MOVIELENS,
    patience: Patience = PATIENCE,
    watcher: Watcher = NOBODY,
) -> Fetched:
    """Bring the release into `cache`/its name, from `source` (zip or folder) or else the network.

    What is there already is verified and kept; with `force` it is replaced, also by content whose
    checksum differs from the recorded one (but never from the catalogue's). Of several processes
    that fetch the same release, one works and the others wait for it.
    """
    with _disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        waiting = f"Another process is fetching {release.name}; waiting for it."
        with locked(cache / f".{release.name}.lock", lambda: watcher.say(waiting)):
            _clear_litter(release, cache)
            if not force and (cache / release.name).exists():
                return _already_there(release, cache)
            if source is None:
                return _from_network(release, cache, force, mirror, patience, watcher)
            if source.is_dir():
                return _from_folder(release, cache, force, source)
            return _from_archive(release, cache, force, source)


def _already_there(release: Release, cache: Path) -> Fetched:
    folder = cache / release.name
    known = recorded(cache, release.name)
    if known is None:
        _recognise(release, folder)
        record(cache, release.name, Record(sha256_of_files(folder)))
        return Fetched(folder, False, "No checksums were recorded of its files; they are now.")
    for name, expected in known.files.items():
        path = folder / name
        if not path.is_file() or sha256_of_file(path) != expected:
            raise DataError(
                f"{path} is no longer what it was when it was recorded ({known.day}); run  cfuica "
                f"data get {release.name} --force  to fetch the data set anew."
            )
    return Fetched(
        folder, False, f"Verified: its files have the checksums recorded on {known.day}."
    )


def _from_network(
    release: Release,
    cache: Path,
    force: bool,
    mirror: str,
    patience: Patience,
    watcher: Watcher,
) -> Fetched:
    url = f"{mirror.rstrip('/')}/{release.archive}"
    part = cache / f".{release.archive}.part"
    have = bytes_of(url, part)
    watcher.say(f"Resuming the download of {url}." if have else f"Downloading {url}.")
    try:
        download(url, part, watcher.report, patience)
    except DownloadError as error:
        raise DataError(
            f"{error}; try again later, or get {release.archive} some other way and run  cfuica "
            f"data get {release.name} --from FILE."
        ) from error
    try:
        fetched = _from_archive(release, cache, force, part, called=url)
    except _DiffersError:
        # The archive is sound; whoever trusts it need not fetch it again.
        raise
    except DataError as error:
        # Whatever is wrong with these bytes, they are not worth resuming.
        discard(part)
        raise DataError(str(error).replace(str(part), url)) from error
    discard(part)
    return fetched


def _from_archive(
    release: Release, cache: Path, force: bool, path: Path, *, called: str | None = None
) -> Fetched:
    if not path.is_file():
        raise DataError(f"{path} does not exist; give --from the zip file or folder of the data.")
    checksum = sha256_of_file(path)
    verified = _verify_archive(release, cache, force, checksum, called or str(path))
    with _workshop(release, cache) as workshop:
        extract(path, workshop)
        folder = _folder_with(release.ratings, workshop, called or str(path))
        _recognise(release, folder, called)
        return _install(release, cache, folder, checksum, verified)


def _from_folder(release: Release, cache: Path, force: bool, source: Path) -> Fetched:
    place = _folder_with(release.ratings, source, str(source))
    _recognise(release, place)
    files = [path for path in sorted(place.iterdir()) if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if size > LIMITS.total_bytes:
        raise DataError(
            f"{place} has {size:,} bytes, more than any release of MovieLens; give a folder that "
            f"holds only the files of {release.name}."
        )
    with _workshop(release, cache) as workshop:
        for path in files:
            with path.open("rb") as given, (workshop / path.name).open("xb") as copy:
                shutil.copyfileobj(given, copy)
                copy.flush()
                os.fsync(copy.fileno())
        verified = _verify_ratings(release, cache, force, workshop, place)
        return _install(release, cache, workshop, None, verified)


def _verify_archive(release: Release, cache: Path, force: bool, checksum: str, called: str) -> str:
    """Refuse an archive that is not the one known; otherwise say what is known of it."""
    if release.sha256 is not None:
        if checksum != release.sha256:
            raise DataError(
                f"{called} is not the {release.archive} of GroupLens: its SHA-256 is {checksum}, "
                f"but {release.sha256} was expected; fetch it again, or if you extracted and "
                f"packed it yourself, give the folder with --from."
            )
        return f"Verified: {release.archive} has the SHA-256 that cfuica knows."
    known = recorded(cache, release.name)
    if known is None or known.archive is None:
        return (
            f"Not verified: cfuica knows no SHA-256 of {release.archive}, which changes over time; "
            f"that of this copy ({checksum}) is recorded and verified from now on."
        )
    if checksum == known.archive:
        return f"Verified: {release.archive} has the SHA-256 recorded on {known.day}."
    if not force:
        raise _differs(release, called, known.day)
    return f"Not verified: {release.archive} differs from the one of {known.day}; recorded anew."


def _verify_ratings(release: Release, cache: Path, force: bool, folder: Path, source: Path) -> str:
    """The same for a folder, of which only a recorded checksum can be known."""
    known = recorded(cache, release.name)
    if known is None or release.ratings not in known.files:
        return (
            f"Not verified: cfuica knows the SHA-256 of {release.archive} at most, not of a "
            f"folder; those of these files are recorded and verified from now on."
        )
    if sha256_of_file(folder / release.ratings) == known.files[release.ratings]:
        return f"Verified: {release.ratings} has the SHA-256 recorded on {known.day}."
    if not force:
        raise _differs(release, f"{source}/{release.ratings}", known.day)
    return f"Not verified: {release.ratings} differs from the one of {known.day}; recorded anew."


class _DiffersError(DataError):
    """Sound data, but not what was recorded: up to the user to accept."""


def _differs(release: Release, called: str, day: str) -> _DiffersError:
    return _DiffersError(
        f"{called} differs from the {release.name} that was recorded on {day}; if you trust it, "
        f"accept it with  cfuica data get {release.name} --force."
    )


def _folder_with(ratings: str, root: Path, called: str) -> Path:
    """The highest folder under `root`, itself or one or two below, that has the ratings."""
    for pattern in (ratings, f"*/{ratings}", f"*/*/{ratings}"):
        places = [path.parent for path in root.glob(pattern) if "__MACOSX" not in path.parts]
        if len(places) == 1:
            return places[0]
        if places:
            raise DataError(
                f"{called} has {len(places)} files {ratings}, and cfuica cannot know which is "
                f"meant; give the folder of one of them with --from."
            )
    raise DataError(f"{called} is not that data set: it has no {ratings}; give another file.")


def _recognise(release: Release, folder: Path, called: str | None = None) -> None:
    """Refuse another data set by a look at its ratings: the first lines, and the size."""
    path = folder / release.ratings
    name = f"{called or folder}/{release.ratings}"
    if not path.is_file():
        raise DataError(
            f"{name} is missing, so this is not {release.name}; run  cfuica data get "
            f"{release.name} --force  to fetch it."
        )
    with path.open("rb") as file:
        start = file.read(200).decode("latin-1").replace("\r\n", "\n")
    if not re.match(_FIRST_LINES[release.ratings], start):
        raise DataError(
            f"{name} is not that of {release.name}: it begins with {start[:40]!r}; give the file "
            f"that GroupLens offers as {release.archive}."
        )
    megabytes = path.stat().st_size / 1e6
    if release.ratings_mb is not None and not (
        abs(megabytes / release.ratings_mb - 1) <= _SIZE_TOLERANCE
    ):
        raise DataError(
            f"{name} is not that of {release.name}: it has {megabytes:,.1f} MB, but about "
            f"{release.ratings_mb:,.1f} MB were expected; give the file that GroupLens offers as "
            f"{release.archive}."
        )


def _install(
    release: Release, cache: Path, folder: Path, checksum: str | None, verified: str
) -> Fetched:
    """Move a finished folder into its place by one rename."""
    target = cache / release.name
    record_of_it = Record(sha256_of_files(folder), checksum)
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        sync_folder(inner)
    former = cache / _litter_name(release)
    if target.exists():
        os.replace(target, former)
    try:
        os.replace(folder, target)
    except OSError:
        if former.exists():
            os.replace(former, target)
        raise
    sync_folder(cache)
    record(cache, release.name, record_of_it)
    _clear_litter(release, cache)
    return Fetched(target, True, verified)


@contextmanager
def _workshop(release: Release, cache: Path) -> Iterator[Path]:
    """An empty folder beside the final place; whatever is left in it goes."""
    folder = cache / _litter_name(release)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _litter_name(release: Release) -> str:
    return f".{release.name}.{secrets.token_hex(6)}.tmp"


def _clear_litter(release: Release, cache: Path) -> None:
    """Remove what a process left that was killed; called with the lock held, so it is nobody's."""
    for folder in cache.glob(f".{release.name}.*.tmp"):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _disk_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DataError(
            f"The disk that holds {cache} is full; free some space, or set CFUICA_CACHE to a "
            f"folder on another disk, and run the command again."
        ) from error
