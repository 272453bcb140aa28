"""Which interaction is the last one, for each protocol."""

from __future__ import annotations

import polars as pl

from cfuica.data.splits import Split, other_test_rows, paper_rows
from cfuica.data.table import Interactions
from tests.runs.ranking_run import movielens_parts, tied_table


def test_the_papers_last_interaction_is_a_last_one_in_time_of_each_user():
    table = tied_table()
    rows = paper_rows(table)
    chosen = table.frame[rows]
    assert chosen["user"].to_list() == sorted(set(table.frame["user"].to_list()))
    latest = table.frame.group_by("user").agg(pl.col("timestamp").max()).sort("user")
    assert chosen["timestamp"].to_list() == latest["timestamp"].to_list()
    stable = Split.leave_one_out(
        table.users.encode(table.frame["user"]), table.frame["timestamp"].to_numpy()
    ).test
    assert (rows != stable).any()


def test_users_may_be_anywhere_in_the_file():
    # Below 17 interactions the order is stable: the later row.
    frame = pl.DataFrame(
        {"user": ["b", "a", "b", "a", "b"], "item": [1, 2, 3, 4, 5], "timestamp": [7, 3, 9, 1, 9]}
    )
    assert paper_rows(Interactions(frame)).tolist() == [1, 4]


def test_without_times_there_is_the_order_of_the_file_alone():
    table = tied_table()
    assert other_test_rows(Interactions(table.frame.drop("timestamp"))) == {}
    assert list(other_test_rows(table)) == ["paper"]


def test_on_movielens_a_quarter_of_the_users_have_another_last_item():
    data_split = movielens_parts()
    assert data_split.test is not None
    test = data_split.test.frame
    assert data_split.description["protocols"] == {"full": 6040, "paper": 6040, "ncf": 6040}
    by_user = test.sort("user")
    # np.argsort of numpy 1.23.5 on this data: 1,547 of 6,040, 25.6%, are not the stable last.
    assert by_user.filter("paper", ~pl.col("full")).height == 1547
    assert by_user.filter("ncf", ~pl.col("full")).height == 1667
    assert test.height == 8554
    trained = (
        pl.concat([data_split.train.frame, data_split.valid.frame]) if data_split.valid else None
    )
    assert trained is not None
    assert trained.height + test.height == data_split.whole.n
    assert (test["full"] | test["paper"] | test["ncf"]).all()
