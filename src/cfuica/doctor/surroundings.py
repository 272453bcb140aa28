"""The machine and the folders that cfuica finds itself in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cfuica.data import registry
from cfuica.doctor.checks import Check, with_tilde
from cfuica.paths import expanded

# Whose values help and give nothing away; of any other CFUICA_* only that it is set is told.
_TOLD = ("CFUICA_DATA", "CFUICA_CACHE", "CFUICA_THREADS", "CFUICA_DEBUG")


def memory_gb() -> dict[str, float]:
    """Memory that this process may have in all, and that is free; empty where nobody tells."""
    found = {}
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = _text(Path("/sys/fs/cgroup/memory.max"))  # of a container
        found["total"] = round(min(total, int(limit) if limit.isdigit() else total) / 1e9, 1)
    except (AttributeError, OSError, ValueError):  # Windows
        return {}
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            free = round(int(line.split()[1]) * 1024 / 1e9, 1)
            found["free"] = min(free, found["total"])
    return found


def devices() -> list[str]:
    """What torch can compute on."""
    import torch

    graphics = [
        f"cuda:{number} ({torch.cuda.get_device_name(number)})"
        for number in range(torch.cuda.device_count())
    ]
    return ["cpu", *graphics, *(["mps"] if torch.backends.mps.is_available() else [])]


def environment() -> dict[str, str]:
    """The variables that cfuica reads."""
    return {
        name: with_tilde(value) if name in _TOLD else "set"
        for name, value in sorted(os.environ.items())
        if name.startswith("CFUICA_")
    }


def data_found() -> dict[str, str | None]:
    """Where each registered data set lies; None where it does not."""
    return {
        name: None if path is None else with_tilde(path) for name, path in registry.found().items()
    }


def data_folder() -> dict[str, str | float]:
    """Where data is looked for first, and how much room there is."""
    return _place(registry.data_home())


def cache_folder() -> dict[str, str | float]:
    """The same of where `cfuica data get` puts it."""
    return _place(registry.cache_folder())


def _place(folder: Path) -> dict[str, str | float]:
    free = shutil.disk_usage(_existing(folder)).free
    return {"path": with_tilde(folder), "free_gb": round(free / 1e9, 1)}


def check_environment() -> list[Check]:
    """Variables that are set to what cannot be used; each would be ignored in silence."""
    checks = []
    if threads := os.environ.get("CFUICA_THREADS"):
        usable = threads.isdigit() and int(threads) > 0
        advice = "Set CFUICA_THREADS to a whole number from 1, or unset it."
        checks.append(Check("CFUICA_THREADS", usable, threads, "" if usable else advice))
    if data := os.environ.get("CFUICA_DATA"):
        usable = expanded(data).is_dir()
        advice = "Set CFUICA_DATA to a folder that exists, create it, or unset it."
        found = with_tilde(data) + (" is a folder" if usable else " is no folder")
        checks.append(Check("CFUICA_DATA", usable, found, "" if usable else advice))
    return checks


def check_kernel_cache() -> Check:
    """Where numba keeps compiled kernels; without it every start compiles for half a minute."""
    advice = "Set NUMBA_CACHE_DIR to a folder that can be written."
    try:
        from cfuica.kernels.encode import encode
    except Exception as error:  # numba says here that it finds no place for its cache
        return Check("numba cache", False, f"{type(error).__name__}: {error}", advice)
    if not hasattr(encode, "stats"):
        return Check(
            "numba cache", False, "kernels are not compiled", "Unset NUMBA_DISABLE_JIT to compile."
        )
    folder = Path(str(encode.stats.cache_path))
    writable = os.access(_existing(folder), os.W_OK)
    found = f"{with_tilde(folder)} can {'' if writable else 'not '}be written"
    return Check("numba cache", writable, found, "" if writable else advice)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
