"""One change of a model at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cfuica.cli.observe import to_be_changed
from cfuica.run_folder import RunFolder


def test_who_replaces_a_model_keeps_others_waiting(
    run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same lock as that of a training, whichever way the model is named."""
    order = []

    def other() -> None:
        with to_be_changed(run_copy / "model", run_copy / "model") as (_, in_place):
            order.append(in_place)

    thread = threading.Thread(target=other)
    with RunFolder(run_copy).held():
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["first", True]
    assert f"Waiting for another process in {run_copy}." in capsys.readouterr().err


def test_who_writes_elsewhere_does_not_wait(run_copy: Path, tmp_path: Path) -> None:
    with (
        RunFolder(run_copy).held(),
        to_be_changed(run_copy, tmp_path / "other") as (_, in_place),
    ):
        assert not in_place


def test_the_model_is_found_from_inside_too(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_copy / "model")
    with to_be_changed(Path(), None) as (target, in_place):
        assert target.resolve() == run_copy / "model"
        assert in_place
