from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cfuica.reporting.charts import Chart, Series, line_chart
from cfuica.reporting.report import Table, write_markdown, write_report

CHART = line_chart(Chart("curve", "x", "y", [Series("s", [0, 1], [1, 0])]))
SCORES = Table(
    "Test scores",
    ["model", "RMSE", "seconds"],
    [["global mean", "1.118", "–"], ["CF-UIcA", "0.861", "12 s"]],
)


class _Outline(HTMLParser):
    """Collects tags and text, and checks that every tag is closed in order."""

    VOID = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def written(folder: Path, **changes: object) -> str:
    arguments = {
        "title": "Report",
        "intro": "One.\n\nTwo.",
        "tables": [SCORES],
        "charts": [CHART],
        "notes": ["seed 0"],
    }
    write_report(folder / "report.html", **{**arguments, **changes})
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_holds_everything(tmp_path: Path) -> None:
    page = written(tmp_path)
    outline = _Outline(page)
    assert {"Report", "One.", "Two.", "Test scores", "CF-UIcA", "0.861", "seed 0"} <= set(
        outline.texts
    )
    assert CHART in page


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    page = written(tmp_path)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<link|<img|<iframe|href=|src=|url\(|@import", page)
    assert "default-src 'none'" in page


def test_all_text_is_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert('&')</script>"
    outline = _Outline(
        written(
            tmp_path,
            title=hostile,
            intro=hostile,
            tables=[Table(hostile, [hostile], [[hostile]])],
            notes=[hostile],
        )
    )
    assert "script" not in {tag for tag, _ in outline.tags}
    # Title twice (head and heading), intro, table's title, column, cell and note.
    assert outline.texts.count(hostile) == 7


def test_numbers_are_aligned_right(tmp_path: Path) -> None:
    tags = _Outline(written(tmp_path)).tags
    cells = [attributes.get("class") for tag, attributes in tags if tag == "td"]
    assert cells == [None, "number", "number"] * 2


def test_empty_parts_are_left_out(tmp_path: Path) -> None:
    page = written(tmp_path, intro="", tables=[], charts=[], notes=[])
    assert not re.search(r"<p>|<table|<figure|Notes", page)


def test_a_table_without_rows_keeps_its_head(tmp_path: Path) -> None:
    assert "<th>model</th>" in written(tmp_path, tables=[Table("Empty", ["model"], [])])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tables": [Table("Bad", ["a", "b"], [["1"]])]}, "longer"),
        ({"charts": ["<b>no chart</b>"]}, "must be an SVG document"),
    ],
)
def test_a_report_that_cannot_be_made_leaves_the_old_one(tmp_path, changes, message) -> None:
    before = written(tmp_path)
    with pytest.raises(ValueError, match=message):
        written(tmp_path, **changes)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_table_may_have_an_intro(tmp_path: Path) -> None:
    page = written(tmp_path, tables=[Table("T", ["a"], [["b"]], "First <this>.")])
    assert (
        page.index("<h2>T</h2>") < page.index("<p>First &lt;this&gt;.</p>") < page.index("<table>")
    )
    assert "<p></p>" not in written(tmp_path)


def test_the_same_as_markdown(tmp_path: Path) -> None:
    table = Table("Scores", ["model", "RMSE"], [["a | b", "1.5"]], "Say this first.")
    write_markdown(
        tmp_path / "report.md",
        title="Report",
        intro="One.",
        tables=[table],
        pictures={"a curve": "figures/a.svg"},
        notes=["seed 0"],
    )
    assert (tmp_path / "report.md").read_text("utf-8").split("\n\n") == [
        "# Report",
        "One.",
        "## Scores",
        "Say this first.",
        "| model | RMSE |\n| --- | ---: |\n| a &#124; b | 1.5 |",
        "![a curve](figures/a.svg)",
        "## Notes",
        "- seed 0\n",
    ]
