"""Splits of one's own for rankings, ranking metrics of rating runs, users, warm and cold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, refused
from tests.cli.test_ranking_run import RANKING, evaluated
from tests.runs.ranking_run import tied_table


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Interactions of 12 users, without ratings: two for each user's test, one to validate on."""
    home = tmp_path_factory.mktemp("own")
    frame = (
        tied_table()
        .frame.drop("rating")
        .with_columns(place=pl.int_range(pl.len(), 0, -1).over("user"))
    )
    sets = {
        "train": frame.filter(pl.col("place") > 3),
        "valid": frame.filter(pl.col("place") == 3),
        "test": frame.filter(pl.col("place") < 3),
        "whole": frame,
    }
    for name, own in sets.items():
        own.drop("place").write_csv(home / f"{name}.csv")
    return {name: home / f"{name}.csv" for name in sets}


@pytest.fixture(scope="module")
def given(files: dict[str, Path]) -> Path:
    """A run of three files; look, do not touch."""
    run = files["train"].with_name("given")
    sets = (word for name in ("train", "valid", "test") for word in (f"--{name}", files[name]))
    done("train", *sets, "--out", run, *RANKING)
    return run


def record(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text("utf-8"))
    return found


def test_three_files_are_a_split_for_rankings(given: Path, files: dict[str, Path]) -> None:
    data = record(given)["data"]
    assert (data["valid"], data["test"]) == (12, 24)
    found = evaluated(given, "--at", "5")
    assert (found["protocol"], found["users"]) == ("given", 12)
    model: Any = load(given)
    by_python = model.evaluate(pl.read_csv(files["test"]), at=(5,)).as_json()
    by_file = evaluated(given, "--at", "5", "--test", files["test"])
    by_python.pop("seconds")
    assert by_python == found
    assert by_file == found
    top = model.recommend(model.users.ids, 5)
    hits = top.join(pl.read_csv(files["test"]), on=["user", "item"])
    assert found["recall@5"]["value"] == pytest.approx(hits.height / 24)


def test_the_model_is_conditioned_on_the_validation_file(
    given: Path, files: dict[str, Path]
) -> None:
    valid = pl.read_csv(files["valid"])
    top = load(given).recommend(1, 100)["item"]
    assert valid.filter(pl.col("user") == 1)["item"][0] not in top.to_list()


@pytest.mark.parametrize("kind", ["random", "users"])
def test_other_splits_are_tested_too(kind: str, files: dict[str, Path], tmp_path: Path) -> None:
    options = ("--test-share", "0.25") if kind == "users" else ("--folds", "5")
    run = tmp_path / "run"
    done("train", files["whole"], "--out", run, "--split", kind, *options, *RANKING)
    found = evaluated(run, "--at", "5")
    assert found["protocol"] == kind
    assert found == evaluated(run, "--at", "5", "--protocol", "full")
    test = pl.read_parquet(run / "test.parquet")
    model = load(run)
    if kind == "users":
        assert found["users"] == 3
        model.observe(test.filter(~pl.col("users")).select("user", "item", "timestamp"))
        test = test.filter("users")
    top = model.recommend(test["user"].unique(), 5)
    hits = top.join(test, on=["user", "item"]).group_by("user").len()
    relevant = test.group_by("user").len().join(hits, on="user", how="left", suffix="_found")
    recall = (relevant["len_found"].fill_null(0) / relevant["len"]).mean()
    assert found["recall@5"]["value"] == pytest.approx(recall)
    again = json.loads(done("compare", run, run, "--json", "--at", "5").out)
    assert (again["protocol"], again["ndcg@5"]["difference"]) == (kind, 0.0)
    best = test.select("user", "item").with_columns(score=1.0)
    best.write_csv(tmp_path / "theirs.csv")
    theirs = evaluated(run, "--predictions", tmp_path / "theirs.csv", "--at", "30")
    assert (theirs["protocol"], theirs["recall@30"]["value"]) == (kind, 1.0)


@pytest.fixture(scope="module")
def rating_runs(files: dict[str, Path]) -> dict[str, Path]:
    """Runs that predict ratings, by their split."""
    path = files["whole"].with_name("rated.csv")
    tied_table().frame.with_columns(rating=1.0 + pl.col("item") % 5).write_csv(path)
    small = (
        "hidden_users=4",
        "hidden_items=4",
        "ensemble_size=1",
        "cold_start_units=4",
        "max_steps=2",
    )
    words = [word for each in small for word in ("--set", each)]
    runs = {}
    for kind in ("random", "leave-one-out", "users"):
        share = ("--test-share", "0.25") if kind == "users" else ()
        runs[kind] = path.with_name(f"rating-{kind}")
        done("train", path, "--out", runs[kind], "--split", kind, *share, *words)
    return runs


@pytest.mark.parametrize(
    ("kind", "protocol", "users"),
    [
        ("random", "full", 12),
        ("leave-one-out", "full", 12),
        ("leave-one-out", "paper", 12),
        ("users", "users", 3),
    ],
)
def test_runs_that_predict_ratings_are_ranked(
    rating_runs: dict[str, Path], kind: str, protocol: str, users: int
) -> None:
    run = rating_runs[kind]
    found = evaluated(run, "--protocol", protocol, "--at", "5")
    assert found["protocol"] == (kind if kind != "leave-one-out" else protocol)
    assert found["users"] <= users
    other = evaluated(run, "--protocol", protocol, "--at", "5", "--by", "expected")
    assert other["auc"] != found["auc"]
    if protocol == "full" and kind == "leave-one-out":
        model = load(run)
        test = pl.read_parquet(run / "test.parquet")
        model.observe(test.filter(~pl.col("full")).select("user", "item", "rating"))
        top = model.recommend(model.users.ids, 5)
        hits = top.join(test.filter("full"), on=["user", "item"]).height
        assert found["hr@5"]["value"] == pytest.approx(hits / 12)
        scores = json.loads(done("evaluate", run, "--json").out)
        assert scores["n"] == 12 < test.height


def test_a_file_is_ranked_by_a_rating_run(rating_runs: dict[str, Path], tmp_path: Path) -> None:
    pl.DataFrame({"user": [77, 78], "item": [1, 99]}).write_csv(tmp_path / "test.csv")
    outcome = done(
        "evaluate", rating_runs["random"], "--test", tmp_path / "test.csv",
        "--protocol", "full", "--json", "--at", "1000",
    )  # fmt: skip
    found = json.loads(outcome.out)
    assert (found["protocol"], found["users"]) == ("given", 2)
    assert "hr@31" in found
    assert "2 of 2 test users and 1 test items are unknown to the model" in outcome.err
    assert "The catalogue has 31 items, so the cut-off 1000 is lowered to it." in outcome.err


def test_metrics_of_each_user_go_to_a_file(
    given: Path, rating_runs: dict[str, Path], tmp_path: Path
) -> None:
    found = evaluated(given, "--per-user", tmp_path / "users.csv")
    rows = pl.read_csv(tmp_path / "users.csv")
    assert rows.columns[:2] == ["user", "n"]
    assert (rows.height, rows["n"].sum()) == (12, 24)
    for name in ("ndcg@10", "auc", "novelty@5"):
        assert rows[name].mean() == pytest.approx(found[name]["value"])
    rating = rating_runs["random"]
    scores = json.loads(
        done("evaluate", rating, "--json", "--per-user", tmp_path / "users.parquet").out
    )
    rows = pl.read_parquet(tmp_path / "users.parquet")
    assert rows.columns == ["user", "n", "rmse", "mae", "nll"]
    assert (rows["n"] * rows["mae"]).sum() / rows["n"].sum() == pytest.approx(scores["mae"])
    message = refused("evaluate", given, "--per-user", tmp_path / "users.txt")
    assert "users.txt does not end in .csv" in message
    assert "is a place of" in refused("evaluate", given, "--per-user", given / "run.json")


def test_warm_and_cold_are_told_apart(given: Path, rating_runs: dict[str, Path]) -> None:
    found = evaluated(given, "--cold", "1000", "--at", "5")["warm_and_cold"]
    assert found["users"]["warm"] == found["items"]["warm"] == {"n": 0}
    assert (found["users"]["cold"]["n"], found["items"]["cold"]["n"]) == (12, 24)
    assert found["items"]["cold"]["ndcg@5"] == pytest.approx(found["users"]["cold"]["ndcg@5"])
    text = done("evaluate", given, "--cold", "20", "--at", "5").out
    assert "warm users" in text
    assert "cold items" in text
    rating = rating_runs["users"]
    scores = json.loads(done("evaluate", rating, "--cold", "1", "--json").out)
    cold = scores["warm_and_cold"]["users"]["cold"]
    assert cold["n"] == scores["n"]
    assert cold["rmse"] == pytest.approx(scores["rmse"])
    assert "warm users" in done("evaluate", rating, "--cold", "1").out


def test_files_that_make_no_split_are_explained(files: dict[str, Path], tmp_path: Path) -> None:
    def sentence(*words: object) -> str:
        return refused("train", *words, "--out", tmp_path / "run", *RANKING)

    train, valid, test = (files[name] for name in ("train", "valid", "test"))
    assert "belong together" in sentence("--train", train, "--valid", valid)
    shared = sentence("--train", train, "--test", test, "--valid", test)
    assert "24 (user, item) pairs of" in shared
    assert "nowhere.csv" in sentence("--train", train, "--test", test, "--valid", "nowhere.csv")
    assert not (tmp_path / "run").exists()
