"""What a fork does: the child loses the threads of its parent, and may copy a lock that is held.

gunicorn --preload, Celery and multiprocessing fork. Where polars had started its threads before, an
operation that needs them waits for ever in the child. The calls of a live model do not need them.
`need_polars` refuses the others in such a process.

A process that forks while another thread changes a model would give its child half of the change,
and a lock that nobody in the child can release. So a fork waits for the locks of all models
(`new_lock`) and releases them on both sides: parent and child have the model as it was between two
calls.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any
from weakref import WeakSet

from cfuica.errors import CfuicaError

_is_running = False  # polars' threads, in the parent at the last fork
_is_lost = False


def polars_is_lost() -> bool:
    """Whether this process was forked after polars had started its threads."""
    return _is_lost


def need_polars(what: str) -> None:
    """Refuse what would wait for ever; `what` begins the sentence."""
    if _is_lost:
        raise CfuicaError(
            f"{what} needs the threads of polars, which this process lost when it was forked; do "
            f"it before the fork, or start processes by spawn and load the model in each."
        )


def _before() -> None:
    global _is_running
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        _is_running = "polars" in sys.modules  # it may be
        return
    names = []
    for task in tasks.iterdir():
        try:
            names.append((task / "comm").read_text("utf-8", "replace").strip())
        except OSError:  # it has just ended
            continue
    _is_running = any(name.startswith("polars-") and name[7:].isdigit() for name in names)


def _after() -> None:
    global _is_lost
    _is_lost = _is_lost or _is_running


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_after)


_locks: WeakSet[Any] = WeakSet()
_held = threading.local()  # By the thread that forks, from before the fork until after it.


def new_lock() -> Any:
    """A reentrant lock, for one model."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _acquire_all() -> None:
    # In one order, so that two threads that fork do not wait for each other.
    _held.locks = sorted(_locks, key=id)
    for lock in _held.locks:
        lock.acquire()


def _release_all() -> None:
    for lock in _held.locks:
        lock.release()
    _held.locks = []


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )
