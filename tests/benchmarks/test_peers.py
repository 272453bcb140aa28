"""The files that systems of other libraries get, and how their answers are scored."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.evaluation.evaluate import evaluate_table
from cfuica.evaluation.predictions import TableScorer, rating_errors
from cfuica.evaluation.protocols import RunVocabulary, ranking_test_for
from cfuica.evaluation.rating_errors import rating_test
from cfuica.reproduction.systems import BIAS
from cfuica.run_folder import RunFolder
from tests.reproduction.measured import plan_in
from tests.runs.ranking_run import tied_table

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A file of `benchmarks/peers/` by name."""
    monkeypatch.syspath_prepend(str(PEERS))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("options", "name"),
    [([], "myfm"), (["--dates"], "myfm-dates"), (["--rank", "8"], "myfm-rank-8")],
)
def test_a_reproduction_finds_the_results_by_the_names_of_their_folders(
    options: list[str], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder_name = imported("run", monkeypatch).folder_name("myfm", "demo-fold-1", options)
    folder = tmp_path / "peers" / folder_name
    folder.mkdir(parents=True)
    (folder / "predicted-rating.parquet").touch()
    used = {"title": "myFM", "seconds": 1.0, "cpu_seconds": 1.0, "peak_gb": 1.0}
    (folder / "result.json").write_text(json.dumps(used))
    (row,) = plan_in(tmp_path).peers(BIAS)
    assert (row.name, len(row.cells)) == (name, 1)
    assert row.cells[0].questions.keys() == {"ratings"}


def data_file(folder: Path) -> Path:
    frame = tied_table().frame.with_columns(rating=1.0 + pl.col("item") % 5)
    frame.write_csv(folder / "data.csv")
    return folder / "data.csv"


def files(folder: Path) -> dict[str, pl.DataFrame]:
    return {path.stem: pl.read_parquet(path) for path in folder.glob("*.parquet")}


def in_time(table: Interactions) -> pl.DataFrame:
    return table.frame.sort("timestamp", maintain_order=True)


def test_the_files_of_ratings_are_our_split_without_the_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = data_file(tmp_path)
    imported("split", monkeypatch).write_split(str(data), "rating", 2, tmp_path)
    ours = DataSplit.random(Interactions.read(data), folds=10, fold=2, valid=0.05, seed=0)
    found, run = files(tmp_path), RunFolder.open(tmp_path / "run")
    assert ours.valid is not None
    assert ours.test is not None
    assert_frame_equal(found["train"], in_time(ours.train))
    assert_frame_equal(found["valid"], in_time(ours.valid))
    assert_frame_equal(found["asked-rating"], ours.test.frame.drop("rating"))
    assert run.read_record()["split"] == ours.description
    answers = found["asked-rating"].with_columns(rating=1.0 + pl.col("item") % 5)
    assert rating_errors(Interactions(answers), rating_test(run)).metrics["rmse"] == 0


def test_the_files_of_rankings_ask_for_all_that_is_tested_and_have_all_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = data_file(tmp_path)
    imported("split", monkeypatch).write_split(str(data), "ranking", None, tmp_path)
    ours = DataSplit.leave_one_out(Interactions.read(data), protocols=True)
    found, run = files(tmp_path), RunFolder.open(tmp_path / "run")
    assert ours.valid is not None
    assert ours.test is not None
    assert_frame_equal(found["train"], in_time(ours.train))
    assert_frame_equal(found["valid"], in_time(ours.valid))
    vocabulary = RunVocabulary.of_run(run)
    for protocol in ("full", "paper"):
        tested = ours.test.frame.filter(pl.col(protocol)).select("user", "item")
        rest = ours.whole.frame.join(tested, on=["user", "item"], how="anti", maintain_order="left")
        assert_frame_equal(found[f"seen-{protocol}"], in_time(Interactions(rest)))
        asked = found[f"asked-{protocol}"]
        assert asked["user"].unique().sort().to_list() == tested["user"].sort().to_list()
        perfect = tested.with_columns(rating=1.0)
        metrics = evaluate_table(run, Interactions(perfect), protocol=protocol).as_json()
        assert metrics["ndcg@5"]["value"] == 1
    pairs = Interactions(found["asked-paper"].with_columns(rating=0.0))
    test = ranking_test_for("paper", run, vocabulary)[0]
    assert TableScorer.of(pairs, vocabulary).notes(test, "answers") == ()
    # In an order that does not say which of them is tested.
    assert found["asked-paper"].select("user", "item").rows() == sorted(
        pairs.frame.drop("rating").rows()
    )


def test_a_system_is_timed_and_its_failure_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = imported("run", monkeypatch)
    used = run.measured([sys.executable, "-c", "bytearray(200_000_000)"])
    assert used.peak_gb > 0.2
    assert 0 < used.cpu_seconds < 30
    with pytest.raises(SystemExit, match="ended with code 3"):
        run.measured([sys.executable, "-c", "raise SystemExit(3)"])


def test_every_system_has_its_script_and_exact_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    systems = imported("run", monkeypatch).SYSTEMS
    assert {path.parent.name for path in PEERS.glob("*/predict.py")} == set(systems)
    for name in systems:
        lines = (PEERS / name / "requirements.txt").read_text("utf-8").splitlines()
        assert all("==" in line for line in lines if not line.startswith("#"))
