from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, refused, run
from tests.cli.stand_in import StandIn


@pytest.fixture
def known(model: StandIn) -> StandIn:
    """A model that knows users of the small world."""
    model.ids = ("5", "6")
    return model


def in_test_part(folder: Path) -> set[int]:
    return set(pl.read_parquet(folder / "test.parquet")["user"])


def test_the_model_and_the_test_set_of_the_run_forget(known: StandIn, run_copy: Path) -> None:
    before = pl.read_parquet(run_copy / "test.parquet")
    rows = before.filter(pl.col("user").is_in([5, 6])).height
    assert rows
    outcome = done("forget", run_copy, "--user", "5", "--user", "6", "--user", "5")
    assert [call[1] for call in known.calls] == [("5",), ("6",)]
    assert known.saved == run_copy / "model"
    after = pl.read_parquet(run_copy / "test.parquet")
    assert after.equals(before.filter(~pl.col("user").is_in([5, 6])))
    assert "User 5: 7 interactions and the user's parameters were removed." in outcome.out
    assert f"{rows} rows of the run's test set were removed too." in outcome.out
    assert "leave the rows out of the data of the next training" in outcome.out


def test_elsewhere_the_run_stays_as_it_was(known: StandIn, run_copy: Path, tmp_path: Path) -> None:
    before = (run_copy / "test.parquet").read_bytes()
    outcome = done("forget", run_copy, "--user", "5", "--out", tmp_path / "model")
    assert (run_copy / "test.parquet").read_bytes() == before
    assert known.saved == tmp_path / "model"
    assert f"{run_copy} itself is unchanged" in outcome.out


@pytest.mark.parametrize("words", [[], ["--out", "model"]])
def test_the_model_folder_of_a_run_stands_for_the_run(
    known: StandIn, run_copy: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_copy)
    done("forget", "model", "--user", "5", *words)
    assert 5 not in in_test_part(run_copy)


def test_a_file_beside_a_model_that_is_of_no_run_is_not_touched(
    known: StandIn, run_copy: Path
) -> None:
    (run_copy / "run.json").unlink()
    done("forget", run_copy, "--user", "5")
    assert 5 in in_test_part(run_copy)


def test_a_test_set_of_only_this_user_is_removed(known: StandIn, run_copy: Path) -> None:
    path = run_copy / "test.parquet"
    pl.read_parquet(path).filter(pl.col("user") == 5).write_parquet(path)
    done("forget", run_copy, "--user", "5")
    assert not path.exists()
    done("forget", run_copy, "--user", "5")


def test_nothing_changes_where_one_of_them_is_unknown(known: StandIn, run_copy: Path) -> None:
    message = refused("forget", run_copy, "--user", "5", "--user", "zzz")
    assert message == "cfuica: The user 'zzz' is unknown to this model."
    assert known.saved is None
    assert 5 in in_test_part(run_copy)


def test_what_killed_processes_left_goes_too(known: StandIn, run_copy: Path) -> None:
    for name in (".test.parquet.123.tmp", ".unsealed-model-old-1", "unfinished", ".replaced"):
        (run_copy / name).mkdir()
    done("forget", run_copy, "--user", "5")
    assert not [path.name for path in run_copy.iterdir() if path.name[0] == "."]
    assert not (run_copy / "unfinished").exists()


def test_they_go_even_if_the_user_is_gone_by_now(known: StandIn, run_copy: Path) -> None:
    """A command that was killed after it put the new model in place is run again."""
    (run_copy / ".unsealed-model-old-1").mkdir()
    refused("forget", run_copy, "--user", "zzz")
    assert not (run_copy / ".unsealed-model-old-1").exists()


def test_no_user_is_forgotten_in_an_unfinished_run(known: StandIn, run_copy: Path) -> None:
    record = json.loads((run_copy / "run.json").read_text())
    (run_copy / "run.json").write_text(json.dumps(record | {"status": "training"}))
    message = refused("forget", run_copy, "--user", "5")
    assert "is not finished and keeps all its data" in message
    assert f"cfuica train --resume {run_copy}" in message
    assert known.calls == []


def test_a_user_must_be_given(known: StandIn, run_copy: Path) -> None:
    assert run("forget", run_copy).code == 2
    assert "--user is empty" in refused("forget", run_copy, "--user", "")


def test_a_real_model_forgets(run_copy: Path) -> None:
    own = load(run_copy).explain(5, 1).history.height
    rows = pl.read_parquet(run_copy / "test.parquet").filter(pl.col("user") == 5).height
    outcome = done("forget", run_copy, "--user", "5")
    assert "User 5: " in outcome.out
    after = load(run_copy)
    assert 5 not in after.artifact.users.ids
    assert after.explain(5, 1).history.height == 0 < own
    if rows:
        assert 5 not in in_test_part(run_copy)
    message = refused("forget", run_copy, "--user", "5")
    assert "user '5' is unknown to this model, so there is nothing to forget" in message
