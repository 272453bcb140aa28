"""Files and runs that the commands' tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cfuica.models.co_autoregressive import RatingModel
from tests.cli.harness import done
from tests.cli.stand_in import model  # noqa: F401
from tests.runs.small import SET_TINY, TINY, small_table


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


@pytest.fixture(scope="session")
def titled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with titles and genres, and a cold-start network; look, do not touch."""
    settings = TINY.replaced(max_steps=4, cold_start_units=4, length_normalisation=1)
    model_of_it = RatingModel(settings).fit(small_table())
    return model_of_it.save(tmp_path_factory.mktemp("models") / "titled")


@pytest.fixture
def run_copy(trained: Path, tmp_path: Path) -> Path:
    """A finished run to do anything to."""
    return Path(shutil.copytree(trained, tmp_path / "run"))
