from __future__ import annotations

from pathlib import Path

import pytest

from cfuica.runs import run
from cfuica.runs.run import RunCheckpointer, StopRequest
from cfuica.training.checkpoint import CheckpointFolder
from tests.training.test_checkpoint import checkpoint, same


def test_a_checkpoint_is_due_so_many_seconds_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(run.time, "monotonic", lambda: now)
    checkpointer = RunCheckpointer(CheckpointFolder(tmp_path), every_seconds=10, stop=StopRequest())
    now = 109.0
    assert not checkpointer.is_due()
    now = 110.0
    assert checkpointer.is_due()
    now = 115.0
    checkpointer.save(checkpoint(3))
    now = 124.0
    assert not checkpointer.is_due()
    now = 125.0
    assert checkpointer.is_due()
    assert same(CheckpointFolder(tmp_path).newest(), checkpoint(3))


def test_a_stop_is_passed_on(tmp_path: Path) -> None:
    stop = StopRequest()
    checkpointer = RunCheckpointer(CheckpointFolder(tmp_path), every_seconds=10, stop=stop)
    assert not checkpointer.is_stopping()
    stop.signal = 15
    assert checkpointer.is_stopping()


def test_what_was_kept_is_handed_over_and_not_held(tmp_path: Path) -> None:
    restored = checkpoint(3)
    checkpointer = RunCheckpointer(
        CheckpointFolder(tmp_path), every_seconds=1, stop=StopRequest(), restored=restored
    )
    assert checkpointer.restored() is restored
    assert checkpointer.restored() is None
