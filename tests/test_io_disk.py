from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from cfuica.io import parquet_bytes, read_parquet, write_tensors


def test_tensors_come_back(tmp_path: Path) -> None:
    write_tensors({"a": torch.arange(6.0).reshape(2, 3).T}, tmp_path / "x")
    assert torch.equal(load_file(tmp_path / "x")["a"], torch.arange(6.0).reshape(2, 3).T)


def test_tables_come_back(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 2], "item": ["a", "ü"]})
    path = tmp_path / "[x]*.parquet"
    path.write_bytes(parquet_bytes(frame))
    assert read_parquet(path).equals(frame)


def test_a_damaged_table_is_an_ordinary_error_even_where_polars_panics(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    whole = parquet_bytes(pl.DataFrame({"user": [1, 2, 3]}))
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_parquet(path)
        except ValueError:
            refused += 1
    assert refused > 20


def test_what_the_system_refuses_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory") as refused:
        write_tensors({"a": torch.zeros(3)}, tmp_path / "nowhere" / "x")
    assert refused.value.filename == str(tmp_path / "nowhere" / "x")


def test_what_the_library_refuses_stays_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SafetensorError("too odd")

    monkeypatch.setattr("safetensors.torch.save_file", refuse)
    with pytest.raises(SafetensorError, match="too odd"):
        write_tensors({"a": torch.zeros(3)}, tmp_path / "x")
