"""Files and folders on disk: atomic writes, manifests, locks, Parquet, safetensors, gzip and zstd.

A reader, or a crash, sees the old version of a file or folder or the new one, never a mixture.
Content is written under another name, flushed to the disk and then renamed. A sealed folder has a
manifest with the SHA-256 of each file, by which `verify` notices damage. `locked` lets one process
at a time work on a path; the system releases the lock however the process ends.

Errors of the system (a full disk, missing rights) are an OSError for every kind of file. Damaged
bytes, at which polars may panic, are a ValueError.
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
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cfuica.errors import DataError, ModelFileError
from cfuica.forks import need_polars

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write, which becomes ``path`` when the block ends without an error.

    The bytes go to a temporary file in the same folder (a rename is atomic only inside one file
    system), are flushed to the disk and renamed. A failure leaves ``path`` untouched and no
    temporary file behind. An existing file keeps its permissions; a symbolic link stays one and
    its target is written. A device or a pipe is written to as it is.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        # A device or a pipe has no other version, and must not be replaced by a file.
        with open(path, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    folder = target.parent
    if not folder.is_dir():
        # Checked here because the message of open() would name the temporary file.
        raise FileNotFoundError(
            errno.ENOENT, "the folder to write into does not exist", str(folder)
        )
    # The kernel applies the umask to 0o666, as for any new file; tempfile would give 0o600.
    temporary = folder / f".{target.name}.{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_BINARY, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def write_bytes_atomically(path: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Write ``data``, or pieces of it, to ``path``; readers and crashes see the old file or the new
    one."""
    with atomic_file(path) as file:
        file.writelines([data] if isinstance(data, bytes) else data)


def is_full(error: OSError) -> bool:
    """Whether the disk, or the quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8 with unchanged newlines; see :func:`write_bytes_atomically`."""
    write_bytes_atomically(path, text.encode("utf-8"))


def exchanged(first: Path, second: Path) -> bool:
    """Swap the names of two folders of one file system atomically; whether that succeeded.

    A folder cannot be renamed over another that has files, so a swap is the only way to replace one
    without a gap. False where the system or the file system has no such call.
    """
    for name, arguments in (
        ("renameat2", (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), 2)),  # Linux
        ("renamex_np", (os.fsencode(first), os.fsencode(second), 2)),  # macOS
    ):
        call = None if os.name == "nt" else getattr(ctypes.CDLL(None), name, None)
        if call is not None:
            return bool(call(*arguments) == 0)
    return False


_AT_FDCWD = -100  # Linux: relative paths start at the working directory
_O_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would otherwise translate newlines


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; Windows cannot open folders and does not need it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """The frame as the bytes of a Parquet file."""
    need_polars("Writing a table")
    buffer = BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def parquet_pieces(frames: Iterable[pl.DataFrame]) -> Iterator[bytes]:
    """The bytes of a Parquet file with a row group for each frame; one frame is held at a time."""
    import pyarrow.parquet as pq

    need_polars("Writing a table")
    buffer, writer = _Passed(), None
    for frame in frames:
        table = frame.to_arrow()
        if writer is None:
            writer = pq.ParquetWriter(buffer, table.schema, compression="zstd")
        writer.write_table(table)
        yield buffer.taken()
    if writer is not None:
        writer.close()
    yield buffer.taken()


class _Passed(BytesIO):
    """A file whose bytes are taken away as they come; its position counts all of them."""

    passed = 0

    def tell(self) -> int:
        return self.passed + super().tell()

    def taken(self) -> bytes:
        data = self.getvalue()
        self.passed += len(data)
        self.seek(0)
        self.truncate()
        return data


def read_parquet(path: Path) -> pl.DataFrame:
    """Read a Parquet file; a damaged one is a ValueError.

    By pyarrow and on one thread: a model is often loaded before a fork, which the threads of polars
    do not survive.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = path.read_bytes()
    try:
        # Not `read_table`, which imports the data sets of pyarrow too.
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            table = file.read(use_threads=False)
        table.validate(full=True)
        return pl.DataFrame([pl.Series(name, table[name]) for name in table.column_names])
    except (pa.ArrowException, OSError, KeyError, pl.exceptions.PolarsError):
        raise ValueError(f"{path.name} is not a whole Parquet file") from None


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file; errors of the system are an OSError."""
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
    # The library creates private files; a model gets the permissions of any new file.
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


_SECONDS_BETWEEN_TRIES = 0.1


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock on `path`, a file that is created and stays; `on_wait` is called before waiting.

    `path` may also be a folder; on Windows, which cannot lock folders, that locks nothing.
    """
    is_folder = path.is_dir()
    if is_folder and sys.platform == "win32":
        yield
        return
    descriptor = _locked_descriptor(path, os.O_RDONLY if is_folder else _O_LOCK, on_wait)
    try:
        yield
    finally:
        # Closing releases the lock.
        os.close(descriptor)


_O_LOCK = os.O_RDWR | os.O_CREAT


def _locked_descriptor(path: Path, flags: int, on_wait: Callable[[], None]) -> int:
    """A descriptor that holds the lock on what `path` names."""
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            if not _try_lock(descriptor):
                on_wait()
                while not _try_lock(descriptor):
                    time.sleep(_SECONDS_BETWEEN_TRIES)
            # Whoever held the lock may have removed it, and another process made a new one.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass  # removed: the next round makes it anew, or says that the folder is gone
        except BaseException:
            os.close(descriptor)
            raise
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
    """The path with ~ expanded; unchanged where there is no such user."""
    path = Path(path)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def shown(path: str | Path) -> str:
    r"""The path as printable text, with a byte that is not UTF-8 as \udce9."""
    return str(path).encode(errors="backslashreplace").decode()


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_of(*places: Path) -> str:
    """SHA-256 of files, those of folders among them; empty of none."""
    files = [
        file
        for place in places
        for file in (sorted(place.rglob("*")) if place.is_dir() else [place])
        if file.is_file()
    ]
    sizes = [(file, file.stat()) for file in files]
    hashes = (_sha256_of(file, each.st_size, each.st_mtime_ns) for file, each in sizes)
    return hashlib.sha256("".join(hashes).encode()).hexdigest() if files else ""


@cache
def _sha256_of(path: Path, size: int, changed: int) -> str:
    return sha256_of_file(path)


_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


# A file, plain or compressed; or what opens it, perhaps more than once.
Content = Path | Callable[[], AbstractContextManager[IO[bytes]]]


@contextmanager
def open_content(content: Content, name: str) -> Iterator[Stream]:
    """Open for reading; what cannot be opened or decompressed is a DataError, now or later."""
    try:
        opened, compression, raw = _opened(content)
        size = content.stat().st_size if isinstance(content, Path) else 0
    except OSError as error:
        raise DataError(
            f"{name} cannot be read ({error.strerror}); give the path of a delimited text file."
        ) from error
    with opened as stream:
        yield Stream(stream, name, compression, raw, size)


# What is unusual costs no more than its block; much smaller ones would cost polars its speed.
_BLOCK = 1 << 19
# A text without a line end is none; it must not fill the memory before we say so.
_LONGEST = 1 << 24


class Stream:
    """Bytes of a file in order, with errors that name it."""

    def __init__(
        self, stream: IO[bytes], name: str, compression: str | None, raw: Any, size: int
    ) -> None:
        self._stream, self._name, self._compression = stream, name, compression
        self._raw, self._size = raw, size  # The file, perhaps compressed; 0: of unknown size.
        self._read = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes more; none at the end."""
        try:
            data = self._stream.read(size)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            said = " ".join(str(error).split())
            if self._compression is None:
                raise DataError(f"{self._name} cannot be read ({said}); fetch it again.") from error
            raise DataError(
                f"{self._name} is a damaged {self._compression} file ({said}); fetch or compress "
                f"it again."
            ) from error
        self._read += len(data)
        if self._compression is not None:
            check_ratio(self._name, self._size, self._read)
        return data

    def blocks(self) -> Iterator[tuple[bytes, bool]]:
        """(whole lines, whether they are the last ones) of a text; a mark at its start is left out.

        A file that does not end with a line end has its last line all the same.
        """
        line, rest, is_last = 1, self.read(_BLOCK).removeprefix(b"\xef\xbb\xbf"), False
        while not is_last:
            more = self.read(_BLOCK)
            is_last = not more
            rest += more
            end = len(rest) if is_last else rest.rfind(b"\n") + 1
            if end or is_last:
                yield rest[:end], is_last
                line, rest = line + rest.count(b"\n", 0, end), rest[end:]
            if len(rest) > _LONGEST:
                raise DataError(
                    f"{self._name}, line {line}: more than {_LONGEST:,} bytes without a line end, "
                    f"but one interaction per line was expected; give a text file."
                )

    @property
    def done(self) -> float:
        """How much of the file is read, from 0 to 1; 0 as long as nobody can tell."""
        return self._raw.tell() / self._size if self._size else 0.0


# Compressed text of interactions unpacks to 3 to 40 times its size, and all pairs of users and
# items as columns to 1,000 times; small files may be more regular.
_TEXT_RATIO, COLUMNAR_RATIO, _RATIO_FREE = 200, 10_000, 64 << 20


def check_ratio(name: str, packed: int, unpacked: int, ratio: int = _TEXT_RATIO) -> None:
    """Refuse a file that unpacks to far more than data does, as one made to fill a memory."""
    if unpacked > _RATIO_FREE + ratio * packed:
        raise DataError(
            f"{name} has {packed:,} bytes and unpacks to more than {ratio:,} times as many, unlike "
            f"any data (a 'decompression bomb'), and was not read on; fetch it from a source that "
            f"you trust, or unpack it yourself."
        )


def _opened(content: Content) -> tuple[Any, str | None, Any]:
    """(stream, its compression, by the first bytes and not by the name of the file; the file)."""
    if not isinstance(content, Path):
        return content(), None, None
    file = content.open("rb")
    try:
        magic = file.read(4)
        file.seek(0)
    except OSError:
        file.close()
        raise
    kind = next((kind for start, kind in _COMPRESSED.items() if magic.startswith(start)), None)
    if kind is None:
        return file, None, file
    file.close()
    # Imported here because few files are compressed.
    import pyarrow as pa

    # As bytes, because the name may not be UTF-8.
    raw = pa.OSFile(os.fsencode(content))
    return pa.input_stream(raw, compression=kind), kind, raw


MANIFEST = "manifest.json"
UNSEALED = ".unsealed-"


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder to write files into, which becomes `target` when the block ends without an error.

    An existing `target` is replaced, atomically where the system can do that.
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
    """An atomic folder with a manifest, by which `verify` notices every change."""
    with atomic_folder(target) as work:
        yield work
        hashes = {path.name: sha256_of_file(path) for path in sorted(work.iterdir())}
        manifest = work / MANIFEST
        manifest.write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")


def _put_in_place(work: Path, target: Path) -> None:
    if not target.exists():
        os.replace(work, target)
    elif exchanged(work, target):
        shutil.rmtree(work, ignore_errors=True)  # the old one after the swap
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
    """Refuse a folder whose files differ from its manifest."""
    try:
        for path in folder.iterdir():
            if path.exists() and not path.is_file():
                raise ValueError(f"{path.name} is not a file")  # a pipe or device may never end
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
    """Flush a file to the disk and return its SHA-256."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
