"""Words of the command line as what a model is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.cli.options import history_of, ids, max_per_of, users_of_file, where_of
from cfuica.errors import CfuicaError

_items = st.text(min_size=1, max_size=8).filter(lambda t: "," not in t and t == t.strip())


@settings(deadline=None)  # the first history imports what others find imported
@given(st.dictionaries(_items, st.floats(-5, 5), min_size=1, max_size=5))
def test_any_history_without_commas_in_its_ids_can_be_given(history: dict[str, float]) -> None:
    text = ",".join(f"{item}:{rating!r}" for item, rating in history.items())
    printed = history_of(text, None, rated=True)
    assert printed is not None
    assert printed.columns == ["item", "rating"]
    assert dict(printed.rows()) == history


def test_the_rating_stands_behind_the_last_colon() -> None:
    printed = history_of(" urn:x:1 : 4.5 , b:-1e0 ", None, rated=True)
    assert printed is not None
    assert printed.rows() == [("urn:x:1", 4.5), ("b", -1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("318", "'318' is not of the form ITEM:RATING, such as 318:5"),
        (":5", "':5' is not of the form"),
        ("318:", "'318:' has no rating behind its last colon"),
        ("318:5,", "'' is not of the form"),
        ("318:five", "'318:five' has the rating 'five' behind its last colon, but a finite number"),
        ("318:nan", "the rating 'nan'"),
        ("318:1_0", "the rating '1_0'"),
        ("318:inf", "the rating 'inf'"),
        ("a:1,b:2,a:1", "The item 'a' is in --history more than once; give each item the one"),
    ],
)
def test_a_history_that_is_none_is_explained(text: str, message: str) -> None:
    with pytest.raises(CfuicaError) as caught:
        history_of(text, None, rated=True)
    assert message in str(caught.value)


def test_a_history_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text('rating,item\n5,"a,b"\n3,c\n')
    printed = history_of(None, path, rated=True)
    assert printed is not None
    assert printed.rows() == [("a,b", 5.0), ("c", 3.0)]
    path.write_text("item,rating\n7,5\n8,4\n7,5\n")
    with pytest.raises(CfuicaError, match=r"The item 7 is in .*history.csv more than once"):
        history_of(None, path, rated=True)
    with pytest.raises(CfuicaError, match="give one of them"):
        history_of("a:1", path, rated=True)
    assert history_of(None, None, rated=True) is None


def test_users_of_a_file_come_once_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("user,item\n9,1\n3,1\n9,2\n")
    assert users_of_file(tmp_path / "users").to_list() == [9, 3]


def test_ids_come_once_and_an_empty_one_is_refused() -> None:
    assert ids("--user", ["b", " a ", "b"]) == ["b", "a"]
    for empty in ("", "  "):
        with pytest.raises(CfuicaError, match="--user is empty, but an id was expected"):
            ids("--user", ["a", empty])


def test_a_filter_is_a_column_a_comparison_and_a_value() -> None:
    texts = ["genres=Comedy", "genres= Film-Noir=x ", "price < 10", "price<=9.5", "year>=1990"]
    assert where_of([*texts, "brand!=a>b", "year>1"]) == [
        ("genres", "=", "Comedy"),
        ("genres", "=", "Film-Noir=x"),
        ("price", "<", "10"),
        ("price", "<=", "9.5"),
        ("year", ">=", "1990"),
        ("brand", "!=", "a>b"),
        ("year", ">", "1"),
    ]


@pytest.mark.parametrize("text", ["genres", "=x", "genres=", "=", "", " = "])
def test_a_filter_that_is_none_is_explained(text: str) -> None:
    with pytest.raises(CfuicaError, match="is not of the form COLUMN=VALUE, for example --where"):
        where_of([text])
    with pytest.raises(CfuicaError, match="is not of the form COLUMN=N, for example --max-per"):
        max_per_of([text])


def test_limits_are_whole_numbers_from_1() -> None:
    assert max_per_of(["series=1", "brand=20"]) == {"series": 1, "brand": 20}
    for number in ("0", "-1", "1.5", "x", "²", "१"):
        with pytest.raises(CfuicaError, match="is not a whole number of at least 1"):
            max_per_of([f"series={number}"])
    with pytest.raises(CfuicaError, match="names the column 'series' twice"):
        max_per_of(["series=1", "series=2"])
