"""Which items may be recommended."""

from __future__ import annotations

import operator
from dataclasses import replace
from datetime import date, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.errors import SettingsError
from cfuica.inference.filters import matching, passing, read_where
from cfuica.inference.recommend import Request
from cfuica.inference.recommend import allowed as allowed_by

TABLE = pl.DataFrame(
    {
        "item": ["a", "b", "c", "d"],
        "genres": [["Comedy", "Drama"], ["Drama"], None, ["Comedy"]],
        "year": [1999, 2000, None, 1999],
        "score": [0.5, 1.0, 2.0, float("nan")],
        "new": [True, False, None, True],
        "day": [date(2024, 1, 1), date(2024, 1, 2), None, date(2024, 1, 1)],
        "at": [datetime(2024, 1, 1, 12), None, None, None],
        "brand": pl.Series(["x", "y", "x", None], dtype=pl.Categorical),
        "nothing": [None] * 4,
        "box": [{"x": 1}] * 4,
    }
)
SUPPORT = np.array([5, 0, 2, 9])


NO_FILTER = Request(
    n=10,
    exclude_seen=True,
    min_support=1,
    candidates=None,
    exclude=None,
    where=None,
    max_per=None,
)


def allowed(table=None, **rules):
    return allowed_by(SUPPORT, replace(NO_FILTER, **rules), table)


def items(**rules):
    return np.flatnonzero(allowed(table=TABLE, **rules)).tolist()


def test_what_anybody_rated_may_be_recommended_unless_a_rule_says_otherwise():
    assert items() == [0, 2, 3]
    assert items(min_support=0) == [0, 1, 2, 3]
    assert items(min_support=5) == [0, 3]
    assert items(candidates=np.array([3, 1, 0])) == [0, 3]
    assert items(candidates=np.array([], np.int32)) == []
    assert items(exclude=np.array([3, 1], np.int32)) == [0, 2]


def test_all_rules_hold_together():
    rules = {"min_support": 0, "candidates": np.array([0, 1, 3]), "exclude": np.array([0])}
    assert items(**rules, where={"genres": ["Comedy", "Drama"], "year": 1999}) == [3]
    assert items(where={"genres": "Comedy", "year": 2000}) == []


def test_the_support_is_left_as_it_was():
    allowed(exclude=np.array([0]))
    assert SUPPORT.tolist() == [5, 0, 2, 9]


@pytest.mark.parametrize(
    ("column", "values", "rows"),
    [
        ("genres", "Comedy", [0, 3]),
        ("genres", ["Drama", "Western"], [0, 1]),
        ("genres", "Western", []),
        ("genres", [], []),
        ("year", 1999, [0, 3]),
        ("year", 1999.0, [0, 3]),
        ("year", 1999.5, []),
        ("year", np.array([1999, 2000]), [0, 1, 3]),
        ("year", np.int32(2000), [1]),
        ("year", range(1990, 2000), [0, 3]),
        ("year", pl.Series([2000]), [1]),
        ("score", [1, 2], [1, 2]),
        ("new", True, [0, 3]),
        ("new", np.bool_(False), [1]),
        ("day", date(2024, 1, 1), [0, 3]),
        ("at", datetime(2024, 1, 1, 12), [0]),
        ("brand", {"x"}, [0, 2]),
        ("item", ("a", "d"), [0, 3]),
        ("nothing", "x", []),
    ],
)
def test_an_item_matches_where_it_has_one_of_the_values(column, values, rows):
    assert np.flatnonzero(matching(TABLE[column], values)).tolist() == rows


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("genres", 5, "text"),
        ("genres", None, "text"),
        ("year", "1999", "numbers"),
        ("year", True, "numbers"),
        ("year", [1999, None], "numbers"),
        ("new", 1, "true or false"),
        ("day", "2024-01-01", "dates"),
        ("day", datetime(2024, 1, 1), "dates"),
        ("at", date(2024, 1, 1), "times"),
    ],
)
def test_a_value_that_the_column_cannot_have_is_refused(column, value, kind):
    with pytest.raises(SettingsError, match=f"in the column '{column}', which holds {kind}"):
        matching(TABLE[column], value)


def test_a_column_that_cannot_be_compared_is_refused():
    with pytest.raises(SettingsError, match="'box', which holds Struct"):
        matching(TABLE["box"], "x")


def test_a_column_that_is_not_there_is_named_with_those_there_are():
    with pytest.raises(SettingsError, match=r"where names the column 'genre'.*'genres', 'year'"):
        items(where={"genre": "Comedy"})
    with pytest.raises(SettingsError, match="nothing of its items except their ids"):
        allowed(where={"genre": "Comedy"})


@pytest.mark.parametrize("min_support", [-1, 1.5, "5", None])
def test_a_min_support_that_is_no_number_of_users_is_refused(min_support):
    with pytest.raises(SettingsError, match="whole number from 0 upwards"):
        items(min_support=min_support)


@pytest.mark.parametrize(
    ("typed", "rows"),
    [
        ([("genres", "=", "Comedy")], [0, 3]),
        ([("genres", "=", "Comedy"), ("genres", "=", "Drama")], [0, 1, 3]),
        ([("genres", "!=", "Comedy")], [1, 2]),
        ([("genres", "!=", "Comedy"), ("genres", "!=", "Drama")], [2]),
        ([("genres", "=", "Drama"), ("year", "<", "2000")], [0]),
        ([("year", ">=", "1999.5")], [1]),
        ([("year", "<=", "1999")], [0, 3]),
        ([("year", ">", "1999"), ("year", "<", "2000")], []),
        ([("year", "=", "1999.0")], [0, 3]),
        ([("score", ">", "0.5")], [1, 2]),
        ([("score", "!=", "1")], [0, 2, 3]),
        ([("new", "=", "True")], [0, 3]),
        ([("day", ">", "2024-01-01")], [1]),
        ([("day", "<=", "2024-01-01")], [0, 3]),
        ([("at", ">=", "2024-01-01")], [0]),
        ([("at", ">", "2024-01-01T13:00+02:00")], [0]),
        ([("brand", "=", "x"), ("brand", "=", "y")], [0, 1, 2]),
        ([("nothing", "=", "x")], []),
    ],
)
def test_what_was_typed_is_compared_as_values_of_the_columns_kind(typed, rows):
    assert items(where=read_where(TABLE, typed), min_support=0) == rows


PLAIN = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
NUMBERS = st.none() | st.integers(-3, 3) | st.sampled_from([-0.5, 1.5, float("nan")])


@settings(deadline=None)
@given(
    cells=st.lists(NUMBERS, min_size=1, max_size=8),
    typed=st.lists(
        st.tuples(st.just("x"), st.sampled_from(list(PLAIN)), st.sampled_from(["-1", "0", "1.5"])),
        min_size=1,
        max_size=3,
    ),
)
def test_conditions_hold_as_in_python(cells, typed):
    table = pl.DataFrame({"x": pl.Series(cells, dtype=pl.Float64, strict=False)})

    def passes(cell):
        if cell is None:
            cell = float("nan")  # which passes != alone, too
        equals = [cell == float(text) for _, sign, text in typed if sign == "="]
        others = [PLAIN[sign](cell, float(text)) for _, sign, text in typed if sign != "="]
        return (any(equals) or not equals) and all(others)

    found = passing(table, read_where(table, typed), len(cells))
    assert found.tolist() == [passes(cell) for cell in cells]


def test_times_with_a_zone_are_compared_in_utc():
    zoned = pl.Series("at", [datetime(2024, 1, 1)]).dt.replace_time_zone("Europe/Berlin").to_frame()
    found = [passing(zoned, read_where(zoned, [("at", "<", at)]), 1)[0] for at in HOURS]
    assert found == [False, True]


HOURS = ("2023-12-31T23:00", "2023-12-31T23:01")


def test_an_expression_chooses_items_and_one_without_a_value_does_not_pass():
    assert items(where=pl.col("year") < 2000) == [0, 3]
    assert items(where=pl.col("genres").list.contains("Drama") & (pl.col("score") < 1)) == [0]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (pl.col("price") < 10, "where names the column 'price', .*'genres', 'year'"),
        (pl.col("genres") < 10, "which the columns of the items do not allow .*'genres', 'year'"),
        (pl.col("year") + 1, "values of type Int64, but it is true or false"),
        (pl.col("year").max() > 1, "gives 1 values of type Boolean"),
    ],
)
def test_an_expression_that_chooses_nothing_is_refused(where, told):
    with pytest.raises(SettingsError, match=told):
        items(where=where)


@pytest.mark.parametrize(
    ("column", "text", "told"),
    [
        (
            "year",
            "late",
            "--where asks for late in the column 'year', .*numbers.*such as 1999",
        ),
        ("new", "yes", "true or false"),
        ("day", "1.2.2024", "such as 2024-12-31"),
        ("genre", "x", "--where names the column .*do not have"),
        ("box", "x", "--where names the column 'box', which holds Struct"),
    ],
)
def test_what_was_typed_and_cannot_be_read_is_refused(column, text, told):
    with pytest.raises(SettingsError, match=told):
        read_where(TABLE, [(column, "=", text)])


@pytest.mark.parametrize("given", ["genres=Comedy", ["genres"], "", 3])
def test_what_is_asked_of_no_column_is_refused(given):
    with pytest.raises(SettingsError, match=r"where is .*; give one such as"):
        items(where=given)
