from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.errors import DataError
from cfuica.evaluation.evaluate import evaluate_model, evaluate_table, task_of
from cfuica.evaluation.predictions import rating_errors, read_predictions
from cfuica.evaluation.protocols import RunVocabulary, ranking_test_for
from cfuica.metrics.ranking_metrics import Popularity, answer
from tests.runs.ranking_run import finished_run, movielens_parts, ranker_of, tied_table
from tests.runs.small import small_table


@pytest.mark.parametrize("protocol", ["full", "paper"])
def test_a_table_of_a_models_scores_is_measured_as_the_model(tmp_path: Path, protocol: str) -> None:
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    run, model = finished_run(tmp_path / "run", data_split), ranker_of(data_split)
    by_model = evaluate_model(run, model, protocol=protocol, cutoffs=(1, 5))
    scores = model.scorer(None).scores(np.arange(12))
    table = pl.DataFrame(
        {
            "user": np.repeat(model.users.ids.to_numpy(), 33),
            "item": np.tile(model.items.ids.to_numpy(), 12),
            "score": scores.ravel(),
        }
    )
    table.write_parquet(tmp_path / "theirs.parquet")
    theirs = read_predictions(tmp_path / "theirs.parquet")
    by_table = evaluate_table(run, theirs, protocol=protocol, cutoffs=(1, 5))
    assert by_table.notes == ()
    assert by_model.intervals["hr@5"].low is not None
    if protocol == "full":  # a resample of the users covers less
        assert by_model.intervals["coverage@5"].low is None
    assert by_table.intervals == by_model.intervals
    assert list(by_model.as_json())[:3] == ["protocol", "users", "seconds"]
    assert by_model.as_json()["users"] == 12
    hr = by_model.as_json()["hr@5"]
    assert hr["low"] <= hr["value"] <= hr["high"]


def test_a_table_of_other_ids_is_refused(tmp_path: Path) -> None:
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    run = finished_run(tmp_path / "run", data_split)
    (tmp_path / "theirs.csv").write_text("user,item,score\nu1,3,5\n1,i3,5\n")
    theirs = read_predictions(tmp_path / "theirs.csv")
    message = r"no row of a user and an item .* user 'u1' and item '3', .* users such as 1 and"
    with pytest.raises(DataError, match=message):
        evaluate_table(run, theirs, protocol="full")


def test_a_model_is_conditioned_on_what_other_protocols_test(tmp_path: Path) -> None:
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    run, model = finished_run(tmp_path / "run", data_split), ranker_of(data_split)
    evaluate_model(run, model, protocol="paper")
    assert data_split.test is not None
    assert model.extra is not None
    assert model.extra.n == data_split.test.frame.filter(~pl.col("paper")).height > 0


def test_predicted_ratings_are_matched_by_pair(tmp_path: Path) -> None:
    test = small_table().take(np.arange(50))
    theirs = test.frame.select("user", "item", prediction=pl.col("rating") + 0.5)
    shuffled = pl.concat(
        [theirs.reverse(), theirs.head(1).with_columns(user=pl.lit(10_000, pl.Int64))]
    )
    shuffled.write_csv(tmp_path / "theirs.csv")
    predictions = read_predictions(tmp_path / "theirs.csv")
    errors = rating_errors(predictions, test)
    assert errors.metrics == pytest.approx({"rmse": 0.5, "mae": 0.5})
    assert errors.pairs.height == 50
    theirs.tail(48).write_csv(tmp_path / "theirs.csv")
    with pytest.raises(DataError, match=r"no prediction for 2 of 50 .* predict all of them"):
        rating_errors(read_predictions(tmp_path / "theirs.csv"), test)


def test_the_task_of_a_run_is_found_without_its_model(tmp_path: Path) -> None:
    data_split = DataSplit.leave_one_out(tied_table())
    assert task_of(finished_run(tmp_path / "a", data_split)) == "ranking"
    run = finished_run(tmp_path / "b", data_split)
    run.write_record({"split": data_split.description})
    assert task_of(run) == "rating"
    (run.model / "model.json").write_text('{"task": "ranking"}')
    assert task_of(run) == "ranking"


def test_movielens_is_ranked_in_full(tmp_path: Path) -> None:
    data_split = movielens_parts()
    run, model = finished_run(tmp_path / "run", data_split), ranker_of(data_split)
    run_vocabulary = RunVocabulary.of_model(model)
    ranking_test, extra = ranking_test_for("full", run, run_vocabulary)
    popularity = Popularity.of(run_vocabulary.seen, run_vocabulary.items.size)
    scorer = model.scorer(extra)
    result = answer(ranking_test, scorer, (5, 10, 20), popularity=popularity)
    assert ranking_test.n_users == 6040
    # Random scores: the test item is anywhere among the unseen ones.
    assert result.value("auc") == pytest.approx(0.5, abs=0.02)
    assert result.value("hr@20") == pytest.approx(20 / 3541, abs=0.004)
    assert result.value("coverage@20") > 0.99
