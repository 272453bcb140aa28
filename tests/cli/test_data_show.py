from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfuica.cli.data_show import show
from cfuica.errors import CfuicaError
from tests.cli.single import run_command


def test_a_file_is_shown(ratings: Path) -> None:
    result = run_command(show, ratings)
    assert result.code == 0
    assert "2,200" in result.out
    assert "█" in result.out


def test_json_is_all_there_is(ratings: Path) -> None:
    result = run_command(show, ratings, "--json")
    numbers = json.loads(result.out)
    assert (numbers["behaviours"], numbers["users"], numbers["items"]) == (2200, 100, 60)
    assert sum(bar["count"] for bar in numbers["ratings"]) == 2200
    assert result.out.count("\n") == 1


def test_a_registered_name_and_a_picture(tmp_path: Path) -> None:
    result = run_command(show, "demo", "--picture", tmp_path / "demo.html")
    assert result.code == 0
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
    with pytest.raises(CfuicaError) as caught:
        run_command(show, *arguments)
    assert message in str(caught.value)


def test_the_help_has_an_example_and_the_reading_options() -> None:
    text = run_command(show, "--help").out
    assert "Example:  cfuica data show ml-1m" in text
    for option in ("--user-column", "--separator", "--no-header", "--bad-rows", "--no-rating"):
        assert option in text
