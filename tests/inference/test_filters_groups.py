"""Groups of items from the columns that `max_per` names."""

from __future__ import annotations

import polars as pl
import pytest

from cfuica.errors import SettingsError
from cfuica.inference.filters import Groups

TABLE = pl.DataFrame(
    {
        "item": [7, 8, 9, 10],
        "series": ["Alien", None, "Alien", "Toy Story"],
        "genres": [["Horror", "Horror"], ["Comedy", None], None, ["Comedy", "Horror"]],
        "year": [1979, 1999, 1986, None],
    }
)


def groups_by_item(groups):
    return [
        set(groups.indices[first:last].tolist())
        for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True)
    ]


def test_items_of_one_value_share_a_group_and_those_without_are_in_none():
    groups = Groups.of(TABLE, {"series": 1})
    assert groups_by_item(groups) == [{0}, set(), {0}, {1}]
    assert groups.limits_g.tolist() == [1, 1]


def test_an_item_of_a_list_column_is_once_in_the_group_of_each_value():
    groups = Groups.of(TABLE, {"genres": 2})
    assert groups_by_item(groups) == [{0}, {1}, set(), {0, 1}]
    assert groups.offsets[-1] == 4


def test_each_column_has_groups_and_a_limit_of_its_own():
    groups = Groups.of(TABLE, {"series": 1, "year": 3})
    assert groups_by_item(groups) == [{0, 2}, {3}, {0, 4}, {1}]
    assert groups.limits_g.tolist() == [1, 1, 3, 3, 3]


def test_any_kind_of_column_can_be_grouped_by():
    table = pl.DataFrame(
        {
            "float": [1.5, 1.5, 2.5],
            "truth": [True, True, False],
            "category": pl.Series(["a", "a", "b"], dtype=pl.Categorical),
            "pair": pl.Series([[1, 2], [2, 1], [3, 3]], dtype=pl.Array(pl.Int64, 2)),
        }
    )
    for column in table.columns:
        first, second, third = groups_by_item(Groups.of(table, {column: 1}))
        assert first == second
        assert not first & third


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2", True, None])
def test_a_limit_that_is_no_number_of_items_is_refused(limit):
    with pytest.raises(SettingsError, match=r"of the same series.*whole number from 1"):
        Groups.of(TABLE, {"series": limit})


def test_a_column_that_is_not_there_is_named_with_those_there_are():
    with pytest.raises(
        SettingsError, match=r"max_per names the column 'brand'.*'series', 'genres'"
    ):
        Groups.of(TABLE, {"brand": 1})
    with pytest.raises(SettingsError, match="nothing of its items except their ids"):
        Groups.of(None, {"brand": 1})


def test_a_limit_beyond_all_numbers_of_items_limits_nothing():
    assert (Groups.of(TABLE, {"series": 10**30}).limits_g >= TABLE.height - 1).all()


@pytest.mark.parametrize("given", ["series", ["series"], 3])
def test_limits_of_no_column_are_refused(given):
    with pytest.raises(SettingsError, match=r"max_per is .*; give one such as"):
        Groups.of(TABLE, given)
