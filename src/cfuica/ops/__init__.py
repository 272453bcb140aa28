"""The hot loops. Before the first is compiled, a place for numba's cache is found.

numba stores compiled code in `NUMBA_CACHE_DIR`, beside the source, or in the home folder, and fails
where none of them can be written, as in a container without a user or with a read-only root. The
cache is then a temporary folder of this process. It begins with what stands in the folders that can
be read, so that an image with a filled cache (`cfuica doctor --compile`) starts as fast as usual.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.core.caching import UserProvidedCacheLocator

config: Any = numba.config
# The temporary cache of this process, where it has one, and whether it began with compiled code.
temporary_cache: Path | None = None
is_filled = False
_NOTE = (
    "cfuica: Compiled code cannot be stored, because %s cannot be written, so every start compiles "
    "for a minute; set NUMBA_CACHE_DIR to a folder that can be written, or fill it beforehand with "
    "cfuica doctor --compile."
)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _has_a_place() -> bool:
    """Whether numba finds a folder for its cache, the one that was asked for if any."""
    if config.DISABLE_JIT:
        return True
    if config.CACHE_DIR and not _is_writable(Path(config.CACHE_DIR, _SUBFOLDER)):
        return False
    try:
        njit(cache=True)(_is_writable)
    except RuntimeError:
        return False
    return True


_SUBFOLDER = UserProvidedCacheLocator.get_suitable_cache_subpath(__file__)


def _use_a_temporary_cache() -> None:
    global temporary_cache, is_filled
    beside = Path(__file__).parent / "__pycache__"
    given = Path(config.CACHE_DIR, _SUBFOLDER) if config.CACHE_DIR else beside
    try:
        # Private: compiled code is executed.
        temporary_cache = Path(tempfile.mkdtemp(prefix="cfuica-numba-"))
    except OSError:
        raise OSError(
            errno.EROFS,
            "no folder can be written, not even a temporary one, but compiled code needs one; set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            str(given),
        ) from None
    atexit.register(_remove, temporary_cache, os.getpid())
    own = temporary_cache / _SUBFOLDER
    own.mkdir()
    for source in (beside, given):
        for path in source.glob("*.nb[ic]") if os.access(source, os.R_OK | os.X_OK) else ():
            shutil.copyfile(path, own / path.name)
            is_filled = True
    config.CACHE_DIR = str(temporary_cache)
    if not is_filled:
        logging.getLogger("cfuica").warning(_NOTE, given)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a forked process, which has the folder of its parent
        shutil.rmtree(folder, ignore_errors=True)


if not _has_a_place():
    _use_a_temporary_cache()
