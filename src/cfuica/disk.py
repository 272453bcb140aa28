"""Tables and tensors on disk, where a refusal of the system is an OSError as for any other file.

The libraries wrap it (a full disk, missing rights) in errors of their own, which say nothing about
what they are; and at damaged bytes polars may panic, which is not even an Exception.
"""

from __future__ import annotations

import os
import re
from io import BytesIO
from pathlib import Path

import polars as pl
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """The content of a Parquet file, to be written like any other bytes."""
    buffer = BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def read_parquet(path: Path) -> pl.DataFrame:
    """The table of a Parquet file; a ValueError where it is damaged."""
    try:
        # Not by its name, which may have a [ or a * in it, or no reading as text.
        return pl.read_parquet(path.read_bytes())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise ValueError(f"{path.name} is not a whole Parquet file") from None


def write_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """A safetensors file."""
    on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(on_cpu, path, metadata)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
