"""Answers in part files, of a process that is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from cfuica.models import part_files
from cfuica.models.part_files import answered_in_parts, folder_of

USERS = pl.Series("id", range(1000))
# A process that takes its time for each part.
SLOW = """
import sys, time, polars as pl
from pathlib import Path
from cfuica.models import part_files
part_files.USERS_PER_PART = 10
def answer(own):
    time.sleep(0.02)
    return pl.DataFrame({"user": own, "rank": [1] * len(own)})
users = pl.Series("id", range(1000))
with part_files.answered_in_parts(Path(sys.argv[1]), {"n": 1}, users, 1, answer):
    pass
"""


def test_what_a_killed_process_has_finished_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_files, "USERS_PER_PART", 10)
    out = tmp_path / "recs.csv"
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(out)])
    deadline = time.monotonic() + 60
    while not (folder_of(out) / "part-000002.parquet").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    finished = len(list(folder_of(out).glob("part-*.parquet")))
    assert 3 <= finished < 100
    asked: list[int] = []

    def answer(own: pl.Series) -> pl.DataFrame:
        asked.extend(own)
        return pl.DataFrame({"user": own, "rank": [1] * len(own)})

    with answered_in_parts(out, {"n": 1}, USERS, 1, answer) as parts:
        whole = pl.concat([frame for _, frame in parts])
    assert asked == list(range(10 * finished, 1000))
    assert whole["user"].to_list() == USERS.to_list()
    assert not folder_of(out).exists()


def test_nobody_is_answered_in_one_empty_part(tmp_path: Path) -> None:
    empty = pl.DataFrame(schema={"user": pl.Int64})
    with answered_in_parts(tmp_path / "r", {}, USERS.head(0), 1, lambda own: empty) as parts:
        assert [frame.height for _, frame in parts] == [0]
