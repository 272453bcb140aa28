from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.data.splits import Split
from cfuica.data.table import Interactions
from cfuica.errors import ModelFileError
from cfuica.io import MANIFEST, sha256_of_file
from cfuica.runs.inputs import save_inputs, saved_inputs
from tests.runs.small import TINY, small_table


def spaced(table: Interactions) -> Interactions:
    """With items that nobody rated."""
    return replace(table, item_space=pl.Series([*table.item_ids.ids, 1000, 1001]))


def with_a_rest(table: Interactions) -> DataSplit:
    """With interactions in no part, which alone have some of the users and ratings."""
    rows = np.arange(table.n)
    split = Split(train=rows[50:1500], valid=rows[1500:1600], test=rows[1600:1700])
    return DataSplit.of_split(table, split, kind="mine")


def named(table: Interactions) -> Interactions:
    """With ids that are text."""
    frame = table.frame.with_columns(user="u" + pl.col("user").cast(pl.String))
    return replace(table, frame=frame)


def given(table: Interactions) -> DataSplit:
    """A test file without the timestamps that the training file has."""
    test = replace(table.take(np.arange(200)))
    bare = replace(test, frame=test.frame.drop("timestamp", strict=False), source="test.csv")
    return DataSplit.given(table.take(np.arange(200, 2200)), bare, valid=0.1, seed=0)


PARTS = {
    "random": DataSplit.random(small_table(), folds=10, fold=0, valid=0.05, seed=0),
    "no test": DataSplit.everything(small_table(), valid=0.1, seed=0),
    "only train": DataSplit.everything(small_table(), valid=0, seed=0),
    "item space": DataSplit.random(spaced(small_table()), folds=10, fold=0, valid=0.05, seed=0),
    "rest": with_a_rest(small_table()),
    "text ids": DataSplit.random(named(small_table()), folds=10, fold=0, valid=0.05, seed=0),
    "given": given(small_table()),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_parts_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    before = PARTS[name]
    save_inputs(tmp_path / "inputs", before, TINY)
    after, _ = saved_inputs(tmp_path / "inputs")
    for part in ("train", "valid", "test"):
        one, other = getattr(before, part), getattr(after, part)
        assert (one is None) == (other is None)
        assert one is None or one.frame.equals(other.frame)
    for axis in ("users", "item_ids"):
        assert getattr(before.whole, axis).ids.equals(getattr(after.whole, axis).ids)
    assert before.whole.scale == after.whole.scale
    assert before.whole.source == after.whole.source
    assert before.description == after.description
    if before.whole.items is not None:
        assert after.whole.items is not None
        assert before.whole.items.equals(after.whole.items)


@pytest.mark.parametrize(
    ("name", "content"), [("train.parquet", b"PAR1 no more"), ("about.json", b"{}")]
)
def test_a_file_sealed_in_a_damaged_state_is_refused(
    tmp_path: Path, name: str, content: bytes
) -> None:
    folder = tmp_path / "inputs"
    save_inputs(folder, PARTS["random"], TINY)
    (folder / name).write_bytes(content)
    hashes = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**hashes, name: sha256_of_file(folder / name)}))
    with pytest.raises(ModelFileError, match=r"inputs is damaged \(.*\); train again"):
        saved_inputs(folder)
