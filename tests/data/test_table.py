"""InteractionTable from frames."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data import table as table_module
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.errors import DataError

COLUMNS = {
    "user": ["b", "a", "b"],
    "item": [10, 9, 9],
    "rating": [4, 2, 5],
    "timestamp": [30, 20, 10],
}


class Capsule:
    """A frame of some library that speaks Arrow and that we never heard of."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _pandas(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


@pytest.mark.parametrize(
    "make",
    [
        pl.DataFrame,
        pl.LazyFrame,
        pa.table,
        lambda columns: pa.table(columns).to_reader(),
        lambda columns: pa.table(columns).to_batches()[0],
        lambda columns: Capsule(pa.table(columns)),
        _pandas,
        dict,
    ],
    ids=["polars", "lazy", "pyarrow", "reader", "batch", "capsule", "pandas", "dict"],
)
def test_every_kind_of_frame_gives_the_same_table(make):
    table = Interactions.from_frame(make(COLUMNS))
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
    assert table.sha256() == Interactions.from_frame(pl.DataFrame(COLUMNS)).sha256()


def test_columns_may_have_other_names_and_others_are_left_behind():
    frame = pl.DataFrame(COLUMNS).rename({"user": "who", "item": "what", "rating": "stars"})
    frame = frame.with_columns(pl.lit("x").alias("note"))
    table = Interactions.from_frame(frame, user="who", item="what", rating="stars")
    assert table.frame.to_dict(as_series=False) == COLUMNS


def test_rating_and_timestamp_are_optional():
    frame = pl.DataFrame(COLUMNS)
    assert Interactions.from_frame(frame, rating=None, timestamp=None).frame.columns == [
        "user",
        "item",
    ]
    bare = Interactions.from_frame(frame.select("user", "item"))
    with pytest.raises(DataError, match="a frame has no ratings"):
        _ = bare.scale
    with pytest.raises(DataError, match="a frame has no ratings"):
        bare.matrix(users=bare.users, items=bare.item_ids, scale=LabelScale((1.0, 2.0)))


def test_times_as_text_are_read_as_in_a_text_file():
    times = ["2001-01-31", "1.5", "2001-01-31", "-1"]
    frame = pl.DataFrame({"user": [1, 1, 1, 1], "item": [1, 2, 3, 4], "timestamp": times})
    found = Interactions.from_frame(frame).frame["timestamp"].to_list()
    assert found == [980_899_200, 1, 980_899_200, -1]
    with pytest.raises(DataError, match=r"'soon' in column 'timestamp', but .* must be a date"):
        Interactions.from_frame(frame.with_columns(timestamp=pl.lit("soon")))


def test_dates_become_seconds():
    days = [dt.datetime(1970, 1, 1, 0, 0, 7, 900_000), dt.datetime(1970, 1, 2)]
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "timestamp": days})
    assert Interactions.from_frame(frame).frame["timestamp"].to_list() == [7, 86_400]
    fractions = frame.with_columns(timestamp=pl.Series([7.9, -0.5]))
    assert Interactions.from_frame(fractions).frame["timestamp"].to_list() == [7, -1]


def test_matrix_places_each_rating_and_ids_lead_back():
    table = Interactions.from_frame(pl.DataFrame(COLUMNS))
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
    table = Interactions.from_frame(pl.DataFrame(COLUMNS))
    users = Vocabulary.from_ids(pl.Series(["b"]))
    with pytest.raises(DataError, match=r"1 of 3 interactions .* unknown user, the first one 'a'"):
        table.matrix(users=users, items=table.item_ids, scale=table.scale)


def test_all_item_metadata_stays():
    items = pl.DataFrame({"item": [9], "title": ["Nine"], "genres": [["a"]], "brand": ["b"]})
    table = Interactions.from_frame(pl.DataFrame(COLUMNS), items=items)
    assert table.items is not None
    assert table.items.equals(items)


def test_taking_rows_keeps_item_metadata():
    items = pl.DataFrame({"item": [9, 10], "title": ["Nine", "Ten"]})
    table = Interactions.from_frame(pl.DataFrame(COLUMNS), items=items)
    part = table.take(np.array([2, 0]))
    assert part.frame["timestamp"].to_list() == [10, 30]
    assert part.items is not None
    assert part.items.equals(items)
    assert part.users.ids.to_list() == ["b"], "not the cached map of the whole"


def test_the_item_space_spans_the_item_axis():
    frame = Interactions.from_frame(pl.DataFrame(COLUMNS)).frame
    table = Interactions(frame, item_space=pl.Series([8, 9, 10, 11]))
    assert table.item_ids.ids.to_list() == [8, 9, 10, 11]
    assert table.take(np.array([0])).item_ids.size == 4
    forgetful = Interactions(frame, item_space=pl.Series([8]))
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
    table = Interactions.from_frame(frame)
    assert table.frame["rating"].to_list() == [2.0, 3.0, 4.0]
    assert table.source_notes == (
        "2 earlier interactions of a repeated (user, item) pair were dropped.",
    )
    by_order = Interactions.from_frame(frame, timestamp=None)
    assert by_order.frame["rating"].to_list() == [2.0, 4.0, 5.0]
    tied = Interactions.from_frame(frame.with_columns(timestamp=pl.lit(1)))
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
    table, dropped = Interactions(frame).deduplicated()
    assert table.frame.rows() == frame[sorted(latest.values())].rows()
    assert dropped == len(rows) - len(latest)


def test_repeats_of_a_large_table_are_found_wherever_they_stand(monkeypatch):
    monkeypatch.setattr(table_module, "_SLICE", 4096)
    rows = np.random.default_rng(0).permutation(12_000)
    frame = pl.DataFrame({"user": rows // 100, "item": rows % 100, "timestamp": rows})
    distinct = Interactions(frame)
    assert distinct.deduplicated() == (distinct, 0)
    later = frame[[3, 4096, 11_999]].with_columns(pl.col("timestamp") + 1)
    table, dropped = Interactions(pl.concat([frame, later])).deduplicated()
    assert dropped == 3
    gone = np.isin(np.arange(12_003), [3, 4096, 11_999])
    assert table.frame.equals(pl.concat([frame, later]).filter(~gone))


def test_hash_is_of_the_content():
    base = Interactions.from_frame(pl.DataFrame(COLUMNS))
    narrow = pl.DataFrame(COLUMNS).with_columns(pl.col("item").cast(pl.UInt8))
    assert Interactions.from_frame(narrow).sha256() == base.sha256()
    changes = [
        {"user": ["b", "a", "c"]},
        {"user": ["ba", "", "b"]},
        {"item": [10, 9, 8]},
        {"item": ["10", "9", "9"]},
        {"rating": [4, 2, 4]},
        {"timestamp": [30, 20, 11]},
    ]
    hashes = {base.sha256(), base.take(np.array([1, 0, 2])).sha256()}
    hashes.add(Interactions(base.frame.drop("timestamp")).sha256())
    hashes.add(Interactions(base.frame, item_space=pl.Series([9, 10])).sha256())
    for change in changes:
        columns = pl.DataFrame({**COLUMNS, **change})
        hashes.add(Interactions(columns.with_columns(pl.col("rating").cast(float))).sha256())
    assert len(hashes) == 4 + len(changes)


def test_hash_stays_the_same():
    # Recorded once: saved models carry it.
    assert (
        Interactions.from_frame(pl.DataFrame(COLUMNS)).sha256()
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
        Interactions.from_frame(pl.DataFrame({**COLUMNS, **change}))


def test_missing_columns_empty_frames_and_strange_things_are_refused():
    frame = pl.DataFrame(COLUMNS)
    with pytest.raises(DataError, match=r"no column 'who' for the user: .* 'user', 'item'"):
        Interactions.from_frame(frame, user="who")
    with pytest.raises(DataError, match="no column 'stars' for the rating"):
        Interactions.from_frame(frame, rating="stars")
    with pytest.raises(DataError, match="no rows"):
        Interactions.from_frame(frame.clear())
    with pytest.raises(DataError, match="A int was given"):
        Interactions.from_frame(3)
    with pytest.raises(DataError, match="items frame has no column 'item'"):
        Interactions.from_frame(frame, items=pl.DataFrame({"title": ["One"]}))
    taken = pl.DataFrame({"item": [1], "title": ["One"], "row": [3]})
    with pytest.raises(DataError, match=r"items frame has a column 'row', .*; rename it"):
        Interactions.from_frame(frame, items=taken)


def test_a_lazy_frame_computes_only_the_columns_that_are_needed():
    def never(_: pl.Series) -> pl.Series:
        raise AssertionError("computed")

    lazy = pl.LazyFrame(COLUMNS).with_columns(
        other=pl.col("item").map_batches(never, return_dtype=pl.Int64)
    )
    assert Interactions.from_frame(lazy).n == 3


def test_bad_rows_may_be_skipped_and_are_counted():
    frame = pl.DataFrame({**COLUMNS, "user": ["b", "", "b"], "rating": [4.0, None, 5.0]})
    table = Interactions.from_frame(frame, bad_rows="skip")
    assert table.frame["rating"].to_list() == [4.0, 5.0]
    assert table.source_notes == (
        "1 of 3 rows are no interactions and were left out (1 without a user); the first one: Row "
        "1 (from 0) of the frame has '' in column 'user', but the user must be an id.",
    )


def test_every_row_stays_where_repeats_are_wanted():
    frame = pl.DataFrame({"user": [1, 1], "item": [2, 2]})
    assert Interactions.from_frame(frame).n == 1
    assert Interactions.from_frame(frame, repeats=True).n == 2


# Interactions without a rating.

GIVEN = pl.DataFrame(
    {"user": [1, 2, 3, 1], "item": [1, 1, 9, 1], "rating": [4, 5, 0, 0], "timestamp": [1, 2, 3, 4]}
)


def test_a_value_that_means_no_rating_becomes_null():
    table = Interactions.from_frame(GIVEN, no_rating=(0.0, 99.0))
    # The latest of a pair wins as always, and here it has no rating.
    assert table.frame["rating"].to_list() == [5.0, None, None]
    assert table.source_notes == (
        "2 of 4 interactions have the rating 0 or 99, which means no rating: they stay, without "
        "a rating.",
        "1 earlier interactions of a repeated (user, item) pair were dropped.",
    )
    assert table.users.ids.to_list() == [1, 2, 3]
    assert table.item_ids.ids.to_list() == [1, 9]


def test_an_interaction_whose_value_means_no_rating_may_be_dropped():
    table = Interactions.from_frame(GIVEN, no_rating=(0,), no_rating_means="drop")
    assert table.frame["rating"].to_list() == [4.0, 5.0]
    assert table.source_notes == (
        "2 of 4 interactions have the rating 0, which means no rating: they were dropped.",
    )
    with pytest.raises(DataError, match=r"a frame: 1 of 1 interactions .* nothing is left"):
        Interactions.from_frame(GIVEN.tail(1), no_rating=(0.0,), no_rating_means="drop")


def test_values_that_never_occur_or_data_without_ratings_need_no_note():
    assert Interactions.from_frame(GIVEN.head(2), no_rating=(0.0,)).source_notes == ()
    bare = Interactions.from_frame(GIVEN.head(2), rating=None, no_rating=(0.0,))
    assert bare.source_notes == ()


def test_the_rated_rows_are_what_ratings_are_made_of():
    table = Interactions.from_frame(GIVEN.head(3), no_rating=(0.0,))
    rated = table.rated()
    assert rated.frame["rating"].to_list() == [4.0, 5.0]
    assert rated.source_notes[-1] == (
        "1 of 3 interactions have no rating and are left out of the ratings."
    )
    assert rated.rated() is rated
    assert table.scale == LabelScale((4.0, 5.0))
    maps = {"users": table.users, "items": table.item_ids, "scale": table.scale}
    assert table.matrix(**maps).n_interactions == 2
    assert table.matrix(**maps).n_users == 3
    assert table.rated_pairs(**maps).n == 2
    assert table.take(np.array([2, 1])).frame["rating"].to_list() == [None, 5.0]
    with pytest.raises(DataError, match="None of the 1 interactions in a frame has a rating"):
        table.take(np.array([2])).rated()


def test_a_missing_rating_hashes_unlike_any_number():
    base = Interactions.from_frame(GIVEN.head(3))
    hashes = {base.sha256()}
    for missing in ([4.0, 5.0, None], [4.0, None, None], [4.0, None, 0.0], [4.0, 5.0, np.nan]):
        column = pl.Series("rating", missing, dtype=pl.Float64)
        hashes.add(replace(base, frame=base.frame.with_columns(column)).sha256())
    assert len(hashes) == 5


# Rated pairs.


def test_rated_pairs_stand_in_the_order_of_the_matrix():
    rng = np.random.default_rng(0)
    pairs = rng.permutation(200)[:90]
    frame = pl.DataFrame(
        {"user": pairs // 10, "item": pairs % 10, "rating": rng.choice([0.1, 0.2, 0.7], 90)}
    )
    table = Interactions.from_frame(frame)
    maps = {"users": table.users, "items": table.item_ids, "scale": table.scale}
    rated, triplets = table.rated_pairs(**maps), table.matrix(**maps).triplets()
    for mine, theirs in zip((rated.users_p, rated.items_p, rated.labels_p), triplets, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(rated.ratings_p, table.scale.values_array()[rated.labels_p])


def test_rated_pairs_of_a_binned_scale_keep_the_ratings():
    ratings = np.random.default_rng(0).permutation(60) / 7
    frame = pl.DataFrame({"user": range(60), "item": [0] * 60, "rating": ratings})
    table = Interactions.from_frame(frame)
    scale = table.label_scale(bins=6)
    rated = table.rated_pairs(users=table.users, items=table.item_ids, scale=scale)
    assert scale.size == 6
    np.testing.assert_array_equal(rated.ratings_p, ratings)
    np.testing.assert_array_equal(np.bincount(rated.labels_p), [10] * 6)


def test_the_scale_of_a_subset_is_binned_when_the_whole_has_many_values():
    whole = Interactions.from_frame({"user": range(60), "item": [0] * 60, "rating": range(60)})
    part = whole.take(np.arange(40))
    assert part.label_scale(vocabulary=whole, bins=4).values == (4.5, 14.5, 24.5, 34.5)
    assert whole.scale.size == 20
    few = whole.take(np.arange(5))
    assert few.label_scale(vocabulary=few).edges is None
    assert few.label_scale(vocabulary=whole.take(np.arange(8))).size == 8


def test_a_rating_off_the_scale_is_named_by_its_pair_and_source() -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "item": [1, 2], "rating": [None, 9.0]})
    table = Interactions(frame, source="given.csv")
    maps = {"users": table.users, "items": table.item_ids, "scale": LabelScale((1.0, 2.0))}
    for use in (table.matrix, table.rated_pairs):
        with pytest.raises(
            DataError, match=r"The rating 9 of user 'b' and item 2 in given\.csv is not on the"
        ):
            use(**maps)
