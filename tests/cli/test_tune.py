"""`cfuica tune`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.harness import done, refused
from tests.runs.small import SET_TINY


def test_a_command_tunes_and_another_trains_with_the_best(ratings: Path, tmp_path: Path) -> None:
    words = ["tune", ratings, "--trials", "2", "--out", tmp_path / "tuned"]
    outcome = done(*words, *SET_TINY, "--json")
    figures = json.loads(outcome.out)
    assert (figures["finished"], figures["measure"]) == (2, "RMSE")
    best = tmp_path / "tuned" / "best.toml"
    assert f"cfuica train DATA --task rating --settings {best}" in outcome.err
    done("train", ratings, "--settings", best, "--out", tmp_path / "run")
    message = refused(*words, "--valid", "0", *SET_TINY)
    assert "judged by a validation set, and there is none" in message
