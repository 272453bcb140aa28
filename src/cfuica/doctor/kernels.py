"""The compiled kernels against their definitions, on this machine: each once, on a small problem.

`tests/doctor` sees to it that every kernel that the rest of the house calls is looked at here.
"""

from __future__ import annotations

import time

from cfuica.doctor import evaluating_steps, live_steps, ranking_steps, rating_steps
from cfuica.doctor.checks import Check
from cfuica.doctor.differences import Steps
from cfuica.doctor.problem import Problem

TOLERANCE = 1e-4
"""Largest difference, as a share of the largest number: float32 sums in another order."""
ADVICE = (
    "Results of this machine cannot be trusted: delete the folder of numba's cache, "
    "run cfuica doctor again, and if it persists report it with the output of cfuica doctor --json."
)
# What a step makes use of stands before it, so that the first wrong one is to blame.
STEPS: Steps = {
    **rating_steps.STEPS,
    **ranking_steps.STEPS,
    **live_steps.STEPS,
    **evaluating_steps.STEPS,
}


def check_kernels() -> list[Check]:
    """A verdict per kernel; where several run in one pass, its time stands with the first.

    Times include compiling where numba's cache is empty.
    """
    checks: list[Check] = []
    problem = Problem.make()
    for names, step in STEPS.items():
        start = time.perf_counter()
        try:
            differences = step(problem)
        except Exception as error:  # whatever it is, it is what the doctor was called for
            checks.extend(_failed(name, error) for name in names)
        else:
            times = (time.perf_counter() - start, *[None] * len(names))
            checks.extend(
                _verdict(name, differences[name], seconds)
                for name, seconds in zip(names, times, strict=False)
            )
    return checks


def _verdict(name: str, difference: float, seconds: float | None) -> Check:
    ok = difference <= TOLERANCE  # not a number is not ok
    found = f"within {difference:.0e} of its definition"
    return Check(f"kernel {name}", ok, found, "" if ok else ADVICE, seconds)


def _failed(name: str, error: Exception) -> Check:
    first_line = (str(error).splitlines() or [""])[0]
    return Check(f"kernel {name}", False, f"{type(error).__name__}: {first_line}", ADVICE)
