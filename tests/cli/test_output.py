"""How a table leaves a command."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.cli.output import Output, csv_bytes, output_of
from cfuica.errors import SettingsError
from tests.cli.harness import SCRIPT, done, refused
from tests.cli.stand_in import ODD, StandIn

FRAME = pl.DataFrame({"item": ["a,b", "c"], "score": [1.5, float("nan")], "tags": [["x", "y"], []]})


def given_as(name: str, tmp_path: Path) -> bytes:
    path = tmp_path / name
    output_of(out=path).give(FRAME, what="rows", shown=str)
    return path.read_bytes()


def test_the_ending_of_the_file_decides_the_format(tmp_path: Path) -> None:
    assert given_as("out.csv", tmp_path) == b'item,score,tags\n"a,b",1.5,x|y\nc,NaN,""\n'
    assert json.loads(given_as("out.JSON", tmp_path)) == [
        {"item": "a,b", "score": 1.5, "tags": ["x", "y"]},
        {"item": "c", "score": None, "tags": []},
    ]
    assert [json.loads(line) for line in given_as("out.jsonl", tmp_path).splitlines()] == [
        {"item": "a,b", "score": 1.5, "tags": ["x", "y"]},
        {"item": "c", "score": None, "tags": []},
    ]
    assert pl.read_parquet(io.BytesIO(given_as("out.parquet", tmp_path))).equals(FRAME)


def test_the_format_that_is_given_wins_over_the_ending(tmp_path: Path) -> None:
    assert output_of(format_="csv", out=tmp_path / "out.json").format == "csv"
    assert output_of(json_=True, out=tmp_path / "out.csv").format == "json"
    assert output_of(json_=True, format_="json").format == "json"


@given(st.lists(st.floats(width=32), max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_json_is_always_json(scores: list[float], names: list[str]) -> None:
    frame = pl.DataFrame(
        {"score": pl.Series(scores, dtype=pl.Float32), "n": range(len(scores))}
    ).with_columns(names=pl.lit(names, dtype=pl.List(pl.String)))
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        Output("json").give(frame, what="rows", shown=str)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    rows = json.loads(stream.getvalue(), parse_constant=refuse)
    assert [row["n"] for row in rows] == list(range(len(scores)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format_": "xml"}, "--format xml is not known; it is either table or csv or json or js"),
        ({"format_": "csv", "json_": True}, "--json and --format csv contradict each other"),
        ({"out": "out.xlsx"}, "--out out.xlsx does not end in .csv, .json, .jsonl or .parquet"),
        ({"out": "out"}, "say the format with --format"),
        ({"out": "out.csv", "format_": "table"}, "--format table is for people"),
        ({"out": "."}, "--out . cannot be written: it is a folder"),
        ({"out": ""}, "cannot be written: it is a folder"),
        ({"out": "no/where/out.csv"}, "cannot be written: there is no folder no/where; create it"),
    ],
)
def test_what_cannot_be_written_is_refused(options: dict[str, object], message: str) -> None:
    if "out" in options:
        options = {**options, "out": Path(str(options["out"]))}
    with pytest.raises(SettingsError) as caught:
        output_of(**options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_folder_that_may_not_be_written_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(SettingsError, match="may not be written to; give another"):
        output_of(out=tmp_path / "out.csv")


@pytest.mark.parametrize(
    "place", ["test.parquet", "run.json", "model/users.parquet", "model/mine.csv", "link.parquet"]
)
def test_a_model_and_a_run_are_not_written_over(run_copy: Path, place: str) -> None:
    (run_copy.parent / "link.parquet").symlink_to(run_copy / "test.parquet")
    out = run_copy.parent / place if place.startswith("link") else run_copy / place
    before = {path: path.read_bytes() for path in run_copy.rglob("*") if path.is_file()}
    message = refused("recommend", run_copy, "--user", "3", "--out", out)
    whose = "the model in" if "model" in place else "the run"
    assert f"--out {out} cannot be written: it is a place of {whose} {run_copy}" in message
    assert before == {path: path.read_bytes() for path in run_copy.rglob("*") if path.is_file()}


def test_an_answer_may_stand_beside_a_runs_own_files(run_copy: Path) -> None:
    done("recommend", run_copy, "--user", "3", "--out", run_copy / "top.csv")
    assert (run_copy / "top.csv").is_file()


def test_a_refusal_comes_before_the_work(model: StandIn, tmp_path: Path) -> None:
    refused("recommend", "run", "--user", "a", "--out", tmp_path / "no" / "out.csv")
    assert model.calls == []


def test_a_device_is_written_to_as_it_is(model: StandIn) -> None:
    done("recommend", "run", "--user", "a", "--format", "csv", "--out", os.devnull)
    assert not Path(os.devnull).is_file()


def test_parquet_is_not_printed_where_only_text_goes(model: StandIn) -> None:
    message = refused("recommend", "run", "--user", "a", "--format", "parquet")
    assert "Parquet is not for a terminal: give --out FILE" in message
    assert model.calls == []


def test_parquet_goes_into_a_pipe(trained: Path) -> None:
    words = [*SCRIPT, "recommend", str(trained), "--user", "3", "--format", "parquet"]
    outcome = subprocess.run(words, capture_output=True, check=True)
    assert pl.read_parquet(io.BytesIO(outcome.stdout))["user"].unique().to_list() == [3]
    assert outcome.stderr == b""


def test_text_goes_into_a_pipe_as_utf8_whatever_the_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe, encoding="ascii"))
    Output("csv").give(pl.DataFrame({"item": ["ünï"]}), what="rows", shown=str)
    assert pipe.getvalue().decode() == "item\nünï\n"


def test_odd_ids_are_shown_as_they_are(model: StandIn) -> None:
    """No emoji, no markup, and nothing that would paint the terminal."""
    words = [word for one in ODD for word in ("--user", one)]
    text = done("recommend", "run", *words, "-n", "10").out
    assert "For user :heart:\n" in text.replace(" \n", "\n").replace("  ", "")
    assert "[bold]x[/bold]" in text
    assert "\\x1b[31mred" in text
    assert "tab\\there" in text
    assert "\x1b" not in text
    assert "♥" not in text
    assert "❤" not in text


def test_a_written_file_is_reported(model: StandIn, tmp_path: Path) -> None:
    out = tmp_path / "top.csv"
    outcome = done("recommend", "run", "--user", "a", "-n", "2", "--out", out)
    assert outcome.out == ""
    assert outcome.err == f"2 recommendations written to {out}\n"
    assert out.read_text() == (
        "user,rank,item,score,title,genres\na,1,a,4.0,T,x|y\na,2,b,3.0,T,x|y\n"
    )


FORMULAS = ["=1+1", "+1", "-x", "@sum", "\tx", "\rx", "'x", "a=b", "", None]


def test_a_spreadsheet_computes_nothing_of_the_text_in_a_csv() -> None:
    frame = pl.DataFrame({"title": FORMULAS, "score": -1.5, "tags": [["=x", "y"]] * len(FORMULAS)})
    found = pl.read_csv(csv_bytes(frame))
    assert found["score"].to_list() == [-1.5] * len(FORMULAS)
    assert set(found["tags"]) == {"'=x|y"}
    assert found["title"].to_list() == [
        "'=1+1", "'+1", "'-x", "'@sum", "'\tx", "'\rx", "'x", "a=b", "", None,
    ]  # fmt: skip
    same = pl.read_csv(csv_bytes(frame, raw=True))
    assert same["title"].to_list() == FORMULAS


def test_raw_is_for_csv(model: StandIn, tmp_path: Path) -> None:
    model.ids = ("=a", "b")
    words = ["recommend", "run", "--user", "=a", "-n", "1"]
    assert "'=a,1,'=a," in done(*words, "--format", "csv").out
    assert "\n=a,1,=a," in done(*words, "--format", "csv", "--raw").out
    done(*words, "--raw", "--out", tmp_path / "top.csv")
    assert "--raw is for CSV" in refused(*words, "--raw", "--json")
    assert "--raw is for CSV" in refused(*words, "--raw")


@settings(deadline=None)
@given(st.lists(st.text(alphabet="=+-@\t\r\n'\"a,1", max_size=5), min_size=1, max_size=5))
def test_no_cell_of_a_csv_begins_like_a_formula(cells: list[str]) -> None:
    frame = pl.DataFrame({"x": cells, "n": -1})
    safe, raw = (
        [row["x"] for row in csv.DictReader(io.StringIO(csv_bytes(frame, raw=raw).decode(), ""))]
        for raw in (False, True)
    )
    assert raw == cells
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in safe)
    assert [cell.removeprefix("'") for cell in safe] == [cell.removeprefix("'") for cell in cells]
