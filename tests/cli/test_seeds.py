"""Several seeds in one command."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

import cfuica.runs.seeds
from cfuica.errors import Interrupted
from cfuica.run_folder import RunFolder
from cfuica.runs.run import Job
from tests.cli.harness import done, refused, run
from tests.runs.small import SET_TINY


@pytest.fixture(scope="module")
def seeded(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two seeds; look, do not touch."""
    path = tmp_path_factory.mktemp("seeds") / "runs"
    done("train", ratings, "--seeds", "0,7", "--out", path, *SET_TINY)
    return path


def test_each_seed_has_a_run_of_its_own_on_the_same_split(seeded: Path) -> None:
    assert sorted(child.name for child in seeded.iterdir()) == ["seed-0", "seed-7"]
    records = [RunFolder(child).read_record() for child in sorted(seeded.iterdir())]
    assert [record["settings"]["seed"] for record in records] == [0, 7]
    assert records[0]["split"] == records[1]["split"]


def test_the_mean_and_the_spread_over_the_seeds_are_evaluated(seeded: Path) -> None:
    found = json.loads(done("evaluate", seeded, "--json").out)
    assert found["seeds"] == [0, 7]
    each = [json.loads(done("evaluate", run_, "--json").out) for run_ in sorted(seeded.iterdir())]
    for name in ("rmse", "mae", "nll", "ece"):
        values = [metrics[name] for metrics in each]
        assert found["metrics"][name] == {
            "mean": statistics.fmean(values),
            "spread": statistics.stdev(values),
            "values": values,
        }
    assert "seed 7" in done("evaluate", seeded).out
    message = refused("evaluate", seeded, "--test", "x.csv")
    assert "has several seeds" in message


def test_the_same_command_trains_no_finished_seed_again(
    ratings: Path, seeded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "run", lambda *_, **__: pytest.fail("trained again"))
    words = ["train", ratings, "--out", seeded, *SET_TINY, "--seeds"]
    said = done(*words, "7,0,7").err.splitlines()
    assert said[-3:-1] == ["Seed 7 is trained already.", "Seed 0 is trained already."]
    message = refused(*words, "0", "--set", "hidden_users=9")
    assert "seed-0 is a run of other settings; choose another --out, or add" in message
    assert "is a run of another split" in refused(*words, "0", "--split-seed", "4")


def test_a_stopped_seed_goes_on_with_the_same_command(
    ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", ratings, "--out", tmp_path / "runs", *SET_TINY, "--seeds", "0,1"]

    def stopped(job: Job, *_: object, **__: object) -> None:
        raise Interrupted("Training was stopped", 2)

    with monkeypatch.context() as patch:
        patch.setattr(Job, "run", stopped)
        outcome = run(*words)
    assert outcome.code == 130
    assert outcome.err.endswith("seed-0; go on with the same command.\n")
    done(*words)
    records = [RunFolder(child).read_record() for child in sorted((tmp_path / "runs").iterdir())]
    assert [record["status"] for record in records] == ["finished"] * 2
    assert records[0]["resumed_at"] == [{"member": 0, "step": 0}]


@pytest.mark.parametrize("seeds", ["", "0,", "a", "-1", "1.5", str(2**63)])
def test_what_is_no_seed_is_refused(ratings: Path, tmp_path: Path, seeds: str) -> None:
    message = refused("train", ratings, "--out", tmp_path / "runs", f"--seeds={seeds}")
    assert "is not of the form N,N,..." in message


def test_seeds_need_a_folder_and_exclude_a_seed(
    ratings: Path, trained: Path, tmp_path: Path
) -> None:
    words = ["train", ratings, *SET_TINY, "--seeds", "0,1", "--out"]
    assert "exclude each other" in refused(*words, tmp_path / "runs", "--seed", "3")
    outcome = run(*words, trained)
    assert outcome.code == 1
    assert "is a run itself; choose another folder" in outcome.err
    assert cfuica.runs.seeds.seed_runs(trained) == {}
