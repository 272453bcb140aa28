from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.errors import SettingsError
from cfuica.ops.runtime import peak_memory_gb
from cfuica.run_folder import RunFolder
from cfuica.runs.run import Job
from cfuica.training.trainer import Callback
from tests.data.test_split_tables import pairs_of
from tests.runs.small import TINY, small_table


def test_a_run_can_be_repeated_from_what_it_leaves_behind(tmp_path: Path) -> None:
    data_split = DataSplit.random(small_table(), folds=10, fold=0, valid=0.05, seed=0)
    runs = [RunFolder.create(tmp_path / name) for name in "ab"]
    for folder in runs:
        Job.new(folder, data_split, TINY, preset="tiny").run(Callback())
    first, second = (folder.read_record() for folder in runs)
    assert first["data"] == second["data"]
    assert first["split"] == second["split"]
    assert first["settings"] == TINY.model_dump()
    assert first["data"]["sha256"] == small_table().sha256()
    assert first["training"]["last"]["valid"] == second["training"]["last"]["valid"]
    rows = 100 + 60 + 2  # those of cold_start too
    assert first["training"]["parameters"] == 2 * rows * 5 * 8 + 2 * 8 + rows * 5
    assert 0.05 < first["training"]["peak_memory_gb"] < 20
    weights = [(folder.model / "model.safetensors").read_bytes() for folder in runs]
    assert weights[0] == weights[1]
    card = json.loads((runs[0].model / "model.json").read_text("utf-8"))
    assert card["data"] == first["data"]
    assert card["preset"] == "tiny"


def test_a_record_tells_the_cold_start_network_apart(tmp_path: Path) -> None:
    """Its scores, of users as cold-start users or items, are not those of the model."""
    data_split = DataSplit.random(small_table(), folds=10, fold=0, valid=0.05, seed=0)
    alone, beside = (RunFolder.create(tmp_path / name) for name in "ab")
    Job.new(alone, data_split, TINY, preset="tiny").run(Callback())
    settings = TINY.replaced(cold_start_units=3)
    model = Job.new(beside, data_split, settings, preset="tiny").run(Callback())
    first, second = (folder.read_record()["training"] for folder in (alone, beside))
    assert first["cold_start"] is None
    assert second["last"]["valid"] == first["last"]["valid"]
    assert second["parameters"] == first["parameters"]
    assert (second["last"]["member"], second["last"]["cold_start"]) == (0, False)
    cold_start = second["cold_start"]
    assert cold_start["parameters"] == 2 * 162 * 5 * 3 + 2 * 3 + 162 * 5
    assert (cold_start["last"]["member"], cold_start["last"]["cold_start"]) == (1, True)
    assert cold_start["last"]["valid"] != second["last"]["valid"]
    assert second["steps"] == 2 * first["steps"] == 40
    assert model.artifact.card["training"] == second
    lines = map(json.loads, beside.metrics.read_text("utf-8").splitlines())
    assert [(line["member"], line["cold_start"]) for line in lines] == [
        (0, False), (0, False), (1, True), (1, True),
    ]  # fmt: skip
    assert beside.report.read_text("utf-8").count("<svg") == 8  # curves and calibration of each


def test_the_model_reads_train_and_validation_but_never_the_test_part(tmp_path: Path) -> None:
    data_split = DataSplit.random(small_table(), folds=10, fold=0, valid=0.2, seed=0)
    folder = RunFolder.create(tmp_path / "run")
    model = Job.new(folder, data_split, TINY, preset="tiny").run(Callback())
    known = model.artifact
    users, items, _ = known.interactions.triplets()
    read = set(zip(known.users.decode(users), known.items.decode(items), strict=True))
    assert read == pairs_of(data_split.train) | pairs_of(data_split.valid)


def test_a_failing_training_leaves_no_folder(tmp_path: Path) -> None:
    data_split = DataSplit.random(small_table(), folds=10, fold=0, valid=0.05, seed=0)
    folder = RunFolder.create(tmp_path / "run")
    nowhere = TINY.replaced(device="nowhere")
    with pytest.raises(SettingsError, match="nowhere"):
        Job.new(folder, data_split, nowhere, preset="tiny").run(Callback())
    assert list(tmp_path.iterdir()) == []


def test_memory_is_told_in_gigabytes() -> None:
    held = np.ones(50_000_000, np.uint8)
    assert held.nbytes / 1e9 < peak_memory_gb() < 64
