"""A verdict, and what to do about it.

What is installed, beside what the package says it needs.

The machine and the folders that cfuica finds itself in.

Everything the doctor finds, gathered.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import cfuica
from cfuica.data import datasets
from cfuica.io import expanded


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. Whoever sees that it is not `ok` is told what to do."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    """What to do; empty where all is well."""
    seconds: float | None = None
    """How long it took, where that is of interest."""


def with_tilde(path: Path | str) -> str:
    """A path without the name of the user whose home it is in."""
    text, home = str(path), str(Path.home())
    return "~" + text[len(home) :] if text == home or text.startswith(home + os.sep) else text


@dataclass(frozen=True)
class Package:
    """A package that cfuica needs; with `extra`, only for that extra."""

    name: str
    least: str
    extra: str | None
    installed: str | None
    """The version that is there; None where there is none."""

    @property
    def suffices(self) -> bool:
        return self.installed is not None and _numbers(self.installed) >= _numbers(self.least)


def packages() -> list[Package]:
    """Everything that the installed cfuica declares; nothing where it was never installed."""
    try:
        declared = requires("cfuica") or []
    except PackageNotFoundError:
        return []
    found = []
    for line in declared:
        name, least, extra = _parsed(line)
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = None
        found.append(Package(name, least, extra, installed))
    return found


def check_packages(found: list[Package]) -> Check:
    """Whether everything is there that cfuica cannot do without, and new enough."""
    needed = [package for package in found if package.extra is None]
    if not needed:
        return Check(
            "packages",
            False,
            "cfuica runs from a source tree that was never installed",
            "Install it: pip install -e . in its folder.",
        )
    wrong = [package for package in needed if not package.suffices]
    if not wrong:
        return Check("packages", True, f"all {len(needed)} are there and new enough")
    return Check(
        "packages",
        False,
        ", ".join(f"{package.name} is {package.installed or 'missing'}" for package in wrong),
        "Install what is wrong: pip install "
        + " ".join(f"'{package.name}>={package.least}'" for package in wrong),
    )


def _parsed(line: str) -> tuple[str, str, str | None]:
    """(name, least version, extra) of "torch>=2.4; extra == 'gpu'"."""
    needed, _, condition = line.partition(";")
    name = re.match(r"[\w.-]+", needed.strip())
    least = re.search(r">=\s*([\d.]+)", needed)
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", condition)
    return (
        name.group() if name else needed.strip(),
        least.group(1) if least else "0",
        extra.group(1) if extra else None,
    )


def _numbers(version: str) -> list[int]:
    """The release part of a version, to compare: "2.13.0+cpu" is [2, 13, 0]."""
    release = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in release.group().split(".")] if release else []


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
        name: None if path is None else with_tilde(path) for name, path in datasets.found().items()
    }


def data_folder() -> dict[str, str | float]:
    """Where data is looked for first, and how much room there is."""
    return _place(datasets.data_home())


def cache_folder() -> dict[str, str | float]:
    """The same of where `cfuica data get` puts it."""
    return _place(datasets.cache_folder())


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
        from cfuica.ops.encode import encode
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


Facts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Diagnosis:
    """What is there, by topic, and what was found right or wrong."""

    facts: Facts
    checks: list[Check]

    @property
    def healthy(self) -> bool:
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        return {"healthy": self.healthy, **self.facts, "checks": checks}


def examine() -> Diagnosis:
    """Look at everything; the kernels run, so this takes a moment, up to a minute at the first."""
    found = packages()
    checks = [check_packages(found)]
    facts: Facts = {
        "versions": {
            "cfuica": cfuica.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            **_versions(found, None),
        }
    }
    for extra in sorted({package.extra for package in found if package.extra}):
        facts[f"extra_{extra}"] = _versions(found, extra)
    if any(package.installed is None for package in found if package.extra is None):
        # Nothing else can be imported; what to do has been said.
        return Diagnosis(facts, checks)

    from cfuica.ops.runtime import machine

    memory = {f"memory_{name}_gb": value for name, value in memory_gb().items()}
    facts["machine"] = {**machine(), **memory, "devices": devices()}
    facts["data"] = data_found()
    facts["data_folder"] = data_folder()
    facts["cache_folder"] = cache_folder()
    facts["environment"] = environment()
    checks += check_environment()
    checks.append(check_kernel_cache())
    if checks[-1].ok:
        from cfuica.doctor.golden import check_kernels

        checks += check_kernels()
    return Diagnosis(facts, checks)


def _versions(found: list[Package], extra: str | None) -> dict[str, str | None]:
    return {package.name: package.installed for package in found if package.extra == extra}
