"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cfuica.kernels.threads import thread_count


def machine() -> dict[str, str | int]:
    """The processor's name, its cores, and the threads in use."""
    return {"cpu": _cpu_name(), "cores": os.cpu_count() or 1, "threads": thread_count()}


def versions() -> dict[str, str]:
    """Versions of what the figure depends on."""
    found = {"python": platform.python_version()}
    for name in ("cfuica", "torch", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
