"""Public data sets by name: where MovieLens and Netflix are found, and how they are fetched.

`resolve("ml-1m")` reads a release by its name, and other data by its path. `fetch` brings a release
into the cache, from GroupLens or from a zip or folder that the user has. Netflix has no download.

A release is looked for in $CFUICA_DATA, then in the cache. `fetch` writes it into a temporary
folder, which is renamed when its content is verified and on the disk. A fetch that is interrupted
leaves only that folder, which the next `fetch` removes.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING

from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.errors import DataError, SettingsError
from cfuica.forks import need_polars
from cfuica.io import (
    UNSEALED,
    atomic_folder,
    expanded,
    is_full,
    locked,
    open_content,
    sha256_of_file,
)

if TYPE_CHECKING:
    from cfuica.data.table import Interactions

NETFLIX = "netflix"
MOVIELENS = "https://files.grouplens.org/datasets/movielens"
DEMO = "demo"

# The files that are copied from a release: ratings, movies, and terms of use.
_FILES = (
    "u.data", "u.item", "u.genre", "ratings.dat", "movies.dat", "ratings.csv", "movies.csv",
    "README", "README.txt", "README.html",
)  # fmt: skip
# Relative deviation of the size of the ratings file: other line ends make 4 percent.
_SIZE_TOLERANCE = 0.1

_TIMEOUT = 30.0  # seconds without a byte
_PAUSES = (1.0, 2.0, 4.0)  # seconds before each further attempt
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # HTTP codes worth another attempt
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Release:
    """One release of MovieLens, or Netflix."""

    name: str
    ratings: str  # Name of the file of ratings.
    # Approximate size of that file in millions of bytes; None where the release changes.
    ratings_mb: float | None = None
    sha256: str | None = None  # SHA-256 of the archive; None where the release changes.
    # Folder inside the archive, where its name is not that of the release.
    folder: str | None = None

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return f"{self.name}.zip"


# The checksum of ml-1m was computed from a copy of the archive. The others are those that several
# unrelated public repositories give for these archives (tensorflow/datasets for 100k, 20m
# and 25m; for 10m and 32m projects that checked it against GroupLens's MD5).
# fmt: off
RELEASES: Mapping[str, Release] = {release.name: release for release in (
    Release("ml-100k", "u.data", 1.98,
            "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229"),
    Release("ml-1m", "ratings.dat", 24.6,
            "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20"),
    Release("ml-10m", "ratings.dat", 265.0,
            "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862", "ml-10M100K"),
    Release("ml-20m", "ratings.csv", 533.0,
            "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3"),
    Release("ml-25m", "ratings.csv", 678.0,
            "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa"),
    Release("ml-32m", "ratings.csv", 877.0,
            "e4a68655d7386b8f95f2f2424b2ff975dfdd15ffd59e0d864a14dca43e99d6ee"),
    Release("ml-latest-small", "ratings.csv"),
    Release(NETFLIX, "train.parquet"),
)}
# fmt: on


def resolve(name_or_path: str | Path, options: ReadOptions = FIND_OUT) -> Interactions:
    """The data set of a registered name, or else of a file or folder."""
    # Imported here: the command line needs the names, but not polars.
    from cfuica.data.movielens import read_movielens
    from cfuica.data.netflix import read_netflix
    from cfuica.data.table import Interactions

    need_polars("Reading a data set")
    name = str(name_or_path)
    if name == DEMO:
        # What tasks and commands ask of their own: no rating is empty here, nothing has a type, and
        # nothing is removed.
        by_task = ReadOptions(empty_rating=options.empty_rating, removals=options.removals)
        asked = replace(options, type=options.type or None, weight=options.weight or None)
        if asked != by_task:
            raise SettingsError(
                f"The data set '{DEMO}' is generated, not read from a file, but options of reading "
                f"were given; leave them out, or give a file."
            )
        from cfuica.data.synthetic import make_world

        return make_world().table
    place = find(name)
    assert place is not None
    if name in RELEASES and place == _find(RELEASES[name]):
        return (read_netflix if name == NETFLIX else read_movielens)(place, options)
    return Interactions.read(place, options)


def find(name_or_path: str | Path) -> Path | None:
    """Where `resolve` reads data from; None for generated data. What is not there is an error."""
    name = str(name_or_path)
    if (place := located(name)) is not None or name == DEMO:
        return place
    if name in RELEASES:
        raise DataError(
            f"The data set '{name}' was not found: looked for a folder {name} or {name}.zip under "
            f"{', '.join(map(str, homes()))}; run  cfuica data get {name}  to fetch it, put it "
            f"there, set CFUICA_DATA to the folder that holds it, or give its path."
        )
    raise DataError(
        f"'{name}' is neither a registered data set ({', '.join(RELEASES)}, {DEMO}) nor an "
        f"existing file or folder (looked for {expanded(name).absolute()}); give one "
        f"of these names or a path."
    )


def located(name_or_path: str | Path) -> Path | None:
    """Where `resolve` reads data from; None for generated data, and where there is none."""
    name = str(name_or_path)
    if name in RELEASES and (place := _find(RELEASES[name])) is not None:
        return place
    return path if name != DEMO and (path := expanded(name)).exists() else None


def homes() -> list[Path]:
    """All places where data sets are looked for, in order: $CFUICA_DATA, then the cache."""
    given = os.environ.get("CFUICA_DATA")
    return [expanded(given), cache_folder()] if given else [cache_folder()]


def cache_folder() -> Path:
    """Where `cfuica data get` puts data sets: $CFUICA_CACHE, else in the user's cache folder."""
    if given := os.environ.get("CFUICA_CACHE"):
        return expanded(given)
    if given := os.environ.get("XDG_CACHE_HOME"):
        return expanded(given) / "cfuica"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "cfuica"
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path.home() / caches / "cfuica"


def found() -> dict[str, Path | None]:
    """For each release the folder or zip that its name resolves to, else None."""
    return {name: _find(release) for name, release in RELEASES.items()}


def _find(release: Release) -> Path | None:
    """The first place that has the release, home by home: a folder before a zip.

    The folder has the name of the release or of the archive's folder, perhaps nested once.
    """
    folders = [release.name, *([release.folder] if release.folder else [])]
    inside = [*folders, *(f"{outer}/{inner}" for outer in folders for inner in folders)]
    for home in homes():
        places = [(home / name, home / name / release.ratings) for name in inside]
        places += [(home / f"{name}.zip", home / f"{name}.zip") for name in inside]
        for place, file in places:
            if file.is_file():
                return place
    return None


@dataclass(frozen=True)
class FetchCallbacks:
    """Functions that are called while a release is fetched."""

    message: Callable[[str], None] = lambda text: None
    # Called with the bytes received and the total, if the server tells it.
    progress: Callable[[int, int | None], None] = lambda done, total: None


SILENT = FetchCallbacks()


@dataclass(frozen=True)
class Fetched:
    """A release that is in the cache."""

    folder: Path
    new: bool  # False where it was in the cache already.
    verified: str  # Whether and how its content was verified, as a sentence.


def fetch(
    release: Release,
    cache: Path,
    *,
    source: Path | None = None,
    force: bool = False,
    mirror: str = MOVIELENS,
    callbacks: FetchCallbacks = SILENT,
) -> Fetched:
    """Bring the release into `cache`/its name, from `source` or else the network.

    `source` is a zip or folder, of Netflix also a tar.

    A release in the cache is only replaced with `force`. Of several processes that fetch the same
    release, one works and the others wait for it.
    """
    target = cache / release.name
    waiting = f"Another process is fetching {release.name}; waiting for it."
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f".{release.name}.lock", lambda: callbacks.message(waiting)):
            for left in cache.glob(f"{UNSEALED}{release.name}-*"):
                shutil.rmtree(left, ignore_errors=True)  # left by a process that was killed
            if target.exists() and not force:
                if not (target / release.ratings).is_file():
                    raise DataError(
                        f"{target}/{release.ratings} is missing, so this is not {release.name}; "
                        f"run  cfuica data get {release.name} --force  to fetch it."
                    )
                return Fetched(target, False, "It was not verified again; --force fetches it anew.")
            with atomic_folder(target) as work:
                if source is None:
                    verified = _from_network(release, work, mirror, callbacks)
                else:
                    verified = _from_source(release, work, source, callbacks)
            return Fetched(target, True, verified)
    except OSError as error:
        if not is_full(error):
            raise
        raise DataError(
            f"The disk that holds {cache} is full; free some space, or set CFUICA_CACHE to a "
            f"folder on another disk, and run the command again."
        ) from error


def _from_network(release: Release, work: Path, mirror: str, callbacks: FetchCallbacks) -> str:
    if release.name == NETFLIX:
        raise SettingsError(
            "Netflix may not be redistributed, so there is no download; people have it from the "
            "competition (nf_prize_dataset.tar.gz) or from Kaggle (combined_data_1.txt to "
            "combined_data_4.txt): run  cfuica data get netflix --from PATH."
        )
    url = f"{mirror.rstrip('/')}/{release.archive}"
    if not re.match(r"https?://", url):
        raise SettingsError(
            f"{url} is not an address of the web, because it does not begin with http:// or "
            f"https://; give --mirror (or CFUICA_MIRROR) one that does."
        )
    archive = work / release.archive
    _download(release, url, archive, callbacks)
    try:
        verified = _from_source(release, work, archive, callbacks)
    except DataError as error:
        raise DataError(str(error).replace(str(archive), url)) from error
    archive.unlink()
    return verified


def _download(release: Release, url: str, path: Path, callbacks: FetchCallbacks) -> None:
    """Download to a file, in a few attempts."""
    # Imported here: only a download needs the network.
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError

    callbacks.message(f"Downloading {url}.")
    for pause in (*_PAUSES, None):
        try:
            return _attempt(url, path, callbacks)
        except HTTPError as error:
            problem = f"{url} answered {error.code} ({error.reason})"
            passing = error.code in _PASSING
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, OSError) and is_full(error):
                raise
            inner = error.reason if isinstance(error, URLError) else error
            reason = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
            problem, passing = f"{url} could not be downloaded ({reason.rstrip('.')})", True
        if pause is None or not passing:
            raise DataError(
                f"{problem}; try again later, or get {release.archive} some other way and run  "
                f"cfuica data get {release.name} --from FILE."
            )
        callbacks.message(f"{problem}; trying again.")
        time.sleep(pause)


def _attempt(url: str, path: Path, callbacks: FetchCallbacks) -> None:
    from urllib.request import Request, urlopen

    request = Request(url, headers={"User-Agent": "cfuica"})
    with urlopen(request, timeout=_TIMEOUT) as response, path.open("wb") as file:
        done, total = 0, response.length
        while chunk := response.read(_CHUNK):
            done += file.write(chunk)
            callbacks.progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"it broke off after {done:,} of {total:,} bytes")


def _from_source(release: Release, work: Path, source: Path, callbacks: FetchCallbacks) -> str:
    """Copy the files of a zip or folder; whether it is verified, as a sentence."""
    from cfuica.data.movielens import files_in, find_ratings

    if release.name == NETFLIX:
        return _netflix_from(source, work, callbacks)
    verified = _verify(release, source)
    files = files_in(source)
    form, folder = find_ratings(files, source)
    for name in _FILES:
        if folder / name in files:
            content = open_content(files[folder / name], f"{source}/{name}")
            with content as stream, (work / name).open("xb") as file:
                while chunk := stream.read(_CHUNK):
                    file.write(chunk)
    size, expected = (work / form.ratings).stat().st_size / 1e6, release.ratings_mb
    wanted = release.ratings + (f" of about {expected:,.1f} MB" if expected else "")
    alike = isclose(size, expected or size, rel_tol=_SIZE_TOLERANCE)
    if form.ratings != release.ratings or not alike:
        raise DataError(
            f"{source} is not {release.name}: it has {form.ratings} of {size:,.1f} MB, but "
            f"{wanted} was expected; give the file that GroupLens offers as {release.archive}."
        )
    return verified


def _netflix_from(source: Path, work: Path, callbacks: FetchCallbacks) -> str:
    from cfuica.data.netflix import COUNTS, write_netflix

    if not source.exists():
        raise DataError(f"{source} does not exist; give --from the tar, zip or folder of the data.")
    counts = write_netflix(source, work, callbacks.progress)
    found, expected = ("{:,} ratings by {:,} users of {:,} movies".format(*each)
                       for each in (counts, COUNTS))  # fmt: skip
    if counts == COUNTS:
        return f"Verified: it has {found}, as published."
    return f"Not verified: it has {found}, but {expected} were published."


def _verify(release: Release, source: Path) -> str:
    """Refuse an archive that is not the published one; whether it is verified, as a sentence."""
    if source.is_dir():
        return "Not verified: only archives have a published checksum, and this is a folder."
    if not source.is_file():
        raise DataError(f"{source} does not exist; give --from the zip file or folder of the data.")
    if release.sha256 is None:
        return f"Not verified: {release.archive} changes over time and has no published checksum."
    sha256 = sha256_of_file(source)
    if sha256 != release.sha256:
        raise DataError(
            f"{source} is not the {release.archive} of GroupLens: its SHA-256 is {sha256}, but "
            f"{release.sha256} was expected; fetch it again, or if you extracted and packed it "
            f"yourself, give the folder with --from."
        )
    return f"Verified: {release.archive} has the SHA-256 that cfuica knows."
