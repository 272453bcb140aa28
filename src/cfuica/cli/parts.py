"""The data arguments of `cfuica train` into tables."""

from __future__ import annotations

from pathlib import Path

from cfuica.data.registry import resolve
from cfuica.data.table import BehaviourTable
from cfuica.errors import SettingsError
from cfuica.runs.job import Parts


def parts_of(
    data: str | None,
    train_file: Path | None,
    test_file: Path | None,
    *,
    split: str,
    folds: int,
    fold: int,
    valid: float,
    seed: int,
) -> Parts:
    """The tables to train, validate and test on."""
    if not 0 <= valid < 1:
        raise SettingsError(f"--valid {valid} is not a share: give a number from 0 to below 1.")
    if train_file is not None or test_file is not None:
        if data is not None:
            raise SettingsError(f"Give either DATA ({data}) or --train and --test, not both.")
        if train_file is None or test_file is None:
            raise SettingsError("--train and --test belong together; give both or DATA.")
        return Parts.given(
            BehaviourTable.read(train_file), BehaviourTable.read(test_file), valid=valid, seed=seed
        )
    if data is None:
        raise SettingsError(
            "No data was given: name it (cfuica train ml-1m --out RUN), or give --train FILE and "
            "--test FILE."
        )
    if split == "random":
        return Parts.random(resolve(data), folds=folds, fold=fold, valid=valid, seed=seed)
    if split == "none":
        return Parts.everything(resolve(data), valid=valid, seed=seed)
    raise SettingsError(f"--split {split} is not known; the splits are random and none.")
