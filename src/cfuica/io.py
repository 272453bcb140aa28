"""Files and folders that are either the old version or the new one, never half of it.

Tables and tensors on disk, where a refusal of the system is an OSError as for any other file.

The libraries wrap it (a full disk, missing rights) in errors of their own, which say nothing about
what they are; and at damaged bytes polars may panic, which is not even an Exception.

One process at a time, by a lock that the system releases however its holder ends.

Paths as people give them and as messages show them.

Folders that are there whole or not at all, and with a manifest can prove it.

Files are written into a folder of another name and flushed to the disk, and only then is the folder
renamed. A crash at any moment leaves the old state or the new one. A manifest has the SHA-256 of
each file.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from cfuica.errors import ModelFileError

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor


def write_bytes_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path``; a reader or a crash sees the old file or the new one.

    The bytes go to a temporary file in the same folder (a rename is atomic only inside one file
    system), are flushed to the disk and renamed. A failure leaves ``path`` untouched and no
    temporary file behind. An existing file keeps its permissions; a symbolic link stays one and
    its target is written. A device or a pipe is written to as it is.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        # A device or a pipe has no other version, and must not be replaced by a file.
        Path(path).write_bytes(data)
        return
    target = Path(os.path.realpath(path))
    folder = target.parent
    if not folder.is_dir():
        # Said here because the message of open() would name the temporary file.
        raise FileNotFoundError(
            errno.ENOENT, "the folder to write into does not exist", str(folder)
        )
    # The kernel applies the umask to 0o666, as for any new file; tempfile would give 0o600.
    temporary = folder / f".{target.name}.{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_BINARY, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def is_full(error: OSError) -> bool:
    """Whether the system refused for want of room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8, newlines as they are; see :func:`write_bytes_atomically`."""
    write_bytes_atomically(path, text.encode("utf-8"))


def exchanged(first: Path, second: Path) -> bool:
    """Whether two folders of one file system got each other's names, both at one moment.

    Nobody can rename a folder over another that has files, so this is the only way to replace one
    without a moment when there is none. False where the system or the file system has no such call.
    """
    for name, arguments in (
        ("renameat2", (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), 2)),  # Linux
        ("renamex_np", (os.fsencode(first), os.fsencode(second), 2)),  # macOS
    ):
        call = None if os.name == "nt" else getattr(ctypes.CDLL(None), name, None)
        if call is not None:
            return bool(call(*arguments) == 0)
    return False


_AT_FDCWD = -100  # paths are as they are given, to Linux
_O_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would otherwise translate newlines


def sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut; Windows cannot open folders and needs it not."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """The content of a Parquet file, to be written like any other bytes."""
    buffer = BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def read_parquet(path: Path) -> pl.DataFrame:
    """The table of a Parquet file; a ValueError where it is damaged."""
    import polars as pl

    try:
        # Not by its name, which may have a [ or a * in it, or no reading as text.
        return pl.read_parquet(path.read_bytes())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise ValueError(f"{path.name} is not a whole Parquet file") from None


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """A safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(on_cpu, path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
    # The library makes it private to the user; a model is as readable as any new file.
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


_SECONDS_BETWEEN_TRIES = 0.1


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path`, which stays; `on_wait` is called once if another one has it.

    `path` may also be a folder, which needs no file; Windows cannot lock folders and does not.
    """
    is_folder = path.is_dir()
    if is_folder and sys.platform == "win32":
        yield
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _try_lock(descriptor):
            on_wait()
            while not _try_lock(descriptor):
                time.sleep(_SECONDS_BETWEEN_TRIES)
        yield
    finally:
        # Closing releases the lock.
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def expanded(path: str | Path) -> Path:
    """The path with ~ as the home folder; as it is where there is no such user."""
    path = Path(path)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def shown(path: str | Path) -> str:
    r"""The path as text that can be written anywhere: a byte that is not UTF-8 as \udce9."""
    return str(path).encode(errors="backslashreplace").decode()


def sha256_of_file(path: Path) -> str:
    """The checksum, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


MANIFEST = "manifest.json"
UNSEALED = ".unsealed-"


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder to write files into, which becomes `target` when the block ends well.

    A folder that `target` is already is replaced, at one moment where the system can do that.
    """
    work = target.parent / f"{UNSEALED}{target.name}-{secrets.token_hex(4)}"
    work.mkdir(parents=True)
    try:
        yield work
        for path in work.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        sync_folder(work)
        _put_in_place(work, target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


@contextmanager
def sealed_folder(target: Path) -> Iterator[Path]:
    """An atomic folder with a manifest, by which `verify` notices any change."""
    with atomic_folder(target) as work:
        yield work
        hashes = {path.name: sha256_of_file(path) for path in sorted(work.iterdir())}
        manifest = work / MANIFEST
        manifest.write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")


def _put_in_place(work: Path, target: Path) -> None:
    if not target.exists():
        os.replace(work, target)
    elif exchanged(work, target):
        shutil.rmtree(work, ignore_errors=True)  # which is the old one now
    else:
        old = work.with_name(f"{work.name}-old")
        os.replace(target, old)
        try:
            os.replace(work, target)
        except BaseException:
            os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def verify(folder: Path, remedy: str = "train again") -> None:
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
        raise ModelFileError(f"{folder} is damaged ({error}); {remedy}.") from None


def synced_sha256(path: Path) -> str:
    """Hash of a file's content once it is safely on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
