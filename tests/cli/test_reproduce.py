"""`cfuica reproduce`: a tiny one, the same again, and a failing cell."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.harness import done, refused, run

FEW = ("--quick", "--systems", "bias")


def test_a_table_is_reproduced_once_and_its_report_written(ratings: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("reproduce", "table1", "--data", ratings, *FEW, "--out", out)
    outcome = done(*words)
    assert outcome.out == ""
    first, second, last = outcome.err.splitlines()
    assert first == "[1/1] user + item bias, ratings.csv, fold 1, seed 0; about 12 s left"
    assert second.startswith("[1/1] user + item bias, ratings.csv, fold 1, seed 0: RMSE ")
    assert last.startswith("Done. Read it: ")
    (path,) = (out / "cells").iterdir()
    record = json.loads(path.read_text())
    rmse = record["answers"]["ratings"]["rmse"]
    assert (
        f"| user + item bias (beyond the paper) | – | {rmse:.4f} |"
        in (out / "report.md").read_text()
    )
    assert f"{rmse:.4f}" in (out / "report.html").read_text()
    before = path.stat().st_mtime_ns
    assert done(*words).err.splitlines() == [last]
    assert path.stat().st_mtime_ns == before


def test_a_failing_cell_is_said_and_the_exit_code_is_1(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("user,item,rating\n1,2,x\n")
    outcome = run("reproduce", "table1", "--data", bad, *FEW, "--out", tmp_path / "out")
    assert outcome.code == 1
    *_, failed, last = outcome.err.splitlines()
    assert failed.startswith("[1/1] user + item bias, bad.csv, fold 1, seed 0 failed: ")
    assert "bad.csv, line 2" in failed
    assert last.startswith("cfuica: 1 of 1 cells failed, user + item bias, bad.csv, fold 1, seed 0")
    assert last.endswith("the same command tries them again.")


def test_what_cannot_be_reproduced_is_one_sentence(tmp_path: Path) -> None:
    words = ("reproduce", "--out", tmp_path / "out")
    assert "There is no 'table9' to reproduce" in refused(*words, "table9")
    assert "--folds 'one' is not of the form N,N,..." in refused(*words, "table1", "--folds", "one")
    words = (*words, "table1", "--quick", "--systems")
    assert "--systems x is no system of table1; those are pmf," in refused(*words, "x")
    assert "--systems names no system; give names, or leave" in refused(*words, ",")
    assert not (tmp_path / "out").exists()
