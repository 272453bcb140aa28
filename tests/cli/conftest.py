"""Files and runs that the commands' tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.harness import done
from tests.cli.stand_in import model  # noqa: F401
from tests.runs.small import SET_TINY, small_table


@pytest.fixture(scope="session")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small world as a CSV file."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    small_table().frame.write_csv(path)
    return path


@pytest.fixture(scope="session")
def trained(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; look, do not touch."""
    path = tmp_path_factory.mktemp("runs") / "trained"
    done("train", ratings, "--out", path, *SET_TINY)
    return path


@pytest.fixture
def run_copy(trained: Path, tmp_path: Path) -> Path:
    """A finished run to do anything to."""
    return Path(shutil.copytree(trained, tmp_path / "run"))
