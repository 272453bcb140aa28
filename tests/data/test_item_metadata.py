"""What is known of items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.item_files import read_items
from cfuica.data.item_metadata import by_index, updated
from cfuica.data.layout import ReadOptions
from cfuica.data.table import Interactions
from cfuica.errors import DataError

INTERACTIONS = Interactions.from_frame({"user": ["a", "a", "b"], "item": [1, 2, 3]})


def test_rows_stand_by_index_and_the_first_of_an_item_counts() -> None:
    given = pl.DataFrame({"item": ["c", "a", "x", "a"], "title": ["C", "A", "X", "again"]})
    found = by_index(given, np.array([2, 0, -1, 0]), 4)
    assert found["title"].to_list() == ["A", None, "C", None]


def test_new_values_count_and_where_there_are_none_the_stored_ones_stay() -> None:
    stored = pl.DataFrame(
        {"item": [1, 2, 3], "title": ["A", None, None], "year": [1990, None, 1992]}
    )
    more = pl.DataFrame({"item": [1, 2, 3], "title": ["B", "C", None], "year": [None, 1991, 2]})
    assert updated(stored, more).rows() == [(1, "B", 1990), (2, "C", 1991), (3, None, 2)]
    assert updated(None, more).equals(more)


def test_columns_may_be_new_and_numbers_keep_their_fractions() -> None:
    stored = pl.DataFrame(
        {"item": [1, 2], "price": [10, 11], "genres": [["Drama"], None], "none": [None, None]}
    )
    more = pl.DataFrame(
        {
            "item": [1, 2],
            "price": [9.5, None],
            "genres": [None, "Crime"],
            "none": ["p", "q"],
            "title": ["A", "B"],
        }
    )
    found = updated(stored, more)
    assert found.columns == ["item", "price", "genres", "none", "title"]
    assert found["price"].to_list() == [9.5, 11]
    assert found["genres"].to_list() == [["Drama"], ["Crime"]]
    assert found["none"].to_list() == ["p", "q"]
    assert found["title"].to_list() == ["A", "B"]


def test_values_of_another_type_than_the_stored_ones_are_refused() -> None:
    stored = pl.DataFrame({"item": [1], "price": [10]})
    with pytest.raises(DataError, match=r"column 'price' of new.csv holds String, .* Int64 in it"):
        updated(stored, pl.DataFrame({"item": [1], "price": ["free"]}), "new.csv")


def test_a_title_is_optional_and_an_id_is_not() -> None:
    table = Interactions.from_frame(INTERACTIONS.frame, items={"item": [1, 2], "price": [3, 4]})
    assert table.items is not None
    assert table.items.columns == ["item", "price"]
    with pytest.raises(DataError, match="no column 'item': its columns are 'price'"):
        INTERACTIONS.with_items({"price": [1]})
    with pytest.raises(DataError, match="no rows; give the metadata of at least one item"):
        INTERACTIONS.with_items({"item": []})
    with pytest.raises(DataError, match="1 of 2 rows of the items have no id"):
        INTERACTIONS.with_items({"item": [1, None]})


def test_ids_of_another_type_match_by_their_text() -> None:
    table = INTERACTIONS.with_items({"item": ["1", "2", "3"], "price": [5, 6, 7]})
    assert table.items is not None
    assert table.items.rows() == [(1, 5), (2, 6), (3, 7)]
    assert table.source_notes == ()


def test_how_many_items_have_metadata_is_noted_where_not_all_have_it() -> None:
    some = INTERACTIONS.with_items({"item": [1, 3, 9]}, "items.csv")
    assert some.source_notes == ("items.csv has metadata of 2 of 3 items.",)
    odd = INTERACTIONS.with_items({"item": ["001", "2"]}, "items.csv")
    assert odd.source_notes == (
        "items.csv: the ids are text, such as '001', those of the interactions are whole numbers; "
        "1 of 2 match, the others were left out.",
    )
    with pytest.raises(DataError, match=r"none of the 3 items .* '001', .* such as 1; write"):
        INTERACTIONS.with_items({"item": ["001", "002"]}, "items.csv")


def test_given_metadata_takes_the_place_of_that_of_the_data() -> None:
    first = INTERACTIONS.with_items({"item": [1, 2, 3], "title": ["A", "B", "C"]})
    table = first.with_items({"item": [2], "title": ["new"], "price": [1.5]})
    assert table.items is not None
    assert table.items.rows() == [(1, "A", None), (2, "new", 1.5), (3, "C", None)]


ROWS = """sku;title;price;genres;since;new
1;A | B;9.5;Comedy|Drama;2024-01-02;true
2;"x;y";12;Drama;;false
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_text_file_has_numbers_dates_truths_and_lists(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "items.csv").write_text(ROWS.replace("A |", "Ä |"), encoding=encoding)
    found = read_items(tmp_path / "items.csv", ReadOptions(item="sku"))
    assert found.schema == {
        "item": pl.Int64,
        "title": pl.String,
        "price": pl.Float64,
        "genres": pl.List(pl.String),
        "since": pl.Date,
        "new": pl.Boolean,
    }
    assert found["title"].to_list() == ["Ä | B", "x;y"]
    found.write_parquet(tmp_path / "items.parquet")
    assert read_items(tmp_path / "items.parquet").equals(found)


def test_ids_that_begin_with_zero_stay_text(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("price,item\n1,007\n2,8\n")
    assert read_items(tmp_path / "items.csv")["item"].to_list() == ["007", "8"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ROWS.replace("sku", "thing"), "no column of item ids among 'thing;title"),
        ("item,title\n1,a,b\n", "give each line as many fields as the header has"),
        ("item,title\n", "has no rows"),
        ("item,row\n1,2\n", "a name that saved models reserve"),
        ("\0item", "is not a text file"),
        ("PAR1", "is not a whole Parquet file"),
    ],
)
def test_a_file_that_holds_no_items_is_explained(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "items.csv").write_text(text)
    with pytest.raises(DataError, match=told):
        read_items(tmp_path / "items.csv")
    with pytest.raises(DataError, match="is not a file"):
        read_items(tmp_path)
