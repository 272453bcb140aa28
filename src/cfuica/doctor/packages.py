"""What is installed, beside what the package says it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from cfuica.doctor.checks import Check


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
