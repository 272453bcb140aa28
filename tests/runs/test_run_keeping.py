from __future__ import annotations

from pathlib import Path

import pytest

from cfuica.runs import run
from cfuica.runs.run import RunKeeper, StopRequest
from cfuica.training.checkpoint import Checkpoints
from tests.training.test_checkpoint import same, snapshot


def test_a_checkpoint_is_due_so_many_seconds_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(run.time, "monotonic", lambda: now)
    keeper = RunKeeper(Checkpoints(tmp_path), every_seconds=10, stop=StopRequest())
    now = 109.0
    assert not keeper.is_due()
    now = 110.0
    assert keeper.is_due()
    now = 115.0
    keeper.keep(snapshot(3))
    now = 124.0
    assert not keeper.is_due()
    now = 125.0
    assert keeper.is_due()
    assert same(Checkpoints(tmp_path).newest(), snapshot(3))


def test_a_stop_is_passed_on(tmp_path: Path) -> None:
    stop = StopRequest()
    keeper = RunKeeper(Checkpoints(tmp_path), every_seconds=10, stop=stop)
    assert not keeper.is_stopping()
    stop.signal = 15
    assert keeper.is_stopping()


def test_what_was_kept_is_handed_over_and_not_held(tmp_path: Path) -> None:
    kept = snapshot(3)
    keeper = RunKeeper(Checkpoints(tmp_path), every_seconds=1, stop=StopRequest(), kept=kept)
    assert keeper.kept() is kept
    assert keeper.kept() is None
