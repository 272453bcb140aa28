"""What all tests share. Real data is found here and nowhere else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Data sets that lie beside the repository, unless CFUICA_DATA names others.
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if _BESIDE.is_dir():
    os.environ.setdefault("CFUICA_DATA", str(_BESIDE))

# A shell that starts the tests in the background has them ignore Ctrl-C, and so all they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def find_data(name: str) -> Path:
    """The path of a file or folder of real data; skips the test where it is absent."""
    home = os.environ.get("CFUICA_DATA")
    if not home:
        pytest.skip(f"needs {name}, and CFUICA_DATA does not say where data sets lie")
    path = Path(home) / name
    if not path.exists():
        pytest.skip(f"needs {name}, which is not under {home} (set CFUICA_DATA)")
    return path


@pytest.fixture(scope="session")
def data_path() -> Callable[[str], Path]:
    """`data_path("ml-1m/ml-1m.zip")`: see `find_data`."""
    return find_data


@pytest.fixture(scope="session", autouse=True)
def _threads_for_little_work() -> Iterator[None]:
    """Toy problems are split over the threads too, so that tests of threads have some."""
    from cfuica.ops import runtime

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "FEW_ROWS", 0)
        yield
