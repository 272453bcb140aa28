"""Part files of an answer for many users: what is finished is not computed again.

`answered_in_parts` asks for a block of users at a time and keeps each answer as a Parquet file in a
folder beside the result, so memory holds one block. A process that is killed leaves the finished
parts there, and the next one goes on after them if it asks the same of the same model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from cfuica.errors import CfuicaError
from cfuica.io import (
    locked,
    parquet_bytes,
    read_parquet,
    write_bytes_atomically,
    write_text_atomically,
)

# Rows of a part, and users of one: so many that a part is worth a file, so few that not much is
# lost with an unfinished one.
ROWS_PER_PART, USERS_PER_PART = 200_000, 4096
_REQUEST = "request.json"
Part = tuple[pl.Series, pl.DataFrame]


def folder_of(result: Path) -> Path:
    """Where the parts of a result are until it is finished."""
    return result.with_name(f"{result.name}.parts")


@contextmanager
def answered_in_parts(
    result: Path,
    request: dict[str, Any],
    users: pl.Series,
    n: int,
    answer: Callable[[pl.Series], pl.DataFrame],
    on_done: Callable[[int, bool], None] = lambda users, stored: None,
) -> Iterator[Iterator[Part]]:
    """Gives the users and the answer of each part, in order; the parts are removed after the block.

    `request` is what the answers depend on, as JSON can hold it: parts of another one are thrown
    away. `n` is how many rows a user gets. `on_done` is told how many users are done, and whether
    the last of them were stored already.
    """
    folder = folder_of(result)
    folder.mkdir(exist_ok=True)

    def refuse() -> None:
        raise CfuicaError(
            f"Another process is writing {result} (its parts are in {folder}); wait until it has "
            f"ended, or write to another file."
        )

    with locked(folder, refuse):
        _start(folder, request)
        size = max(1, min(USERS_PER_PART, ROWS_PER_PART // n))
        parts: list[tuple[pl.Series, Path]] = []
        for start in range(0, max(1, len(users)), size):
            own, path = users[start : start + size], folder / f"part-{len(parts):06}.parquet"
            if not (stored := path.exists()):
                write_bytes_atomically(path, parquet_bytes(answer(own)))
            parts.append((own, path))
            on_done(start + len(own), stored)
        yield ((own, read_parquet(path)) for own, path in parts)
        shutil.rmtree(folder)


def _start(folder: Path, request: dict[str, Any]) -> None:
    """Empty the folder, unless its parts answer this request."""
    path, text = folder / _REQUEST, json.dumps(request, sort_keys=True)
    if not path.is_file() or path.read_text("utf-8") != text:
        for part in folder.glob("part-*.parquet"):
            part.unlink()
        write_text_atomically(path, text)
