"""`cfuica train --progress`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import SCRIPT, done, in_a_process, refused
from tests.runs.small import SET_TINY


def test_json_is_all_that_standard_output_gets(ratings: Path, tmp_path: Path) -> None:
    arguments = ["train", ratings, "--out", "run", "--progress", "json", *SET_TINY]
    outcome = in_a_process(*arguments, cwd=tmp_path)
    assert outcome.returncode == 0
    assert outcome.stderr == ""
    events = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [event.pop("event") for event in events] == ["started", "validated", "validated"]
    assert events[0]["settings"]["max_steps"] == 4
    lines = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert events[1:] == [json.loads(line) for line in lines]


def test_quiet_says_nothing_but_errors(ratings: Path, tmp_path: Path) -> None:
    quiet = ["--out", tmp_path / "run", "--progress", "quiet", *SET_TINY]
    outcome = done("train", ratings, *quiet)
    assert (outcome.out, outcome.err) == ("", "")
    assert "add --overwrite" in refused("train", ratings, *quiet)


@pytest.mark.parametrize("mode", ["auto", "lines"])
def test_lines_are_printed_where_there_is_no_terminal(
    ratings: Path, tmp_path: Path, mode: str
) -> None:
    outcome = done("train", ratings, "--out", tmp_path / "run", "--progress", mode, *SET_TINY)
    assert outcome.out == ""
    first, *steps, outcome_line, last = outcome.err.splitlines()
    assert first.startswith("Training on ")
    assert steps[-1].startswith("step 4/4  loss ")
    assert re.match(r"Kept of model 1/1: the best parameters, of step 2 with a ", outcome_line)
    assert last == f"Done. Test it:  cfuica evaluate {tmp_path / 'run'}"
    assert "\x1b" not in outcome.err


@pytest.mark.parametrize("mode", ["live", "json"])
def test_every_mode_trains(ratings: Path, tmp_path: Path, mode: str) -> None:
    done("train", ratings, "--out", tmp_path / "run", "--progress", mode, *SET_TINY)


def test_an_unknown_mode_is_refused_before_anything_is_written(
    ratings: Path, tmp_path: Path
) -> None:
    arguments = ["--out", tmp_path / "run", "--progress", "loud", *SET_TINY]
    message = refused("train", ratings, *arguments)
    assert "--progress loud is not known; choose from auto, live, lines, json, quiet" in message
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_does_not_make_a_training_look_done(
    ratings: Path, tmp_path: Path
) -> None:
    words = ["train", str(ratings), "--out", "run", "--progress", "json", *SET_TINY]
    with subprocess.Popen(
        [*SCRIPT, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 1
    assert err == (
        "cfuica: Training was stopped because nobody reads its progress any more; train again, "
        "nothing was kept before.\n"
    )
    assert list(tmp_path.iterdir()) == []
