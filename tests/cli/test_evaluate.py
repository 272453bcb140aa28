from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

import cfuica.models.recommender
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.models.recommender import load
from tests.cli.harness import done, refused
from tests.runs.ranking_run import finished_run, ranker_of, tied_table


def test_json_is_all_that_standard_output_holds(trained: Path) -> None:
    outcome = done("evaluate", trained, "--json")
    scores = json.loads(outcome.out)
    assert list(scores) == [
        "rmse",
        "mae",
        "nll",
        "ece",
        "predicted_variance",
        "squared_error",
        "n",
        "seconds",
    ]
    assert scores["n"] == 220
    assert 0.5 < scores["rmse"] < 1.5
    assert 0 < scores["mae"] < scores["rmse"]
    assert scores["nll"] > 0
    assert 0 <= scores["ece"] <= 1
    assert scores["predicted_variance"] > 0
    assert scores["squared_error"] == pytest.approx(scores["rmse"] ** 2)
    assert scores["seconds"] > 0
    assert outcome.err == ""


def test_the_runs_own_test_set_is_what_is_scored(trained: Path) -> None:
    scores = json.loads(done("evaluate", trained, "--json").out)
    test = Interactions.from_frame(pl.read_parquet(trained / "test.parquet"))
    assert load(trained).evaluate(test).rmse == scores["rmse"]


def test_people_get_two_lines(trained: Path) -> None:
    lines = done("evaluate", trained).out
    assert re.fullmatch(
        r"RMSE \d\.\d{4}   MAE \d\.\d{4}   NLL \d\.\d{4}   \(220 ratings in .* s\)\n"
        r"expected calibration error 0\.\d{4}   predicted variance \d\.\d{4}   "
        r"squared error \d\.\d{4}\n",
        lines,
    )


def test_another_file_can_be_scored(trained: Path, ratings: Path) -> None:
    assert json.loads(done("evaluate", trained, "--test", ratings, "--json").out)["n"] == 2200


def test_a_model_folder_can_be_scored_on_a_file(trained: Path, ratings: Path) -> None:
    model = trained / "model"
    assert json.loads(done("evaluate", model, "--test", ratings, "--json").out)["n"] == 2200
    assert "--test FILE" in refused("evaluate", model)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("user,item,rating\n1,2,7\n", "test.csv is not on the label scale (1, 2, 3, 4, 5)"),
        ("user,item,rating\n1,2,x\n", "line 2, has 'x' in column 3 ('rating')"),
        ("user,item\n1,2\n", "has no ratings"),
        ("user,item,rating\n", "no interactions"),
    ],
)
def test_a_file_that_cannot_be_scored_is_explained(
    trained: Path, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "test.csv").write_text(content)
    assert message in refused("evaluate", trained, "--test", tmp_path / "test.csv", "--json")


def test_cold_start_users_are_scored_too(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("user,item,rating\n999,2,3\n1,none,3\n")
    scores = json.loads(done("evaluate", trained, "--test", tmp_path / "test.csv", "--json").out)
    assert scores["n"] == 2


def test_what_is_no_run_is_explained(tmp_path: Path, ratings: Path) -> None:
    assert "There is no run folder" in refused("evaluate", tmp_path / "nowhere")
    assert "There is no run folder" in refused("evaluate", ratings)
    assert f"There is no model in {tmp_path}" in refused("evaluate", tmp_path)


def test_a_damaged_test_set_is_named(run_copy: Path) -> None:
    (run_copy / "test.parquet").write_bytes(b"PAR1 and nothing more")
    assert "test.parquet is damaged" in refused("evaluate", run_copy)


def test_a_missing_test_file_is_named(trained: Path) -> None:
    assert "nowhere.csv cannot be read" in refused("evaluate", trained, "--test", "nowhere.csv")


@pytest.fixture
def ranking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ranking run."""
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    monkeypatch.setattr(cfuica.models.recommender, "load", lambda _: ranker_of(data_split))
    return finished_run(tmp_path / "ranking", data_split).path


def test_a_ranking_is_reported_with_intervals(ranking: Path) -> None:
    printed = json.loads(done("evaluate", ranking, "--protocol", "paper", "--json").out)
    assert list(printed)[:3] == ["protocol", "users", "seconds"]
    assert (printed["protocol"], printed["users"]) == ("paper", 12)
    for k in (5, 10, 20):
        for name in ("hr", "ndcg", "recall", "precision", "mrr", "map"):
            assert set(printed[f"{name}@{k}"]) == {"value", "low", "high"}
    assert printed["auc"]["low"] <= printed["auc"]["value"] <= printed["auc"]["high"]
    full = json.loads(done("evaluate", ranking, "--json", "--at", "1").out)
    assert full["protocol"] == "full"
    assert full["coverage@1"]["low"] is None
    assert full["novelty@1"]["low"] is not None
    assert "hr@5" not in full


def test_people_get_a_table_of_a_ranking(ranking: Path) -> None:
    text = done("evaluate", ranking, "--protocol", "full").out
    assert "Protocol full: 12 users in" in text
    assert "hr@10" in text


def test_another_systems_ranking_is_tested_without_the_model(
    ranking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cfuica.models.recommender, "load", lambda _: pytest.fail("was loaded"))
    test = pl.read_parquet(ranking / "test.parquet").filter("full")
    best = test.select("user", "item").with_columns(rank=1)
    best.head(11).write_csv(tmp_path / "theirs.csv")
    arguments = ("evaluate", ranking, "--protocol", "full", "--predictions")
    outcome = done(*arguments, tmp_path / "theirs.csv", "--json")
    printed = json.loads(outcome.out)
    assert printed["hr@5"]["value"] == pytest.approx(11 / 12)
    assert printed["mrr@5"]["value"] == pytest.approx(11 / 12)
    assert "1 of 12 users have no row" in outcome.err
    assert "candidates have no score" in outcome.err


def test_another_systems_ratings_are_tested(trained: Path, tmp_path: Path) -> None:
    test = pl.read_parquet(trained / "test.parquet")
    theirs = test.select("user", "item", rating=pl.col("rating") - 0.25)
    theirs.write_csv(tmp_path / "theirs.csv")
    arguments = ("evaluate", trained, "--predictions", tmp_path / "theirs.csv")
    printed = json.loads(done(*arguments, "--json").out)
    assert list(printed) == ["rmse", "mae", "n", "seconds"]
    assert (printed["rmse"], printed["mae"], printed["n"]) == (0.25, 0.25, 220)
    assert done(*arguments).out.startswith("RMSE 0.2500   MAE 0.2500   (220 ratings in ")


def test_options_that_do_not_fit_are_explained(ranking: Path, ratings: Path) -> None:
    def sentence(*options: object) -> str:
        return refused("evaluate", ranking, *options)

    assert "--protocol x is not known" in sentence("--protocol", "x")
    assert "--at 'a'" in sentence("--at", "a")
    assert "leave --test out" in sentence("--test", ratings, "--protocol", "paper")
    assert "leave --test out" in sentence("--test", ratings, "--predictions", ratings)
    assert "nowhere.csv cannot be read" in sentence("--predictions", "nowhere.csv")
    assert "need --test FILE" in sentence("--separator", ";")


def test_what_a_model_of_ratings_ranks_by_is_asked_of_a_ranking_only(trained: Path) -> None:
    assert "add --protocol full" in refused("evaluate", trained, "--by", "lower")
    assert "by is 'x'" in refused("evaluate", trained, "--by", "x", "--protocol", "full")


def test_unknown_ids_of_a_test_file_are_counted(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("user,item,rating\n3,5,4\n0003,5,4\n3,x7,2\n")
    outcome = done("evaluate", trained, "--test", tmp_path / "test.csv", "--json")
    assert "1 of 2 users is unknown to this model: '0003'; it knows" in outcome.err
    found = json.loads(outcome.out)
    assert (found["unknown_users"], found["unknown_items"], found["n"]) == (1, 1, 3)
