"""How much memory this process has needed."""

from __future__ import annotations

import platform
from pathlib import Path


def peak_memory_gb() -> float:
    """The most memory this process ever held, in GB (0 where the system does not tell)."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not ru_maxrss: Linux lets a process inherit that of the one that started it.
        lines = (line.split() for line in status.read_text("ascii", "replace").splitlines())
        return next((int(line[1]) * 1024 / 1e9 for line in lines if line[:1] == ["VmHWM:"]), 0.0)
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if platform.system() == "Darwin" else 1024) / 1e9
