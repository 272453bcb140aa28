"""Everything the doctor finds, gathered."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from typing import Any

import cfuica
from cfuica.doctor.checks import Check
from cfuica.doctor.packages import Package, check_packages, packages

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

    from cfuica.benchmarking.machine import machine
    from cfuica.doctor import surroundings

    memory = {f"memory_{name}_gb": value for name, value in surroundings.memory_gb().items()}
    facts["machine"] = {**machine(), **memory, "devices": surroundings.devices()}
    facts["data"] = surroundings.data_found()
    facts["data_folder"] = surroundings.data_folder()
    facts["cache_folder"] = surroundings.cache_folder()
    facts["environment"] = surroundings.environment()
    checks += surroundings.check_environment()
    checks.append(surroundings.check_kernel_cache())
    if checks[-1].ok:
        from cfuica.doctor.kernels import check_kernels

        checks += check_kernels()
    return Diagnosis(facts, checks)


def _versions(found: list[Package], extra: str | None) -> dict[str, str | None]:
    return {package.name: package.installed for package in found if package.extra == extra}
