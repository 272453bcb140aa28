"""BehaviourTable from frames."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError

COLUMNS = {
    "user": ["b", "a", "b"],
    "item": [10, 9, 9],
    "rating": [4, 2, 5],
    "timestamp": [30, 20, 10],
}


def _pandas(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


@pytest.mark.parametrize(
    "make",
    [pl.DataFrame, pl.LazyFrame, pa.table, _pandas, dict],
    ids=["polars", "lazy", "pyarrow", "pandas", "dict"],
)
def test_every_kind_of_frame_gives_the_same_table(make):
    table = BehaviourTable.from_frame(make(COLUMNS))
    assert table.frame.schema == {
        "user": pl.String,
        "item": pl.Int64,
        "rating": pl.Float64,
        "timestamp": pl.Int64,
    }
    assert table.frame.to_dict(as_series=False) == COLUMNS
    assert table.n == 3
    assert table.users.ids.to_list() == ["a", "b"]
    assert table.item_ids.ids.to_list() == [9, 10]
    assert table.scale == LabelScale((2.0, 4.0, 5.0))
    assert table.sha256() == BehaviourTable.from_frame(pl.DataFrame(COLUMNS)).sha256()


def test_columns_may_have_other_names_and_others_are_left_behind():
    frame = pl.DataFrame(COLUMNS).rename({"user": "who", "item": "what", "rating": "stars"})
    frame = frame.with_columns(pl.lit("x").alias("note"))
    table = BehaviourTable.from_frame(frame, user="who", item="what", rating="stars")
    assert table.frame.to_dict(as_series=False) == COLUMNS


def test_rating_and_timestamp_are_optional():
    frame = pl.DataFrame(COLUMNS)
    assert BehaviourTable.from_frame(frame, rating=None, timestamp=None).frame.columns == [
        "user",
        "item",
    ]
    bare = BehaviourTable.from_frame(frame.select("user", "item"))
    with pytest.raises(DataError, match="a frame has no ratings"):
        _ = bare.scale
    with pytest.raises(DataError, match="a frame has no ratings"):
        bare.matrix(users=bare.users, items=bare.item_ids, scale=LabelScale((1.0, 2.0)))


def test_dates_become_seconds():
    days = [dt.datetime(1970, 1, 1, 0, 0, 7, 900_000), dt.datetime(1970, 1, 2)]
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "timestamp": days})
    assert BehaviourTable.from_frame(frame).frame["timestamp"].to_list() == [7, 86_400]
    fractions = frame.with_columns(timestamp=pl.Series([7.9, -0.5]))
    assert BehaviourTable.from_frame(fractions).frame["timestamp"].to_list() == [7, -1]


def test_matrix_places_each_rating_and_ids_lead_back():
    table = BehaviourTable.from_frame(pl.DataFrame(COLUMNS))
    matrix = table.matrix(users=table.users, items=table.item_ids, scale=table.scale)
    users, items, labels = matrix.triplets()
    seen = zip(
        table.users.decode(users),
        table.item_ids.decode(items),
        table.scale.values_array()[labels],
        strict=True,
    )
    assert set(seen) == {("b", 10, 4.0), ("a", 9, 2.0), ("b", 9, 5.0)}


def test_matrix_refuses_ids_that_its_maps_do_not_know():
    table = BehaviourTable.from_frame(pl.DataFrame(COLUMNS))
    users = IdMap.from_ids(pl.Series(["b"]))
    with pytest.raises(DataError, match=r"1 of 3 behaviours .* unknown user, the first one 'a'"):
        table.matrix(users=users, items=table.item_ids, scale=table.scale)


def test_taking_rows_keeps_what_is_known_of_the_items():
    items = pl.DataFrame({"item": [9, 10], "title": ["Nine", "Ten"]})
    table = BehaviourTable.from_frame(pl.DataFrame(COLUMNS), items=items)
    part = table.take(np.array([2, 0]))
    assert part.frame["timestamp"].to_list() == [10, 30]
    assert part.items is not None
    assert part.items.equals(items)
    assert part.users.ids.to_list() == ["b"], "not the cached map of the whole"


def test_the_item_space_spans_the_item_axis():
    frame = BehaviourTable.from_frame(pl.DataFrame(COLUMNS)).frame
    table = BehaviourTable(frame, item_space=pl.Series([8, 9, 10, 11]))
    assert table.item_ids.ids.to_list() == [8, 9, 10, 11]
    assert table.take(np.array([0])).item_ids.size == 4
    forgetful = BehaviourTable(frame, item_space=pl.Series([8]))
    assert forgetful.item_ids.ids.to_list() == [8, 9, 10]


def test_the_latest_of_a_repeated_pair_wins_and_the_rest_keeps_its_order():
    frame = pl.DataFrame(
        {
            "user": [1, 2, 1, 3, 1],
            "item": [1, 1, 1, 1, 1],
            "rating": [1.0, 2.0, 3.0, 4.0, 5.0],
            "timestamp": [10, 5, 30, 1, 20],
        }
    )
    table = BehaviourTable.from_frame(frame)
    assert table.frame["rating"].to_list() == [2.0, 3.0, 4.0]
    assert table.source_notes == (
        "2 earlier behaviours of a repeated (user, item) pair were dropped.",
    )
    by_order = BehaviourTable.from_frame(frame, timestamp=None)
    assert by_order.frame["rating"].to_list() == [2.0, 4.0, 5.0]
    tied = BehaviourTable.from_frame(frame.with_columns(timestamp=pl.lit(1)))
    assert tied.frame["rating"].to_list() == [2.0, 4.0, 5.0]
    again, dropped = table.deduplicated()
    assert dropped == 0
    assert again is table


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1),
    kind=st.sampled_from([pl.Int64, pl.String]),
)
def test_one_row_per_pair_stays_and_it_is_the_latest(rows, kind):
    users, items, times = zip(*rows, strict=True)
    frame = pl.DataFrame({"user": users, "item": items, "timestamp": times}).with_columns(
        pl.col("user").cast(kind)
    )
    latest = {}
    for row, (user, item, time) in enumerate(rows):
        if (user, item) not in latest or time >= rows[latest[user, item]][2]:
            latest[user, item] = row
    table, dropped = BehaviourTable(frame).deduplicated()
    assert table.frame.rows() == frame[sorted(latest.values())].rows()
    assert dropped == len(rows) - len(latest)


def test_hash_is_of_the_content():
    base = BehaviourTable.from_frame(pl.DataFrame(COLUMNS))
    narrow = pl.DataFrame(COLUMNS).with_columns(pl.col("item").cast(pl.UInt8))
    assert BehaviourTable.from_frame(narrow).sha256() == base.sha256()
    changes = [
        {"user": ["b", "a", "c"]},
        {"user": ["ba", "", "b"]},
        {"item": [10, 9, 8]},
        {"item": ["10", "9", "9"]},
        {"rating": [4, 2, 4]},
        {"timestamp": [30, 20, 11]},
    ]
    hashes = {base.sha256(), base.take(np.array([1, 0, 2])).sha256()}
    hashes.add(BehaviourTable(base.frame.drop("timestamp")).sha256())
    hashes.add(BehaviourTable(base.frame, item_space=pl.Series([9, 10])).sha256())
    for change in changes:
        columns = pl.DataFrame({**COLUMNS, **change})
        hashes.add(BehaviourTable(columns.with_columns(pl.col("rating").cast(float))).sha256())
    assert len(hashes) == 4 + len(changes)


def test_hash_stays_the_same():
    # Recorded once: saved models carry it.
    assert (
        BehaviourTable.from_frame(pl.DataFrame(COLUMNS)).sha256()
        == "3b30fc4fb68bedd6da8ce97220eb87699ea4a25afc16c4b7c6cf0fea9b9d28b0"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"user": ["b", None, "b"]}, r"Row 1 \(from 0\) .* None in column 'user'"),
        ({"user": ["b", "a", ""]}, r"Row 2 .* '' in column 'user', .* an id"),
        ({"item": [1.0, 2.0, float("nan")]}, r"Row 2 .* nan in column 'item'"),
        ({"item": [1.0, 2.5, 3.0]}, "'item' holds the id 2.5"),
        ({"rating": [1.0, None, 2.0]}, r"Row 1 .* None in column 'rating', .* a finite number"),
        ({"rating": [1.0, 2.0, float("inf")]}, r"Row 2 .* inf in column 'rating'"),
        ({"rating": ["1", "2", "good"]}, r"Row 2 .* 'good' in column 'rating'"),
        ({"timestamp": [1, None, 3]}, r"Row 1 .* None in column 'timestamp'"),
        ({"timestamp": ["1", "x", "3"]}, r"Row 1 .* 'x' in column 'timestamp'"),
    ],
)
def test_unusable_values_are_refused_by_row_and_value(change, says):
    with pytest.raises(DataError, match=says):
        BehaviourTable.from_frame(pl.DataFrame({**COLUMNS, **change}))


def test_missing_columns_empty_frames_and_strange_things_are_refused():
    frame = pl.DataFrame(COLUMNS)
    with pytest.raises(DataError, match=r"no column 'who' for the user: .* 'user', 'item'"):
        BehaviourTable.from_frame(frame, user="who")
    with pytest.raises(DataError, match="no column 'stars' for the rating"):
        BehaviourTable.from_frame(frame, rating="stars")
    with pytest.raises(DataError, match="no rows"):
        BehaviourTable.from_frame(frame.clear())
    with pytest.raises(DataError, match="A int was given"):
        BehaviourTable.from_frame(3)
    with pytest.raises(DataError, match="items frame has no column 'title'"):
        BehaviourTable.from_frame(frame, items=pl.DataFrame({"item": [1]}))
