"""What is known of items."""

from __future__ import annotations

import numpy as np
import polars as pl

from cfuica.data.table import by_index, completed


def test_rows_stand_by_index_and_the_first_of_an_item_counts() -> None:
    given = pl.DataFrame({"item": ["c", "a", "x", "a"], "title": ["C", "A", "X", "again"]})
    found = by_index(given, np.array([2, 0, -1, 0]), 4)
    assert found["title"].to_list() == ["A", None, "C", None]


def test_gaps_are_filled_and_stored_metadata_stays() -> None:
    known = pl.DataFrame(
        {"item": [1, 2, 3], "title": ["A", None, None], "year": [1990, None, 1992]}
    )
    more = pl.DataFrame({"item": [1, 2, 3], "title": ["B", "C", None], "year": [1, 1991, 2]})
    assert completed(known, more).rows() == [(1, "A", 1990), (2, "C", 1991), (3, None, 1992)]
    assert completed(None, more).equals(more)


def test_columns_may_be_new_and_of_another_kind() -> None:
    known = pl.DataFrame(
        {"item": [1, 2], "year": [1990, None], "genres": [["Drama"], None], "none": [None, None]}
    )
    more = pl.DataFrame(
        {
            "item": [1, 2],
            "year": ["x", "1991"],
            "genres": ["Comedy", "Crime"],
            "none": ["p", "q"],
            "title": ["A", "B"],
        }
    )
    found = completed(known, more)
    assert found.columns == ["item", "year", "genres", "none", "title"]
    assert found["year"].to_list() == [1990, 1991]
    assert found["genres"].to_list() == [["Drama"], None]
    assert found["none"].to_list() == ["p", "q"]
    assert found["title"].to_list() == ["A", "B"]
