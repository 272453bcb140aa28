"""The tables of a run: every row is dealt once, and what was done can be proved afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.data.splits import Split
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.runs.inputs import save_inputs, saved_inputs
from tests.runs.ranking_run import tied_table
from tests.runs.small import TINY, small_table

PAIR = ["user", "item"]


def pairs_of(table: Interactions | None) -> set[tuple[int, int]]:
    return set() if table is None else set(table.frame.select(PAIR).iter_rows())


@pytest.mark.parametrize("valid", [0.0, 0.05, 0.9])
def test_a_random_split_deals_every_rating_once(valid: float) -> None:
    table = small_table()
    data_split = DataSplit.random(table, folds=10, fold=2, valid=valid, seed=0)
    dealt = [pairs_of(part) for part in (data_split.train, data_split.valid, data_split.test)]
    assert sum(map(len, dealt)) == table.n
    assert set.union(*dealt) == pairs_of(table)
    assert len(dealt[2]) == 220
    assert len(dealt[1]) == int(valid * 1980)
    assert data_split.whole is table


def test_the_split_is_recorded_so_that_it_can_be_proved() -> None:
    table = small_table()
    first, again, other = (
        DataSplit.random(table, folds=10, fold=2, valid=0.05, seed=seed).description
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first["sha256"] != other["sha256"]
    assert first["folds"] == 10


@pytest.mark.parametrize("valid", [0.0, 0.05, 0.3, 0.9])
def test_everything_means_all_but_the_share_to_validate_on(valid: float) -> None:
    table = small_table()
    data_split = DataSplit.everything(table, valid=valid, seed=0)
    assert data_split.test is None
    assert len(pairs_of(data_split.valid)) == int(valid * table.n)
    assert pairs_of(data_split.train) | pairs_of(data_split.valid) == pairs_of(table)
    assert data_split.train.n + len(pairs_of(data_split.valid)) == table.n


def test_few_ratings_can_be_trained_on_without_validation() -> None:
    frame = pl.DataFrame({"user": [1, 2, 2], "item": [1, 1, 2], "rating": [1.0, 2.0, 3.0]})
    data_split = DataSplit.everything(Interactions.from_frame(frame), valid=0.05, seed=0)
    assert data_split.train.n == 3
    assert data_split.valid is None


def given(train: pl.DataFrame, test: pl.DataFrame, valid: float = 0.1) -> DataSplit:
    tables = (Interactions.from_frame(frame) for frame in (train, test))
    return DataSplit.given(*tables, valid=valid, seed=0)


def test_a_given_split_spans_the_ids_and_ratings_of_both_files() -> None:
    train = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0]})
    test = pl.DataFrame({"user": [3], "item": [9], "rating": [5.0]})
    data_split = given(train, test, valid=0.0)
    assert data_split.whole.users.ids.to_list() == [1, 2, 3]
    assert data_split.whole.item_ids.ids.to_list() == [1, 2, 9]
    assert data_split.whole.scale.values == (1.0, 2.0, 5.0)
    assert pairs_of(data_split.test) == {(3, 9)}
    assert data_split.description["kind"] == "given"


def test_columns_that_only_one_file_has_do_no_harm() -> None:
    train = pl.DataFrame(
        {"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0], "timestamp": [1, 2, 3]}
    )
    test = pl.DataFrame({"user": [2], "item": [2], "rating": [1.0]})
    assert given(train, test).whole.n == 4


def test_files_that_share_a_pair_or_lack_ratings_are_refused() -> None:
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0]})
    with pytest.raises(DataError, match=r"1 \(user, item\) pairs"):
        given(frame, frame.head(1))
    with pytest.raises(DataError, match="has no ratings"):
        given(frame, pl.DataFrame({"user": [5], "item": [5]}))
    with pytest.raises(DataError, match=r"user ids are Int64 .* String"):
        given(frame, frame.head(1).with_columns(user=pl.lit("a")))


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int32, pl.UInt64])
def test_integers_of_any_width_are_the_same_ids(kind: type[pl.DataType]) -> None:
    wide = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0]})
    other = pl.DataFrame({"user": [2], "item": [2], "rating": [None]}).cast(
        {"user": kind, "item": kind, "rating": pl.Float64}
    )
    rated = other.with_columns(rating=pl.lit(1.0))
    for train, test in ((wide, rated), (rated, wide)):
        data_split = given(train, test)
        assert pairs_of(data_split.whole) == {(1, 1), (1, 2), (2, 1), (2, 2)}
        assert data_split.whole.users.size == 2
    assert data_split.widened([Interactions(other)]).whole.n == 4


def test_integers_that_no_type_has_in_common_are_refused() -> None:
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1.0, 2.0]})
    large = pl.DataFrame({"user": [2**64 - 1], "item": [1], "rating": [1.0]})
    with pytest.raises(DataError, match=r"user ids are Int64 .* UInt64 .* not all of them"):
        given(frame, large.cast({"user": pl.UInt64}))


def table_of(rows: list[tuple[int, int, int]]) -> Interactions:
    """Of (user, item, timestamp)."""
    users, items, times = zip(*rows, strict=True)
    return Interactions.from_frame(
        {"user": users, "item": items, "rating": [1.0] * len(rows), "timestamp": times}
    )


def test_leave_one_out_tests_on_the_last_and_validates_on_the_one_before() -> None:
    table = table_of([(7, 1, 30), (7, 2, 10), (7, 3, 20), (9, 1, 5), (9, 4, 4), (8, 1, 1)])
    data_split = DataSplit.leave_one_out(table)
    assert pairs_of(data_split.test) == {(7, 1), (9, 1)}
    assert pairs_of(data_split.valid) == {(7, 3)}
    assert pairs_of(data_split.train) == {(7, 2), (9, 4), (8, 1)}
    assert data_split.description["kind"] == "leave-one-out"
    assert data_split.description["order"] == "time"
    assert "later row" in data_split.description["ties"]


def test_without_timestamps_the_order_of_the_file_is_that_of_time_and_is_said_to_be() -> None:
    frame = pl.DataFrame({"user": [1, 1, 1], "item": [3, 1, 2], "rating": [1.0, 2.0, 3.0]})
    data_split = DataSplit.leave_one_out(Interactions.from_frame(frame))
    assert (pairs_of(data_split.test), pairs_of(data_split.valid)) == ({(1, 2)}, {(1, 1)})
    assert data_split.description["order"] == "file"
    assert data_split.notes[0].startswith("a frame has no timestamps: the order of its rows")


def test_a_date_separates_earlier_from_later_interactions() -> None:
    table = table_of([(1, 1, 100), (1, 2, 300), (2, 1, 200), (2, 3, 150), (3, 3, 300)])
    data_split = DataSplit.by_date(table, test_from=200, valid=0.5)
    assert pairs_of(data_split.test) == {(1, 2), (2, 1), (3, 3)}
    assert pairs_of(data_split.valid) == {(2, 3)}
    assert pairs_of(data_split.train) == {(1, 1)}
    assert data_split.description["test_from"] == "1970-01-01T00:03:20Z"
    assert "test_share" not in data_split.description
    # By share the border is found, and named.
    data_split = DataSplit.by_date(table, test_share=0.3, valid=0.0)
    assert data_split.description["test_from"] == "1970-01-01T00:05:00Z"
    assert data_split.description["test_share"] == 0.3
    assert pairs_of(data_split.test) == {(1, 2), (3, 3)}


def test_a_split_by_date_needs_dates() -> None:
    table = Interactions.from_frame({"user": [1, 2], "item": [1, 2], "rating": [1.0, 2.0]})
    with pytest.raises(DataError, match="a frame has no timestamps, but a split by date"):
        DataSplit.by_date(table, valid=0.0)


def test_cold_start_users_are_tested_whole_and_keep_their_place_on_the_axis() -> None:
    table = small_table()
    data_split = DataSplit.cold_start(table, test_share=0.2, valid=0.1, seed=3)
    assert data_split.test is not None
    cold_start = set(data_split.test.frame["user"])
    assert len(cold_start) == 20
    assert cold_start.isdisjoint(data_split.train.frame["user"])
    assert cold_start.isdisjoint(data_split.valid.frame["user"])
    assert data_split.whole.users.size == 100
    assert data_split.description["cold_users"] == 20


def test_cold_start_ids_of_the_test_set_are_counted_and_stay() -> None:
    table = table_of([(1, 1, 1), (1, 2, 2), (2, 1, 3), (3, 2, 9), (3, 7, 9), (1, 8, 9)])
    data_split = DataSplit.by_date(table, test_from=9, valid=0.0)
    assert data_split.test.n == 3
    assert (data_split.description["cold_users"], data_split.description["cold_items"]) == (1, 2)
    assert data_split.notes == (
        "1 users and 2 items of the test set have no interaction in the training set; they stay "
        "in the test.",
    )
    # What only validation saw was not trained on.
    data_split = DataSplit.by_date(table, test_from=9, valid=0.4)
    assert (pairs_of(data_split.valid), data_split.description["cold_users"]) == ({(2, 1)}, 1)
    all_rows = table_of([(1, 1, 1), (1, 2, 2), (2, 2, 2), (2, 1, 9)])
    data_split = DataSplit.by_date(all_rows, test_from=9, valid=0.0)
    assert (
        data_split.description["cold_users"],
        data_split.description["cold_items"],
        data_split.notes,
    ) == (0, 0, ())


def test_a_split_made_elsewhere_has_its_cold_counted_too() -> None:
    train = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0]})
    test = pl.DataFrame({"user": [3, 2], "item": [9, 2], "rating": [5.0, 1.0]})
    description = given(train, test, valid=0.0).description
    assert (description["cold_users"], description["cold_items"]) == (1, 1)


def test_every_split_records_its_hash() -> None:
    table = small_table()
    users = table.users.encode(table.frame["user"])
    times = table.frame["timestamp"].to_numpy()
    assert (
        DataSplit.leave_one_out(table).description["sha256"]
        == Split.leave_one_out(users, times).sha256()
    )
    border = int(np.median(times))
    assert (
        DataSplit.by_date(table, test_from=border, valid=0.05).description["sha256"]
        == Split.by_date(times, test_from=border).sha256()
    )
    assert (
        DataSplit.cold_start(table, test_share=0.1, valid=0.05, seed=4).description["sha256"]
        == Split.cold_start(users, seed=4).sha256()
    )


def test_given_files_span_the_ids_of_interactions_without_a_rating() -> None:
    options = {"no_rating": (0.0,)}
    train, test = (
        Interactions.from_frame(
            {"user": users, "item": items, "rating": ratings, "timestamp": times}, **options
        )
        for users, items, ratings, times in (
            ([1, 1, 2, 9], [1, 2, 1, 1], [1.0, 2.0, 2.0, 0.0], [1, 2, 3, 4]),
            ([2, 1], [2, 1], [1.0, 0.0], [5, 6]),
        )
    )
    data_split = DataSplit.given(train.rated(), test.rated(), valid=0.0, seed=0).widened(
        [train, test]
    )
    assert data_split.whole.users.ids.to_list() == [1, 2, 9]
    assert data_split.whole.n == 5
    assert data_split.whole.rated().n == 4
    assert data_split.train.n == 3


def test_what_any_protocol_tests_is_neither_trained_nor_validated_on() -> None:
    table = tied_table()
    plain, wide = DataSplit.leave_one_out(table), DataSplit.leave_one_out(table, protocols=True)
    assert plain.test is not None
    assert wide.test is not None
    assert "full" not in plain.test.frame.columns
    by_full = wide.test.frame.filter("full").drop("full", "paper")
    assert by_full.equals(plain.test.frame)
    assert wide.test.frame.filter("paper").height == 12
    assert wide.test.n > 12
    assert wide.description["protocols"] == {"full": 12, "paper": 12}
    dealt = [pairs_of(part) for part in (wide.train, wide.valid, wide.test)]
    assert sum(map(len, dealt)) == table.n
    assert set.union(*dealt) == pairs_of(table)
    assert len(dealt[1]) == 12
    told = f"{wide.test.n} interactions are set aside for the test, so that it can be by protocol "
    assert any(f"{told}full or paper:" in note for note in wide.notes)


def test_nothing_is_said_of_protocols_that_test_the_same() -> None:
    frame = tied_table().frame.with_columns(timestamp=pl.int_range(pl.len()))
    data_split = DataSplit.leave_one_out(Interactions(frame), protocols=True)
    assert data_split.description["protocols"] == {"full": 12, "paper": 12}
    assert data_split.notes == ()


def test_without_times_the_protocol_is_full_alone() -> None:
    table = Interactions(tied_table().frame.drop("timestamp"))
    data_split = DataSplit.leave_one_out(table, protocols=True)
    assert data_split.description["protocols"] == {"full": 12}
    assert data_split.test is not None
    assert data_split.test.frame["full"].all()
    (note,) = data_split.notes
    assert "no timestamps" in note


def test_the_protocols_survive_a_resumed_run(tmp_path: Path) -> None:
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    save_inputs(tmp_path / "inputs", data_split, TINY)
    again, _ = saved_inputs(tmp_path / "inputs")
    assert data_split.test is not None
    assert again.test is not None
    assert again.test.frame.equals(data_split.test.frame)
    assert again.whole.n == data_split.whole.n


def test_a_given_split_may_have_a_validation_set() -> None:
    train = Interactions.from_frame({"user": [1, 1, 2], "item": [1, 2, 1]})
    valid = Interactions.from_frame({"user": [1], "item": [3]})
    test = Interactions.from_frame({"user": [2, 3], "item": [4, 4], "rating": [5.0, 1.0]})
    options = {"valid": 0.1, "seed": 0, "rated": False}
    data_split = DataSplit.given(train, test, valid, **options)
    assert (pairs_of(data_split.train), pairs_of(data_split.valid)) == (pairs_of(train), {(1, 3)})
    assert data_split.whole.item_ids.ids.to_list() == [1, 2, 3, 4]
    assert data_split.description.keys() >= {"kind", "sha256", "valid_sha256", "test_sha256"}
    assert data_split.description["cold_users"] == 1
    with pytest.raises(DataError, match=r"1 \(user, item\) pairs of"):
        DataSplit.given(train, test, test.take(np.array([0])), **options)


@pytest.mark.parametrize("timed", [True, False])
def test_of_a_held_out_user_the_last_fifth_is_tested(timed: bool) -> None:
    sizes = {1: 1, 2: 4, 3: 5, 4: 14, 5: 15, 6: 3, 7: 3}
    rows = [(user, item, -item) for user, size in sizes.items() for item in range(size)]
    table = table_of(rows)
    if not timed:
        table = Interactions(table.frame.drop("timestamp"))
    plain, split = (
        DataSplit.cold_start(table, test_share=0.8, valid=0.0, seed=0, protocols=protocols)
        for protocols in (False, True)
    )
    assert split.description == plain.description
    assert split.test.frame.drop("users").equals(plain.test.frame)
    for (user,), own in split.test.frame.group_by("user"):
        number = max(1, sizes[user] // 5)
        tested = own.filter("users")["item"].sort().to_list()
        last = range(number) if timed else range(sizes[user] - number, sizes[user])
        assert tested == list(last)
