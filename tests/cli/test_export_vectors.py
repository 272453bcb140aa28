from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, refused
from tests.runs.small import small_table
from tests.test_testing import MODELS


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS["RankingModel"]().fit(small_table()).save(tmp_path_factory.mktemp("m") / "model")


def test_vectors_are_written_and_checked(ranking: Path, tmp_path: Path) -> None:
    for form in ("parquet", "npy"):
        outcome = done("export", "vectors", ranking, "--out", tmp_path / "v", "--format", form)
        assert "for 100 users their top 10 are those of recommend." in outcome.err
        users, items = load(ranking).score_vectors()
        if form == "parquet":
            assert pl.read_parquet(tmp_path / "v" / "items.parquet").equals(items)
            continue
        found = np.load(tmp_path / "v" / "users.npy")
        assert found.dtype == np.float32
        assert np.array_equal(found, users["vector"].to_numpy())
        assert pl.read_csv(tmp_path / "v" / "users.csv")["user"].equals(users["user"])
        assert not (tmp_path / "v" / "users.parquet").exists()  # replaced as a whole


def test_a_rating_model_says_why_it_has_none(trained: Path, tmp_path: Path) -> None:
    message = refused("export", "vectors", trained, "--out", tmp_path / "v")
    assert "an expected rating is no inner product" in message
    assert not (tmp_path / "v").exists()


def test_other_files_are_not_replaced(ranking: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    assert "it has other files" in refused("export", "vectors", ranking, "--out", tmp_path)
    assert "it is a file" in refused("export", "vectors", ranking, "--out", tmp_path / "mine.txt")
    assert "it has other files" in refused("export", "vectors", ranking, "--out", ranking)
