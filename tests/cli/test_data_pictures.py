from __future__ import annotations

import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from cfuica.cli.data import in_terminal, write_picture
from cfuica.data.summary import Summary
from cfuica.data.table import Interactions
from cfuica.errors import SettingsError
from tests.runs.small import small_table


def shown(summary: Summary) -> str:
    out = StringIO()
    Console(file=out, width=80).print(in_terminal(summary))
    return out.getvalue()


def test_the_terminal_shows_counts_bars_and_tails() -> None:
    summary = Summary.of(small_table())
    text = shown(summary)
    for expected in ("2,200", "interactions", "█" * 30, "top 10%", "fewer than 5", "density"):
        assert expected in text
    assert max(map(len, text.splitlines())) <= 80


def test_data_without_ratings_and_times_is_shown_all_the_same(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1]})
    summary = Summary.of(Interactions.from_frame(frame))
    text = shown(summary)
    assert "█" not in text
    assert "times" in text
    write_picture(summary, tmp_path / "tail.svg")
    assert len(list(ET.parse(tmp_path / "tail.svg").getroot())) == 1


def test_names_with_brackets_are_not_markup() -> None:
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 1], "rating": [1.0, 2.0]})
    table = Interactions.of_rows(frame, source="a[/b]c", source_notes=("[red]note",))
    text = shown(Summary.of(table))
    assert "a[/b]c" in text
    assert "[red]note" in text


def test_pictures_are_an_svg_of_two_charts_or_a_page_with_the_tables(tmp_path: Path) -> None:
    summary = Summary.of(small_table())
    write_picture(summary, tmp_path / "world.svg")
    assert len(list(ET.parse(tmp_path / "world.svg").getroot())) == 2
    write_picture(summary, tmp_path / "world.HTML")
    page = (tmp_path / "world.HTML").read_text("utf-8")
    assert page.count("<svg") == 2
    assert "Interactions of each" in page


def test_a_picture_in_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ends in neither \.svg nor \.html"):
        write_picture(Summary.of(small_table()), tmp_path / "world.png")
    assert list(tmp_path.iterdir()) == []


def test_times_that_are_no_dates_are_shown_in_full() -> None:
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "timestamp": [10**12, 10**12 + 7]})
    table = Interactions.from_frame(frame, time_unit="s")
    assert "1000000000000 to 1000000000007" in shown(Summary.of(table))


def test_small_times_are_shown_as_an_order() -> None:
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "timestamp": [1, 2000]})
    assert "an order, from 1 to 2,000" in shown(Summary.of(Interactions.from_frame(frame)))
