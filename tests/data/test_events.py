"""Events of several types and with weights become one interaction of a pair."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.split_tables import DataSplit, SplitRequest, split_targets
from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError

ROWS = [
    ("ann", "pen", "view", 1),
    ("ann", "pen", "purchase", 2),
    ("ann", "pen", "view", 3),
    ("ann", "ink", "view", 4),
    ("bob", "pen", "view", 5),
    ("bob", "pen", "view", 6),
    ("bob", "ink", "cart", 7),
    ("bob", "cap", "cart", 8),
    ("cat", "cap", "view", 9),
]


def shop(rows=ROWS, **options) -> Interactions:
    frame = pl.DataFrame(rows, ["user", "item", "type", "timestamp"], orient="row")
    return Interactions.from_frame(frame, **options)


def listed(table: Interactions, *columns: str) -> list[tuple]:
    return table.frame.select("user", "item", *columns).rows()


def test_of_a_pair_the_strongest_type_counts_and_of_its_rows_the_latest():
    table = shop()
    assert table.types == ("view", "cart", "purchase")  # the most frequent is the weakest
    assert listed(table, "type", "timestamp") == [
        ("ann", "pen", "purchase", 2),
        ("ann", "ink", "view", 4),
        ("bob", "pen", "view", 6),
        ("bob", "ink", "cart", 7),
        ("bob", "cap", "cart", 8),
        ("cat", "cap", "view", 9),
    ]
    assert table.repeats_dropped == 3
    types, repeats = table.source_notes
    assert types == "Types of events, weakest first: view (6), cart (2), purchase (1)."
    assert "3 of 9 rows repeat a (user, item) pair" in repeats


def test_types_that_are_given_are_the_ones_read_in_their_order():
    table = shop(types=("purchase", "view"))
    assert table.types == ("purchase", "view")
    assert ("ann", "pen", "view", 3) in listed(table, "type", "timestamp")
    assert "cart" not in set(table.frame["type"])
    assert "2 events are of types that --types does not name: left out." in table.source_notes


def test_types_that_are_no_targets_are_context_only():
    table = shop(targets=("cart", "purchase"))
    assert listed(table, "weight") == [
        ("ann", "pen", 1.0),
        ("ann", "ink", 0.0),
        ("bob", "pen", 0.0),
        ("bob", "ink", 1.0),
        ("bob", "cap", 1.0),
        ("cat", "cap", 0.0),
    ]
    assert "3 interactions (view) are context only." in table.source_notes


def test_repeats_are_counted_as_weights_of_their_type():
    table = shop(count_repeats=True)
    weights = {pair[:2]: pair[2] for pair in listed(table, "weight")}
    assert weights["bob", "pen"] == 2  # two views
    assert weights["ann", "pen"] == 1  # one purchase; its two views are of a weaker type


def test_weights_of_a_pair_add_up():
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [5, 5, 5], "weight": [2.0, 0.5, 1.0]})
    table = Interactions.from_frame(frame)
    assert listed(table, "weight") == [(1, 5, 2.5), (2, 5, 1.0)]
    assert "their weights are added up" in table.source_notes[0]


@pytest.mark.parametrize("option", [{"types": ("view", "gift")}, {"targets": ("gift",)}])
def test_a_type_that_does_not_occur_is_refused_with_those_that_do(option):
    with pytest.raises(CfuicaError, match=r"'gift' is none of the data: .*'view'.*'purchase'"):
        shop(**option)


def test_a_target_that_is_not_read_is_refused():
    with pytest.raises(CfuicaError, match="'purchase' is none of the types to read, 'view'"):
        shop(types=("view",), targets=("purchase",))


def test_targets_without_a_column_of_types_are_refused():
    with pytest.raises(CfuicaError, match="no column of types; name it with --type-column"):
        Interactions.from_frame(pl.DataFrame({"user": [1], "item": [2]}), targets=("cart",))


def test_a_column_of_many_values_is_no_column_of_types():
    rows = [("ann", f"i{k}", f"category {k}", k) for k in range(30)]
    table = shop(rows)
    assert table.types == ()
    assert "type" not in table.frame.columns
    assert "has 30 values" in table.source_notes[0]
    frame = table.frame.with_columns(kind=pl.Series([f"k{at}" for at in range(30)]))
    assert len(Interactions.from_frame(frame, type="kind").types) == 30  # who names it means it


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from("vcp"), st.integers(1, 5)
        ),
        min_size=1,
        max_size=25,
    ),
    has_times=st.booleans(),
)
def test_merging_equals_its_definition(rows, has_times):
    frame = pl.DataFrame(rows, ["user", "item", "type", "timestamp"], orient="row")
    if not has_times:
        frame = frame.drop("timestamp")
    table = Interactions.from_frame(frame, types=tuple(sorted({row[2] for row in rows})))
    best: dict[tuple, tuple] = {}
    counts: dict[tuple, int] = {}
    for at, (user, item, kind, time) in enumerate(rows):
        strength = table.types.index(kind)
        key = (strength, time if has_times else 0, at)
        best[user, item] = max(best.get((user, item), key), key)
        counts[user, item, strength] = counts.get((user, item, strength), 0) + 1
    expected = [rows[key[2]] for key in sorted(best.values(), key=lambda key: key[2])]
    found = table.frame.select(frame.columns).rows()
    assert found == [row if has_times else row[:3] for row in expected]
    counted = Interactions.from_frame(frame, types=table.types, count_repeats=True)
    for row in counted.frame.iter_rows(named=True):
        own = counts[row["user"], row["item"], table.types.index(row["type"])]
        assert row["weight"] == own


def split_of(kind: str, rows, **options) -> DataSplit:
    table = shop(rows, targets=("buy",))
    return split_targets(table, SplitRequest(kind=kind, **options).splitter())


HISTORY = [
    ("ann", "a", "buy", 1),
    ("ann", "b", "buy", 2),
    ("ann", "c", "view", 3),
    ("ann", "d", "buy", 4),
    ("ann", "e", "view", 5),
    ("ann", "f", "buy", 6),
    ("ann", "g", "view", 7),
    ("bob", "g", "view", 8),
    ("cat", "a", "view", 1),
]  # fmt: skip


def test_leave_one_out_holds_out_targets_and_reads_no_context_after_them():
    split = split_of("leave-one-out", HISTORY)
    assert listed(split.test) == [("ann", "f")]
    assert listed(split.valid) == [("ann", "d")]
    pairs = [("ann", "a"), ("ann", "b"), ("ann", "c"), ("bob", "g"), ("cat", "a")]
    assert listed(split.train) == pairs
    assert split.whole.n == len(HISTORY)
    assert split.train.types == ("view", "buy")


def test_a_split_by_date_trains_on_no_context_after_its_border():
    split = split_of("date", HISTORY, test_from="6", valid=0.4)
    assert listed(split.test) == [("ann", "f")]
    held = {*listed(split.valid), *listed(split.test)}
    first = min(row[3] for row in HISTORY if row[:2] in held)
    expected = [row[:2] for row in HISTORY if row[3] < first and row[:2] not in held]
    assert listed(split.train) == expected


def test_training_on_everything_has_all_of_the_context():
    split = split_of("none", HISTORY, valid=0.0)
    assert listed(split.train) == [row[:2] for row in HISTORY]
