from __future__ import annotations

import io
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from cfuica.cli import options
from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.errors import SettingsError

FOUND: list[ReadOptions] = []


@options.reads_files
def command(path: Annotated[str, typer.Argument()] = "x", options: ReadOptions = FIND_OUT) -> None:
    FOUND.append(options)


def as_read(*arguments: str) -> ReadOptions:
    """What the options of a command line become."""
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None:
        raise result.exception
    return FOUND.pop()


def test_without_options_the_reader_finds_out() -> None:
    assert as_read() == ReadOptions()


def test_every_option_reaches_the_reader() -> None:
    options = as_read(
        *("--user-column", "who", "--item-column", "2", "--rating-column", "stars"),
        *("--time-column", "when", "--separator", ";", "--no-header", "--encoding", "latin-1"),
        *("--bad-rows", "skip", "--no-rating", "0", "--no-rating", "-1"),
        *("--no-rating-means", "drop", "--type-column", "event", "--weight-column", ""),
        *("--time-unit", "ms", "--time-format", "%Y"),
    )
    assert options == ReadOptions(
        user="who",
        item="2",
        rating="stars",
        timestamp="when",
        type="event",
        weight="",
        time_unit="ms",
        time_format="%Y",
        separator=";",
        header=False,
        encoding="latin-1",
        bad_rows="skip",
        no_rating=(0.0, -1.0),
        no_rating_means="drop",
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--time-unit", "--time-unit odd is not known; it is either s or ms or us or ns."),
        ("--encoding", "--encoding odd is not known; it is either utf-8 or latin-1."),
        ("--bad-rows", "--bad-rows odd is not known; it is either refuse or skip."),
        ("--no-rating-means", "--no-rating-means odd is not known; it is either implicit or drop."),
    ],
)
def test_a_word_that_means_nothing_is_refused(option: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        as_read(option, "odd")
    assert str(caught.value) == message


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_much_is_read_once_it_takes_long(monkeypatch) -> None:
    monkeypatch.setattr(options.sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(options, "_SECONDS_BEFORE_LINE", 0.0)
    show = options.reading_line()
    for done in (0.421, 0.423, 0.5, 1.0):
        show("folder/ratings.csv", done)
    lines = ("reading ratings.csv: 42%", "reading ratings.csv: 50%", "")
    assert terminal.getvalue() == "".join(f"{line}\033[K\r" for line in lines)
    monkeypatch.setattr(options, "_SECONDS_BEFORE_LINE", 60.0)
    options.reading_line()("x.csv", 0.5)
    assert "x.csv" not in terminal.getvalue(), "short reading"


def test_only_a_terminal_is_told_how_much_is_read() -> None:
    assert as_read().progress is None
