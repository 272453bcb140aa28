"""Folders that are there whole or not at all, and that can prove it.

Files are written into a folder of another name, flushed to the disk and hashed; the manifest with
the hashes is written last, and only then is the folder renamed. A crash at any moment leaves the
old state or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cfuica.atomic import sync_folder
from cfuica.data.checksums import sha256_of_file
from cfuica.errors import ModelFileError

MANIFEST = "manifest.json"
UNSEALED = ".unsealed-"


@contextmanager
def sealed_folder(target: Path) -> Iterator[Path]:
    """A folder to write files into, which becomes `target` when the block ends well."""
    work = target.parent / f"{UNSEALED}{target.name}-{secrets.token_hex(4)}"
    work.mkdir(parents=True)
    try:
        yield work
        hashes = {path.name: synced_sha256(path) for path in sorted(work.iterdir())}
        manifest = work / MANIFEST
        manifest.write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")
        synced_sha256(manifest)
        sync_folder(work)
        os.replace(work, target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def verify(folder: Path) -> None:
    """Refuse a folder that is not as it was sealed."""
    try:
        hashes = json.loads((folder / MANIFEST).read_text("utf-8"))
        found = {path.name for path in folder.iterdir()} - {MANIFEST}
        if found != set(hashes):
            raise ValueError(f"it has the files {sorted(found)}, expected {sorted(hashes)}")
        for name, sha256 in hashes.items():
            if sha256_of_file(folder / name) != sha256:
                raise ValueError(f"the content of {name} has changed")
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{folder} is damaged ({error}); train again.") from None


def synced_sha256(path: Path) -> str:
    """Hash of a file's content once it is safely on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
