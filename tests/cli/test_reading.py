from __future__ import annotations

import pytest

from cfuica.cli import reading
from cfuica.data.options import ReadOptions
from cfuica.errors import SettingsError
from tests.cli.single import run_command

FOUND: list[ReadOptions] = []


def command(
    user_column: reading.UserColumn = None,
    item_column: reading.ItemColumn = None,
    rating_column: reading.RatingColumn = None,
    time_column: reading.TimeColumn = None,
    separator: reading.Separator = None,
    header: reading.Header = None,
    encoding: reading.Encoding = None,
    bad_rows: reading.BadRows = "refuse",
    no_rating: reading.NoRating = None,
    no_rating_means: reading.NoRatingMeans = "implicit",
) -> None:
    FOUND.append(reading.read_options(**locals()))


def as_read(*arguments: str) -> ReadOptions:
    """What the options of a command line become."""
    assert run_command(command, *arguments).code == 0
    return FOUND.pop()


def test_without_options_the_reader_finds_out() -> None:
    assert as_read() == ReadOptions()


def test_every_option_reaches_the_reader() -> None:
    options = as_read(
        *("--user-column", "who", "--item-column", "2", "--rating-column", "stars"),
        *("--time-column", "when", "--separator", ";", "--no-header", "--encoding", "latin-1"),
        *("--bad-rows", "skip", "--no-rating", "0", "--no-rating", "-1"),
        *("--no-rating-means", "drop"),
    )
    assert options == ReadOptions(
        user="who",
        item="2",
        rating="stars",
        timestamp="when",
        separator=";",
        header=False,
        encoding="latin-1",
        bad_rows="skip",
        no_rating=(0.0, -1.0),
        no_rating_means="drop",
    )


@pytest.mark.parametrize("word", ["\\t", "tab", "\t"])
def test_a_tab_can_be_named(word: str) -> None:
    assert as_read("--separator", word).separator == "\t"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--encoding", "--encoding odd is not known; it is either utf-8 or latin-1."),
        ("--bad-rows", "--bad-rows odd is not known; it is either refuse or skip."),
        ("--no-rating-means", "--no-rating-means odd is not known; it is either implicit or drop."),
    ],
)
def test_a_word_that_means_nothing_is_refused(option: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        as_read(option, "odd")
    assert str(caught.value) == message
