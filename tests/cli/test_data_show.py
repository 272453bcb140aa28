from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.harness import done, refused


def test_a_file_is_shown(ratings: Path) -> None:
    result = done("data", "show", ratings)
    assert "2,200" in result.out
    assert "█" in result.out


def test_json_is_all_there_is(ratings: Path) -> None:
    result = done("data", "show", ratings, "--json")
    numbers = json.loads(result.out)
    assert (numbers["interactions"], numbers["users"], numbers["items"]) == (2200, 100, 60)
    assert sum(bar["count"] for bar in numbers["ratings"]) == 2200
    assert result.out.count("\n") == 1


def test_a_registered_name_and_a_picture(tmp_path: Path) -> None:
    done("data", "show", "demo", "--picture", tmp_path / "demo.html")
    assert "<svg" in (tmp_path / "demo.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv"], "'nowhere.csv' is neither a registered data set"),
        (["nowhere.csv", "--picture", "x.png"], "ends in neither"),
        (["nowhere.csv", "--bad-rows", "maybe"], "--bad-rows maybe is not known; it is either"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(arguments: list[str], message: str) -> None:
    assert message in refused("data", "show", *arguments)


def test_the_options_reach_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "books.csv"
    path.write_text('"who";"isbn";"stars"\n"a";"x";"0"\n"a";"y";"5"\n"b";"y";"oops"\n', "utf-8")
    printed = ["--user-column", "who", "--rating-column", "3", "--no-rating", "0"]
    assert "line 4, has 'oops' in column 3 ('stars')" in refused("data", "show", path, *printed)
    result = done("data", "show", path, *printed, "--bad-rows", "skip", "--json")
    numbers = json.loads(result.out)
    assert (numbers["interactions"], numbers["without_rating"]) == (2, 1)


EVENTS = """customer,product,event_type,weight,removed
ann,7,view,1,
ann,7,purchase,2,
bob,7,view,1.5,
bob,8,view,1,yes
"""


def test_events_are_counted_by_type_with_repeats_removals_and_weights(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(EVENTS)
    numbers = json.loads(done("data", "show", tmp_path / "events.csv", "--json").out)
    assert (numbers["rows"], numbers["interactions"], numbers["repeats_dropped"]) == (4, 2, 1)
    assert numbers["rows_by_type"] == {"view": 3, "purchase": 1}
    assert (numbers["rows_that_remove"], numbers["sum_of_weights"]) == (1, 5.5)
    text = done("data", "show", tmp_path / "events.csv").out
    for words in ("rows read", "Rows by type", "purchase", "rows that remove", "sum of the w"):
        assert words in text


def test_a_table_without_events_shows_none(ratings: Path) -> None:
    numbers = json.loads(done("data", "show", ratings, "--json").out)
    assert (numbers["rows"], numbers["rows_by_type"]) == (2200, {})
    assert (numbers["rows_that_remove"], numbers["sum_of_weights"]) == (0, None)
    assert "Rows by type" not in done("data", "show", ratings).out


def test_nothing_but_removals_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item,removed\n1,2,true\n")
    assert "only rows that remove" in refused("data", "show", tmp_path / "events.csv")


def test_the_help_has_an_example_and_the_reading_options() -> None:
    text = done("data", "show", "--help").out
    for option in ("--user-column", "--separator", "--no-header", "--bad-rows", "--no-rating"):
        assert option in text


def test_the_name_of_a_file_is_no_emoji(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(":heart:.csv").write_text("user,item,rating\n1,1,5\n")
    assert ":heart:.csv" in done("data", "show", ":heart:.csv").out
