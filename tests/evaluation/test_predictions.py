"""Tables of somebody else's predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.layout import ReadOptions
from cfuica.data.split_tables import DataSplit
from cfuica.errors import DataError
from cfuica.evaluation.predictions import TableScorer, read_predictions
from cfuica.evaluation.protocols import RunVocabulary, ranking_test_for
from tests.runs.ranking_run import finished_run, ranker_of, tied_table


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "theirs.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["score", "rating", "prediction"])
def test_a_third_column_is_known_by_its_name(tmp_path, name):
    path = written(tmp_path, f"user,item,{name}\n1,2,0.5\n1,3,-7\n")
    assert read_predictions(path).frame.rows() == [(1, 2, 0.5), (1, 3, -7.0)]


def test_a_rank_counts_downwards(tmp_path):
    path = written(tmp_path, "user,rank,item\n1,2,7\n1,1,8\n")
    assert read_predictions(path).frame.rows() == [(1, 7, -2.0), (1, 8, -1.0)]
    with_score = written(tmp_path, "user,rank,item,score\n1,1,8,0.25\n")
    assert read_predictions(with_score).frame.rows() == [(1, 8, 0.25)]


def test_columns_can_be_told_and_there_may_be_no_header(tmp_path):
    path = written(tmp_path, "user,item,likes\n1,2,3\n")
    assert read_predictions(path, ReadOptions(rating="likes")).frame.rows() == [(1, 2, 3.0)]
    assert read_predictions(written(tmp_path, "1\t2\t3\n")).frame.rows() == [(1, 2, 3.0)]
    frame = pl.DataFrame({"user": ["a"], "item": ["b"], "rank": [4]})
    frame.write_parquet(tmp_path / "theirs.parquet")
    assert read_predictions(tmp_path / "theirs.parquet").frame.rows() == [("a", "b", -4.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "user,item,x\n1,2,3\n",
            r"theirs.csv.*predictions need the columns user, item and a score",
        ),
        ("user,score\n1,2\n", "predictions need the columns user, item and a score"),
        ("user,item\n1,2\n", "predictions need the columns user, item and a score"),
        ("1,2\n1,3\n", "predictions need the columns user, item and a score"),
        ("user item score\n1 2 3\n", "at least user and item and rating were expected"),
        ("user,item,score\n1,2,3\n1,2,4\n", "more than one prediction for user 1 and item 2"),
        ("user,item,score\n1,2,x\n", r"line 2, has 'x' in column 3"),
        ("user,item,score\n1,2,nan\n", r"line 2, has 'nan' in column 3"),
        ("user,item,rank\n1,2,0\n", "has the rank 0, but ranks count from 1"),
        ("user,item,score\n", "no interactions"),
    ],
)
def test_a_table_that_is_none_of_predictions_is_explained(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_predictions(written(tmp_path, text))


@pytest.fixture
def run_vocabulary() -> RunVocabulary:
    return RunVocabulary.of_model(ranker_of(DataSplit.leave_one_out(tied_table(), protocols=True)))


def test_scores_keep_their_order_however_close_they_are(tmp_path, run_vocabulary):
    # As float32 these would be equal, or infinite.
    close = "user,item,score\n1,1,1.0\n1,2,1.00000000001\n1,3,1e300\n1,4,1.0\n2,1,-5\n99,1,1\n"
    scorer = TableScorer.of(read_predictions(written(tmp_path, close)), run_vocabulary)
    scores = scorer.scores(np.array([1, 0], np.int32))
    assert scores.dtype == np.float32
    assert scores.shape == (2, 33)
    one = scores[1, :4]
    assert one[0] == one[3] < one[1] < one[2] < np.inf
    assert np.isneginf(scores[1, 4:]).all()
    assert np.isneginf(scores[0, 1:]).all()
    assert np.isfinite(scores[0, 0])
    assert scorer.left_out == 1
    some = scorer.candidate_scores(np.array([0], np.int32), np.array([[2, 30, 0]], np.int32))
    assert some.tolist() == [[scores[1, 2], -np.inf, scores[1, 0]]]


@pytest.mark.parametrize("protocol", ["full", "paper"])
def test_what_is_missing_is_counted(tmp_path, protocol):
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    run, run_vocabulary = (
        finished_run(tmp_path / "run", data_split),
        RunVocabulary.of_model(ranker_of(data_split)),
    )
    ranking_test, _ = ranking_test_for(protocol, run, run_vocabulary)
    every = pl.DataFrame({"user": range(1, 13)}).join(
        pl.DataFrame({"item": range(1, 34), "score": np.arange(33.0)}), how="cross"
    )
    every.write_csv(tmp_path / "theirs.csv")
    whole = TableScorer.of(read_predictions(tmp_path / "theirs.csv"), run_vocabulary)
    assert whole.notes(ranking_test, "x.csv") == ()
    every.filter(pl.col("user") != 3).write_csv(tmp_path / "theirs.csv")
    fewer = TableScorer.of(read_predictions(tmp_path / "theirs.csv"), run_vocabulary)
    users, missing = fewer.notes(ranking_test, "x.csv")
    assert users == "1 of 12 users have no row in x.csv: they count as misses."
    assert missing.endswith("and ties count against the system.")
    unscored, total = (int(missing.split()[at].replace(",", "")) for at in (0, 2))
    done = data_split.whole.n
    if protocol == "full":
        # All of 30 that are not done, and the test item.
        assert total == 12 * 30 - done + 12
        assert unscored == 30 - data_split.whole.frame.filter(pl.col("user") == 3).height + 1
    else:
        assert total == 10 * (12 * 33 - done + 12)
        assert unscored == 10 * (33 - data_split.whole.frame.filter(pl.col("user") == 3).height + 1)
