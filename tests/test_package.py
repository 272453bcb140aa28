"""What importing costs, and what there is to import."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys

import pytest

import cfuica

HEAVY = ("torch", "numba", "polars", "numpy", "pandas", "pyarrow", "safetensors")
PROGRAMS = {
    "import cfuica": "import cfuica",
    "cfuica --help": (
        "import sys, cfuica.cli\n"
        "sys.argv = ['cfuica', '--help']\n"
        "try:\n    cfuica.cli.main()\n"
        "except SystemExit:\n    pass"
    ),
}
END = f"\nimport json, sys\nprint()\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_heavy_is_imported(name: str) -> None:
    program = [sys.executable, "-c", PROGRAMS[name] + END]
    out = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert json.loads(out.splitlines()[-1]) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_takes_less_than_half_a_second(name: str) -> None:
    def cpu_seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", PROGRAMS[name]], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    # Processor time, because the clock on the wall also counts what others do.
    assert statistics.median(cpu_seconds() for _ in range(5)) < 0.5


def test_everything_announced_is_there() -> None:
    assert dir(cfuica) == cfuica.__all__
    for name in cfuica.__all__:
        assert getattr(cfuica, name) is not None
    assert cfuica.RatingModel.__name__ == "RatingModel"
    assert issubclass(cfuica.errors.DataError, cfuica.CfuicaError)


def test_what_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(cfuica, "Ratingmodel")
    with pytest.raises(ImportError, match="Ratingmodel"):
        from cfuica import Ratingmodel  # noqa: F401
