"""What all tests share. Real data is found here and nowhere else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"

# A shell that starts the tests in the background has them ignore Ctrl-C, and so all they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def find_data(name: str) -> Path:
    """The path of a file or folder of real data; skips the test where it is absent."""
    home = Path(os.environ.get("CFUICA_DATA") or _DEFAULT)
    path = home / name
    if not path.exists():
        pytest.skip(f"needs {name}, which is not under {home} (set CFUICA_DATA)")
    return path


@pytest.fixture(scope="session")
def data_path() -> Callable[[str], Path]:
    """`data_path("ml-1m/ml-1m.zip")`: see `find_data`."""
    return find_data
