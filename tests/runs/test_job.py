from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError, SettingsError
from cfuica.learning.trainer import Listener
from cfuica.runs.folder import RunFolder
from cfuica.runs.job import Parts, peak_memory_gb, run_training
from tests.runs.small import TINY, small_table

PAIR = ["user", "item"]


def pairs_of(table: BehaviourTable | None) -> set[tuple[int, int]]:
    return set() if table is None else set(table.frame.select(PAIR).iter_rows())


@pytest.mark.parametrize("valid", [0.0, 0.05, 0.9])
def test_a_random_split_deals_every_rating_once(valid: float) -> None:
    table = small_table()
    parts = Parts.random(table, folds=10, fold=2, valid=valid, seed=0)
    dealt = [pairs_of(part) for part in (parts.train, parts.valid, parts.test)]
    assert sum(map(len, dealt)) == table.n
    assert set.union(*dealt) == pairs_of(table)
    assert len(dealt[2]) == 220
    assert len(dealt[1]) == int(valid * 1980)
    assert parts.whole is table


def test_the_split_is_recorded_so_that_it_can_be_proved() -> None:
    table = small_table()
    first, again, other = (
        Parts.random(table, folds=10, fold=2, valid=0.05, seed=seed).about for seed in (0, 0, 1)
    )
    assert first == again
    assert first["sha256"] != other["sha256"]
    assert first["folds"] == 10


@pytest.mark.parametrize("valid", [0.0, 0.05, 0.3, 0.9])
def test_everything_means_all_but_the_share_to_validate_on(valid: float) -> None:
    table = small_table()
    parts = Parts.everything(table, valid=valid, seed=0)
    assert parts.test is None
    assert len(pairs_of(parts.valid)) == int(valid * table.n)
    assert pairs_of(parts.train) | pairs_of(parts.valid) == pairs_of(table)
    assert parts.train.n + len(pairs_of(parts.valid)) == table.n


def test_few_ratings_can_be_trained_on_without_validation() -> None:
    frame = pl.DataFrame({"user": [1, 2, 2], "item": [1, 1, 2], "rating": [1.0, 2.0, 3.0]})
    parts = Parts.everything(BehaviourTable.from_frame(frame), valid=0.05, seed=0)
    assert parts.train.n == 3
    assert parts.valid is None


def given(train: pl.DataFrame, test: pl.DataFrame, valid: float = 0.1) -> Parts:
    tables = (BehaviourTable.from_frame(frame) for frame in (train, test))
    return Parts.given(*tables, valid=valid, seed=0)


def test_a_given_split_spans_the_ids_and_ratings_of_both_files() -> None:
    train = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0]})
    test = pl.DataFrame({"user": [3], "item": [9], "rating": [5.0]})
    parts = given(train, test, valid=0.0)
    assert parts.whole.users.ids.to_list() == [1, 2, 3]
    assert parts.whole.item_ids.ids.to_list() == [1, 2, 9]
    assert parts.whole.scale.values == (1.0, 2.0, 5.0)
    assert pairs_of(parts.test) == {(3, 9)}
    assert parts.about["kind"] == "given"


def test_columns_that_only_one_file_has_do_no_harm() -> None:
    train = pl.DataFrame(
        {"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0], "timestamp": [1, 2, 3]}
    )
    test = pl.DataFrame({"user": [2], "item": [2], "rating": [1.0]})
    assert given(train, test).whole.n == 4


def test_files_that_share_a_pair_or_lack_ratings_are_refused() -> None:
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [1.0, 2.0, 2.0]})
    with pytest.raises(DataError, match=r"1 \(user, item\) pairs"):
        given(frame, frame.head(1))
    with pytest.raises(DataError, match="has no ratings"):
        given(frame, pl.DataFrame({"user": [5], "item": [5]}))
    with pytest.raises(DataError, match=r"user ids are Int64 .* String"):
        given(frame, frame.head(1).with_columns(user=pl.lit("a")))


def test_a_run_can_be_repeated_from_what_it_leaves_behind(tmp_path: Path) -> None:
    parts = Parts.random(small_table(), folds=10, fold=0, valid=0.05, seed=0)
    runs = [RunFolder.create(tmp_path / name) for name in "ab"]
    for folder in runs:
        run_training(folder, parts, TINY, preset_name="tiny", listener=Listener())
    first, second = (folder.read_record() for folder in runs)
    assert first["data"] == second["data"]
    assert first["split"] == second["split"]
    assert first["settings"] == TINY.model_dump()
    assert first["data"]["sha256"] == small_table().sha256()
    assert first["training"]["last"]["valid"] == second["training"]["last"]["valid"]
    assert first["training"]["parameters"] == 2 * 160 * 5 * 8 + 2 * 8 + 160 * 5
    assert 0.05 < first["training"]["peak_memory_gb"] < 20
    weights = [(folder.model / "model.safetensors").read_bytes() for folder in runs]
    assert weights[0] == weights[1]
    card = json.loads((runs[0].model / "model.json").read_text("utf-8"))
    assert card["data"] == first["data"]
    assert card["preset"] == "tiny"


def test_the_model_reads_train_and_validation_but_never_the_test_part(tmp_path: Path) -> None:
    parts = Parts.random(small_table(), folds=10, fold=0, valid=0.2, seed=0)
    folder = RunFolder.create(tmp_path / "run")
    model = run_training(folder, parts, TINY, preset_name="tiny", listener=Listener())
    known = model.knowledge
    users, items, _ = known.behaviours.triplets()
    read = set(zip(known.users.decode(users), known.items.decode(items), strict=True))
    assert read == pairs_of(parts.train) | pairs_of(parts.valid)


def test_a_failing_training_leaves_no_folder(tmp_path: Path) -> None:
    parts = Parts.random(small_table(), folds=10, fold=0, valid=0.05, seed=0)
    folder = RunFolder.create(tmp_path / "run")
    nowhere = TINY.replaced(device="nowhere")
    with pytest.raises(SettingsError, match="nowhere"):
        run_training(folder, parts, nowhere, preset_name="tiny", listener=Listener())
    assert list(tmp_path.iterdir()) == []


def test_memory_is_told_in_gigabytes() -> None:
    held = np.ones(50_000_000, np.uint8)
    assert held.nbytes / 1e9 < peak_memory_gb() < 64
