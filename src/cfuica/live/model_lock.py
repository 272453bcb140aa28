"""The lock of a model that threads share, which a fork leaves whole.

A process that forks while another thread changes a model would give its child half of the change,
and a lock that nobody in the child can release. So a fork waits for the locks of all models and
releases them on both sides: parent and child have the model as it was between two calls.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

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
