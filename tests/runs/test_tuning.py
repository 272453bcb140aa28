"""Trials of settings."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.errors import CfuicaError, Interrupted, SettingsError
from cfuica.io import locked
from cfuica.runs import tuning
from cfuica.runs.tuning import Tuned, Tuning
from cfuica.settings import RatingSettings
from cfuica.training.checkpoint import TrainingDiverged
from tests.runs.small import TINY, small_table

FIXED = ("hidden_users", "hidden_items", "max_steps", "dropout", "length_normalisation")
START = TINY.replaced(max_steps=4)


class _Fast(optuna.storages.RDBStorage):
    """Optuna compares the versions of a file for a second, each time it is opened."""

    def __init__(self, url: str) -> None:
        super().__init__(url, skip_compatibility_check=True)


@pytest.fixture(autouse=True)
def _fast_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna.storages, "RDBStorage", _Fast)


def split() -> DataSplit:
    return DataSplit.random(small_table(), folds=10, fold=0, valid=0.1, seed=0)


def tuned(folder: Path, trials: int, *, fixed: tuple[str, ...] = FIXED, **given: Any) -> Tuned:
    data_split, start = given.get("data_split") or split(), given.get("start", START)
    said = given.get("said", [])
    return Tuning(folder, data_split, start, fixed).run(trials, given.get("seconds"), said.append)


def test_the_first_trial_has_the_settings_before_tuning_and_the_best_is_written(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    found = tuned(tmp_path / "tuned", 3, said=said)
    assert said[0].startswith(f"trial 0: RMSE {found.start:.4f}, the best, ")
    assert said[0].endswith("the settings before tuning")
    assert (found.finished, found.pruned, found.measure) == (3, 0, "RMSE")
    assert found.start is not None
    assert found.value <= found.start
    assert RatingSettings().with_file(tmp_path / "tuned" / "best.toml") == found.settings
    assert found.settings == START.replaced(**found.changed)
    assert set(found.changed) <= {"learning_rate", "l2"}


def test_tuning_that_was_stopped_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(tmp_path / "a", 3)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    tuned(tmp_path / "b", 2)
    with monkeypatch.context() as patch:
        patch.setattr(tuning._Pruning, "stepped", stopped)
        with pytest.raises(Interrupted, match="go on with the same command"):
            tuned(tmp_path / "b", 3)
    said: list[str] = []
    tuned(tmp_path / "b", 3, said=said)
    assert len(said) == 1
    values = [
        [trial.value for trial in loaded(tmp_path / name).trials if trial.value is not None]
        for name in ("a", "b")
    ]
    assert values[0] == values[1]
    assert tuned(tmp_path / "b", 3, said=said).finished == 3
    assert len(said) == 1


def loaded(folder: Path) -> optuna.Study:
    storage = f"sqlite:///{folder / 'trials.db'}"
    return optuna.load_study(study_name="cfuica", storage=storage)


def test_the_test_set_is_not_read(tmp_path: Path) -> None:
    whole = split()
    without = replace(whole, test=None, whole=whole.train)
    first, second = tuned(tmp_path / "a", 2), tuned(tmp_path / "b", 2, data_split=without)
    assert first == second


def test_a_trial_that_falls_behind_is_pruned_and_one_that_diverges_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Trial, "should_prune", lambda _: True)
        found = tuned(tmp_path / "tuned", 2, said=said)
    assert (found.finished, found.pruned) == (1, 1)
    assert said[1].startswith("trial 1: pruned, ")

    def diverged(*_: object) -> None:
        raise TrainingDiverged("Training diverged.")

    monkeypatch.setattr(tuning._Pruning, "stepped", diverged)
    found = tuned(tmp_path / "tuned", 3, said=said)
    assert (found.finished, found.pruned) == (1, 1)
    assert said[2].startswith("trial 2: diverged, ")
    assert len(said) == 3


def test_of_the_validations_of_a_percent_the_first_is_reported(tmp_path: Path) -> None:
    start = START.replaced(max_steps=250, validate_every=1, schedule="planned")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Optuna's, where a share of the steps is reported twice
        found = tuned(tmp_path / "tuned", 1, start=start, fixed=(*FIXED, "validate_every"))
    assert found.finished == 1


def test_time_that_is_over_ends_the_trial(tmp_path: Path) -> None:
    with pytest.raises(CfuicaError, match="No trial was finished; give more --minutes"):
        tuned(tmp_path / "tuned", 3, seconds=0)
    with pytest.raises(CfuicaError, match="No trial was finished"):
        tuned(tmp_path / "tuned", 3, seconds=0.01)


def test_trials_of_something_else_are_refused(tmp_path: Path) -> None:
    tuned(tmp_path, 1)
    with pytest.raises(CfuicaError, match="are of other settings; give the options of before"):
        tuned(tmp_path, 2, start=START.replaced(batch_users=9))
    with pytest.raises(CfuicaError, match="are of other ranges"):
        tuned(tmp_path, 2, fixed=(*FIXED, "l2"))
    other = DataSplit.random(small_table(), folds=9, fold=0, valid=0.1, seed=0)
    with pytest.raises(CfuicaError, match="are of other data"):
        tuned(tmp_path, 2, data_split=other)


def test_what_cannot_be_tuned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").write_text("x")
    with pytest.raises(CfuicaError, match="exists and has no trials"):
        tuned(tmp_path, 1)
    (tmp_path / "trials.db").write_text("x" * 5000)
    with pytest.raises(CfuicaError, match="cannot be read as trials"):
        tuned(tmp_path, 1)
    with locked(tmp_path), pytest.raises(CfuicaError, match="Another process is tuning"):
        tuned(tmp_path, 1)
    with pytest.raises(SettingsError, match="judged by a validation set"):
        tuned(tmp_path / "new", 1, data_split=replace(split(), valid=None))
    with pytest.raises(SettingsError, match="--set fixes all that is searched"):
        tuned(tmp_path / "new", 1, fixed=tuple(START.space))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SettingsError, match=r"needs the extra tune .*pip install"):
        tuned(tmp_path / "new", 1)
