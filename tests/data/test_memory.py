"""A file that would fill the memory is refused before it does, in one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from cfuica import io
from cfuica.data import memory, readers
from cfuica.data.layout import ReadOptions
from cfuica.data.readers import read_table
from cfuica.errors import DataError, SettingsError
from cfuica.io import COLUMNAR_RATIO
from tests.data.files import zstd

LINES = b"user,item,rating\n" + b"1,2,3\n" * 200_000


@pytest.fixture(autouse=True)
def small_bombs(monkeypatch):
    monkeypatch.setattr(io, "_RATIO_FREE", 1 << 16)
    monkeypatch.setattr(readers, "COLUMNAR_RATIO", 200)


@pytest.mark.parametrize("form", ["gzip", "zstd", "parquet", "arrow"])
def test_a_decompression_bomb_is_refused(tmp_path, form):
    path = tmp_path / f"bomb.{form}"
    if form in ("gzip", "zstd"):
        path.write_bytes({"gzip": gzip.compress, "zstd": zstd}[form](LINES))
    else:
        rows = pl.select(user=pl.repeat(1, 200_000), item=pl.repeat(2, 200_000))
        if form == "parquet":
            rows.write_parquet(path)
        else:
            rows.write_ipc(path, compression="zstd")
    with pytest.raises(DataError, match=rf"bomb\.{form} has [0-9,]+ bytes and unpacks to more"):
        read_table(path)


def test_a_parquet_bomb_of_equal_texts_is_refused_while_it_is_read(tmp_path):
    path = tmp_path / "bomb.parquet"
    pl.select(user=pl.repeat("u" * 500, 200_000), item=pl.repeat(2, 200_000)).write_parquet(path)
    with pytest.raises(DataError, match="decompression bomb"):
        read_table(path)


def test_all_pairs_of_users_and_items_are_no_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(io, "_RATIO_FREE", 0)
    monkeypatch.setattr(readers, "COLUMNAR_RATIO", COLUMNAR_RATIO)
    rows = pl.select(user=pl.int_range(20_000) // 100, item=pl.int_range(20_000) % 100, rating=1)
    rows.write_parquet(tmp_path / "x.parquet")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(rows.write_csv().encode()))
    for name in ("x.parquet", "x.csv.gz"):
        assert read_table(tmp_path / name).n == 20_000


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "arrows", "folder"])
def test_more_rows_than_the_memory_may_hold_are_refused(tmp_path, form):
    rows = pl.select(user=pl.int_range(10_000), item=7)
    path = tmp_path / f"x.{form}"
    if form == "folder":
        path.mkdir()
        rows[:5000].write_parquet(path / "a.parquet")
        rows[5000:].write_parquet(path / "b.parquet")
    else:
        {
            "csv": rows.write_csv,
            "parquet": rows.write_parquet,
            "arrow": rows.write_ipc,
            "arrows": rows.write_ipc_stream,
        }[form](path)
    with pytest.raises(DataError, match=r"more than 0\.0001 GB of memory; .*--max-memory"):
        read_table(path, ReadOptions(max_memory=1e-4))
    assert read_table(path, ReadOptions(max_memory=1e-3)).n == 10_000


@pytest.mark.parametrize("most", [0.0, -1.0, float("nan")])
def test_no_memory_at_all_is_refused(tmp_path, most):
    (tmp_path / "x.csv").write_text("user,item\n1,2\n")
    with pytest.raises(SettingsError, match="--max-memory a number above 0"):
        read_table(tmp_path / "x.csv", ReadOptions(max_memory=most))


def test_a_container_has_the_memory_that_it_is_allowed(tmp_path, monkeypatch):
    (tmp_path / "limit").write_text("2000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(memory, "_CONTAINER", tuple(map(str, tmp_path.iterdir())))
    assert memory.most_memory(ReadOptions()) == 1e6


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="this system has no devices")
def test_a_device_is_refused_wherever_it_stands(tmp_path):
    for name in ("zero.csv", "ratings.csv", "part.parquet"):
        (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        read_table(tmp_path / "zero.csv")
    with pytest.raises(DataError, match=r"no Parquet files|not a MovieLens"):
        read_table(tmp_path)
    (tmp_path / "part.parquet").unlink()
    with pytest.raises(DataError, match="not a MovieLens data set"):
        read_table(tmp_path)


def test_a_table_of_many_batches_is_one(tmp_path):
    rows = pl.select(user=pl.int_range(40_000), item=7)
    rows.write_parquet(tmp_path / "x.parquet", row_group_size=1000)
    assert read_table(tmp_path / "x.parquet").frame["user"].n_chunks() == 1
    with pa.ipc.new_stream(tmp_path / "x.arrows", rows.to_arrow().schema) as sink:
        sink.write_table(rows.to_arrow(), max_chunksize=1000)
    assert read_table(tmp_path / "x.arrows").n == 40_000
