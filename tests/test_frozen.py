"""What a refactoring must not change, written down once: splits, losses, predictions, scores.

Splits are the same for ever, so their hashes are compared exactly. Losses and predictions are
compared to 1e-4, because other processors round differently. On one machine, to the last digit:
`benchmarks/freeze.py OLD`. After a change that is meant to change results, record anew with

    .venv/bin/python -m tests.test_frozen

and show both loss curves in the commit.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.freeze import training, write_tables
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from tests.cli.harness import done

RECORD = Path(__file__).with_name("frozen.json")


def split_hashes(table: Interactions) -> dict[str, str]:
    splits = {
        "random": DataSplit.random(table, folds=5, fold=1, valid=0.1, seed=3),
        "leave-one-out": DataSplit.leave_one_out(table, protocols=True),
        "date": DataSplit.by_date(table, test_share=0.2, valid=0.1),
        "users": DataSplit.cold_start(table, test_share=0.2, valid=0.1, seed=3),
    }
    return {kind: str(split.description["sha256"]) for kind, split in splits.items()}


def observed(folder: Path) -> dict[str, Any]:
    """What the package gives today for the toy tables."""
    write_tables(folder)
    found: dict[str, Any] = {
        "splits": split_hashes(Interactions.read(folder / "ratings.csv")),
        "losses": {},
    }
    for name in ("rating", "ranking"):
        words = training(name, {})
        words[1], words[3] = str(folder / "ratings.csv"), str(folder / name)
        done(*words)
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        found["losses"][name] = [json.loads(line)["loss"] for line in lines]
    pairs = folder / "pairs.csv"
    rows = json.loads(done("predict", folder / "rating", "--pairs", pairs, "--json").out)
    found["predictions"] = [row["prediction"] for row in rows]
    rows = json.loads(done("recommend", folder / "ranking", "--all-users", "-n", 3, "--json").out)
    found["scores"] = [row["score"] for row in rows]
    return found


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return observed(tmp_path_factory.mktemp("frozen"))


@pytest.fixture(scope="module")
def then() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


def test_splits_are_the_same_for_ever(now: dict[str, Any], then: dict[str, Any]) -> None:
    assert now["splits"] == then["splits"]


@pytest.mark.parametrize("task", ["rating", "ranking"])
def test_losses_are_those_of_the_record(
    now: dict[str, Any], then: dict[str, Any], task: str
) -> None:
    assert now["losses"][task] == pytest.approx(then["losses"][task], rel=1e-4)


@pytest.mark.parametrize("kind", ["predictions", "scores"])
def test_answers_are_those_of_the_record(
    now: dict[str, Any], then: dict[str, Any], kind: str
) -> None:
    assert now[kind] == pytest.approx(then[kind], rel=1e-4, abs=1e-4)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        RECORD.write_text(json.dumps(observed(Path(name)), indent=1) + "\n")
