"""SHA-256 of files, and the record of those that were seen in the cache's `checksums.json`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cfuica.atomic import write_text_atomically
from cfuica.errors import DataError
from cfuica.lock import locked


@dataclass(frozen=True)
class Record:
    """What a data set was when it came into the cache."""

    files: dict[str, str]
    """SHA-256 of each file of the folder."""
    archive: str | None = None
    """SHA-256 of the archive; None if it came from a folder."""
    day: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())


def sha256_of_file(path: Path) -> str:
    """The checksum, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_files(folder: Path) -> dict[str, str]:
    """The checksums of the files in a folder, by their paths inside it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files}


def recorded(cache: Path, name: str) -> Record | None:
    """What was recorded of a data set."""
    given = _load(_file(cache)).get(name)
    if given is None:
        return None
    try:
        return Record(**given)  # type: ignore[arg-type]
    except TypeError as error:
        raise _not_ours(_file(cache)) from error


def record(cache: Path, name: str, what: Record) -> None:
    """Record a data set in place of what was known of it; others may be recorded meanwhile."""
    path = _file(cache)
    with locked(cache / ".checksums.lock"):
        all_of_them = {**_load(path), name: asdict(what)}
        write_text_atomically(path, json.dumps(all_of_them, indent=2, sort_keys=True) + "\n")


def _file(cache: Path) -> Path:
    return cache / "checksums.json"


def _load(path: Path) -> dict[str, dict[str, object]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _not_ours(path) from error
    if not isinstance(content, dict) or not all(isinstance(one, dict) for one in content.values()):
        raise _not_ours(path)
    return content


def _not_ours(path: Path) -> DataError:
    return DataError(
        f"{path} is not the record of checksums that cfuica writes there; remove it, and cfuica "
        f"will record anew."
    )
