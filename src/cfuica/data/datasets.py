"""Data sets by name, and where they are looked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from cfuica.data.catalogue import RELEASES, Release
from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.data.movielens import read_movielens
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError, SettingsError
from cfuica.io import expanded

DEMO = "demo"


def names() -> tuple[str, ...]:
    """The registered names."""
    return (*RELEASES, DEMO)


def data_home() -> Path:
    """Where data sets lie: $CFUICA_DATA, else ../shared/data if it exists, else the cache."""
    return homes()[0]


def cache_folder() -> Path:
    """Where `cfuica data get` puts data sets: $CFUICA_CACHE, else in the user's cache folder."""
    if given := os.environ.get("CFUICA_CACHE"):
        return expanded(given)
    return _cache() / "cfuica"


def find_folder(name: str, *files: str) -> Path | None:
    """The first folder of this name, where data sets are looked for, that has all these files."""
    for home in homes():
        if all((home / name / file).is_file() for file in files):
            return home / name
    return None


def found() -> dict[str, Path | None]:
    """For each data set that is not embedded: the folder or zip that its name stands for."""
    return {name: _find(release) for name, release in RELEASES.items()}


def resolve(name_or_path: str | Path, options: ReadOptions = FIND_OUT) -> BehaviourTable:
    """The data set of a registered name, or else of a file or folder."""
    name = str(name_or_path)
    if name == DEMO:
        _refuse_options(options)
        # Imported here: nobody else needs the generator.
        from cfuica.data.synthetic import make_world

        return make_world().table
    if name in RELEASES and (place := _find(RELEASES[name])) is not None:
        return read_movielens(place, options)
    path = expanded(name)
    if path.exists():
        return BehaviourTable.read(path, options)
    raise _not_found(name, path)


def _refuse_options(options: ReadOptions) -> None:
    given = [
        field.name
        for field in fields(options)
        if getattr(options, field.name) != getattr(FIND_OUT, field.name)
    ]
    if given:
        raise SettingsError(
            f"The data set '{DEMO}' is made and not read from a file, but {' and '.join(given)} "
            f"was given; leave it out, or give a file."
        )


def _find(release: Release) -> Path | None:
    """The first place that has it, home by home: a folder before a zip."""
    for home in homes():
        for folder in _folders(release):
            if (home / folder / release.ratings).is_file():
                return home / folder
        for folder in _folders(release):
            if (archive := home / f"{folder}.zip").is_file():
                return archive
    return None


def _folders(release: Release) -> Iterator[str]:
    """Under a data folder: by its name or the archive's, and either of them once more inside."""
    yield from release.folders
    for outer in release.folders:
        for inner in release.folders:
            yield f"{outer}/{inner}"


def _not_found(name: str, path: Path) -> DataError:
    if name in RELEASES:
        places = ", ".join(map(str, homes()))
        return DataError(
            f"The data set '{name}' was not found: looked for a folder {name} or {name}.zip under "
            f"{places}; run  cfuica data get {name}  to fetch it, put it there, set CFUICA_DATA to "
            f"the folder that holds it, or give its path."
        )
    return DataError(
        f"'{name}' is neither a registered data set ({', '.join(names())}) nor an existing file or "
        f"folder (looked for {path.absolute()}); give one of these names or a path."
    )


def homes() -> list[Path]:
    """All places where data sets are looked for, in order."""
    places = []
    if given := os.environ.get("CFUICA_DATA"):
        places.append(expanded(given))
    shared = Path.cwd().parent / "shared" / "data"
    if shared.is_dir():
        places.append(shared)
    places.append(cache_folder())
    return places


def _cache() -> Path:
    """The cache folder that the operating system gives the user."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return expanded(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
