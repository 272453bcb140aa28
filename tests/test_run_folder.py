from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError, DataError
from cfuica.run_folder import RunFolder
from tests.runs.small import small_table


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a" / "b")
    assert folder.path.is_dir()
    assert folder.model == tmp_path / "a" / "b" / "model"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path).path == tmp_path


@pytest.mark.parametrize(
    "name", ["run.json", "metrics.jsonl", ".unsealed-model-x3a", ".run.json.0f.tmp"]
)
def test_an_earlier_run_is_replaced_when_that_is_asked_for(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(CfuicaError, match="add --overwrite or choose another"):
        RunFolder.create(tmp_path)
    assert (tmp_path / name).exists()
    folder = RunFolder.create(tmp_path, overwrite=True)
    assert os.listdir(tmp_path) == [".replaced"]
    folder.release()
    folder = RunFolder.create(tmp_path, overwrite=True)
    assert os.listdir(tmp_path / ".replaced") == [name]
    folder.finish()
    assert list(tmp_path.iterdir()) == []


def test_overwriting_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("x")
    (tmp_path / "run" / "report.html").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    RunFolder.create(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "run") == [".replaced"]
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_a_folder_with_anything_else_in_it_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CfuicaError, match="not empty; choose another"):
        RunFolder.create(tmp_path, overwrite=True)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_was_just_created_is_not_taken_by_another(
    tmp_path: Path, overwrite: bool
) -> None:
    """Also while it is still empty."""
    first = RunFolder.create(tmp_path / "run")
    with pytest.raises(CfuicaError, match="Another process is training in"):
        RunFolder.create(tmp_path / "run", overwrite=overwrite)
    first.release()
    RunFolder.create(tmp_path / "run")


def test_what_another_process_holds_is_not_discarded(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "run")
    first.write_record({})
    with pytest.raises(CfuicaError, match="Another process is training in"):
        RunFolder(tmp_path / "run").discard()
    assert (first.path / "run.json").is_file()


def test_a_refused_folder_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(CfuicaError, match="not empty"):
        RunFolder.create(tmp_path)
    RunFolder.create(tmp_path, overwrite=True)


def test_a_run_that_failed_at_its_beginning_is_discarded(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_test(small_table())
    folder.discard()
    assert not folder.path.exists()


def test_cleaning_removes_what_was_half_written_and_nothing_else(tmp_path: Path) -> None:
    for name in (".run.json.0f.tmp", ".test.parquet.0f.tmp", "run.json", ".hidden", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".unsealed-model-x3a").mkdir()
    RunFolder(tmp_path).clean()
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", ".hidden", "notes.txt"}


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_record({"a": [1, 2.5, None], "b": "ü"})
    assert folder.read_record() == {"a": [1, 2.5, None], "b": "ü"}


def test_a_missing_or_damaged_record_is_explained(tmp_path: Path) -> None:
    with pytest.raises(CfuicaError, match="is not a run"):
        RunFolder(tmp_path).read_record()
    (tmp_path / "run.json").write_text('{"a": ')
    with pytest.raises(CfuicaError, match=r"run\.json is damaged"):
        RunFolder(tmp_path).read_record()


def test_the_test_part_comes_back_in_the_callers_ids(tmp_path: Path) -> None:
    folder, table = RunFolder(tmp_path), small_table()
    folder.write_test(table)
    assert folder.read_test().frame.equals(table.frame)


@pytest.mark.parametrize(
    "column",
    [
        pl.col("rating").cast(pl.String).cast(pl.Binary),
        pl.col("rating").cast(pl.String).cast(pl.Categorical),
        pl.struct("rating").alias("rating"),
        pl.lit(date(2020, 1, 1)).alias("rating"),
        pl.lit(date(2020, 1, 1)).alias("user"),
        pl.col("item") + 0.5,
        pl.col("timestamp").cast(pl.String),
        pl.when(pl.col("user") > 3).then("user").alias("user"),
    ],
    ids=str,
)
def test_a_test_part_with_columns_of_other_types_is_damaged(
    tmp_path: Path, column: pl.Expr
) -> None:
    frame = small_table().frame.with_columns(timestamp=pl.lit(1, pl.Int64))
    frame.with_columns(column).write_parquet(tmp_path / "test.parquet")
    with pytest.raises(DataError, match=r"test\.parquet is damaged; train again, or name ratings"):
        RunFolder(tmp_path).read_test()


@pytest.mark.parametrize("role", ["user", "item"])
def test_a_test_part_without_a_column_is_damaged(tmp_path: Path, role: str) -> None:
    small_table().frame.drop(role).write_parquet(tmp_path / "test.parquet")
    with pytest.raises(DataError, match=r"test\.parquet is damaged"):
        RunFolder(tmp_path).read_test()


def test_a_test_part_may_have_text_ids_and_missing_ratings(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "item": [1, 2], "rating": [None, 2.0]})
    RunFolder(tmp_path).write_test(Interactions(frame))
    assert RunFolder(tmp_path).read_test().frame.equals(frame)


def test_a_run_without_a_test_part_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--test FILE"):
        RunFolder(tmp_path).read_test()


def test_a_folder_that_is_not_there_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CfuicaError, match="There is no run folder"):
        RunFolder.open(tmp_path / "nowhere")


def test_a_pipe_in_place_of_the_record_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(CfuicaError, match="is not a file"):
        RunFolder(tmp_path).read_record()
