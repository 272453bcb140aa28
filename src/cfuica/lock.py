"""One process at a time, by a lock that the system releases however its holder ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
