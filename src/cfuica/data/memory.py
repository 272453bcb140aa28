"""How much memory the rows of a file may take: `--max-memory`, or half of the machine's."""

from __future__ import annotations

import os
from pathlib import Path

from cfuica.data.layout import ReadOptions
from cfuica.errors import DataError, SettingsError

# Sorting and splitting a table take as much again.
_SHARE = 0.5
# Where Linux says how much memory a container may have (version 2 and 1 of cgroups).
_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def most_memory(options: ReadOptions) -> float:
    """The bytes that rows may take: as given by the options, or else a share of the machine's."""
    if options.max_memory is None:
        return _SHARE * of_machine()
    if not options.max_memory > 0:
        raise SettingsError(
            f"A memory of {options.max_memory:g} GB holds nothing; give --max-memory a number "
            f"above 0."
        )
    return options.max_memory * 1e9


def check_taken(name: str, taken: float, most: float) -> None:
    """Refuse rows that take too many bytes."""
    if taken > most:
        raise DataError(
            f"The rows of {name} take more than {most / 1e9:.3g} GB of memory; give fewer rows, or "
            f"allow more by --max-memory GB (max_memory in Python)."
        )


def of_machine() -> float:
    """Bytes of the machine or of the container; without a bound where the system does not say."""
    sizes = [float("inf")]
    if hasattr(os, "sysconf"):  # which Windows does not have
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for place in map(Path, _CONTAINER):
        try:
            sizes.append(int(place.read_text()))
        except (OSError, ValueError):
            continue  # there is none, or it is "max"
    return min(sizes)
