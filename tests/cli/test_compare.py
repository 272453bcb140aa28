from __future__ import annotations

import json
from pathlib import Path

import pytest

import cfuica.models.recommender
from cfuica.data.split_tables import DataSplit
from tests.cli.harness import done, refused
from tests.runs.ranking_run import finished_run, ranker_of, tied_table


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two ranking runs."""
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    models = {"one": ranker_of(data_split, 0), "other": ranker_of(data_split, 1)}
    monkeypatch.setattr(cfuica.models.recommender, "load", lambda path: models[Path(path).name])
    return [finished_run(tmp_path / name, data_split).path for name in models]


def test_json_has_both_runs_and_their_difference(two: list[Path]) -> None:
    printed = json.loads(done("compare", *two, "--protocol", "paper", "--at", "1,5", "--json").out)
    assert printed["runs"] == list(map(str, two))
    assert printed["protocol"] == "paper"
    assert printed["users"] == 12
    assert set(printed["ndcg@5"]) == {"first", "second", "difference", "low", "high", "other_side"}
    assert "hr@10" not in printed


def test_people_get_a_table(two: list[Path]) -> None:
    text = done("compare", *two).out
    assert text.startswith("protocol full")
    assert "protocol full, 12 users, 95% intervals over users" in text
    assert "ndcg@10" in text


def test_rating_runs_are_compared_too(trained: Path, run_copy: Path) -> None:
    printed = json.loads(done("compare", trained, run_copy, "--json").out)
    assert printed["protocol"] is None
    assert printed["rmse"]["difference"] == printed["mae"]["difference"] == 0.0
    assert printed["rmse"]["first"] == pytest.approx(
        json.loads(done("evaluate", trained, "--json").out)["rmse"], rel=1e-5
    )


def test_what_cannot_be_compared_is_explained(two: list[Path], trained: Path) -> None:
    assert "There is no run folder" in refused("compare", two[0], two[0] / "nowhere")
    assert "compare their rankings with --protocol full" in refused("compare", two[0], trained)
    assert "--protocol best is not known" in refused("compare", *two, "--protocol", "best")
    assert "--at '0'" in refused("compare", *two, "--at", "0")
