from __future__ import annotations

import io

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cfuica.cli.output import plain, ranked_for_each


def printed(shown: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(shown)
    return stream.getvalue()


@given(st.text(max_size=20))
def test_ids_stay_on_their_line_and_move_no_cursor(text: str) -> None:
    shown = plain(text).plain
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text


def test_a_console_that_knows_emoji_and_markup_shows_ids_as_they_are() -> None:
    top = pl.DataFrame({"user": ["[b]:heart:"], "rank": [1], "item": [":x:"], "score": [1.5]})
    text = printed(ranked_for_each(top, "user", "For user", "expected rating"))
    assert "For user [b]:heart:\n" in text
    assert ":x:" in text
    assert "expected rating" in text
    assert "1.500" in text


def test_without_rows_nothing_is_shown() -> None:
    top = pl.DataFrame(schema={"rank": pl.Int32, "item": pl.String, "score": pl.Float64})
    assert printed(ranked_for_each(top, "user", "For this history")) == ""
    users = top.with_columns(user=pl.lit("a", dtype=pl.String))
    assert printed(ranked_for_each(users, "user", "For user")) == ""
