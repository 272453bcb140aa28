"""Data sets by name, and where they are looked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cfuica.data.movielens import read_movielens
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError

DEMO = "demo"

# Where each public data set may lie under a data folder: a folder or a zip, the first one counts.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "ml-100k": ("ml-100k/u.data", "ml-100k/ml-100k/u.data", "ml-100k/ml-100k.zip", "ml-100k.zip"),
    "ml-1m": ("ml-1m/ratings.dat", "ml-1m/ml-1m/ratings.dat", "ml-1m/ml-1m.zip", "ml-1m.zip"),
}


def names() -> tuple[str, ...]:
    """The registered names."""
    return (*_PLACES, DEMO)


def data_home() -> Path:
    """Where data sets lie: $CFUICA_DATA, else ../shared/data if it exists, else the cache."""
    return _homes()[0]


def resolve(name_or_path: str | Path) -> BehaviourTable:
    """The data set of a registered name, or else of a file or folder."""
    name = str(name_or_path)
    if name == DEMO:
        # Imported here: nobody else needs the generator.
        from cfuica.data.synthetic import make_world

        return make_world().table
    path = Path(name).expanduser()
    if name in _PLACES:
        found = _find(name)
        if found is not None:
            return read_movielens(found)
    if path.exists():
        return BehaviourTable.read(path)
    raise _not_found(name, path)


def _find(name: str) -> Path | None:
    for home in _homes():
        for place in _PLACES[name]:
            path = home / place
            if path.is_file():
                return path if path.suffix == ".zip" else path.parent
    return None


def _not_found(name: str, path: Path) -> DataError:
    if name in _PLACES:
        homes = ", ".join(str(home) for home in _homes())
        return DataError(
            f"The data set '{name}' was not found: looked for {' or '.join(_PLACES[name])} under "
            f"{homes}; put it there, set CFUICA_DATA to the folder that holds it, or give its path."
        )
    return DataError(
        f"'{name}' is neither a registered data set ({', '.join(names())}) nor an existing file or "
        f"folder (looked for {path.absolute()}); give one of these names or a path."
    )


def _homes() -> list[Path]:
    """All places to search, in order."""
    homes = []
    if given := os.environ.get("CFUICA_DATA"):
        homes.append(Path(given).expanduser())
    shared = Path.cwd().parent / "shared" / "data"
    if shared.is_dir():
        homes.append(shared)
    homes.append(_cache() / "cfuica")
    return homes


def _cache() -> Path:
    """The cache folder that the operating system gives the user."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
