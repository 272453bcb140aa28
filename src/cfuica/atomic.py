"""Files and folders that are either the old version or the new one, never half of it."""

import ctypes
import errno
import os
import secrets
import stat
from pathlib import Path


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
