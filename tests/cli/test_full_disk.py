"""A disk that is full at any moment of a training: a real one, of a few megabytes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cfuica.runs.run
from cfuica.models.co_autoregressive import RatingModel
from cfuica.run_folder import RunFolder
from cfuica.runs.callbacks import MetricsFile
from cfuica.training.checkpoint import CheckpointFolder
from tests.cli.harness import done, in_a_process, run
from tests.runs.small import SET_TINY

SETTINGS = [*SET_TINY, "--checkpoint-every", "0"]


@dataclass(frozen=True)
class Disk:
    """A mounted file system."""

    path: Path

    def resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)

    def fill(self) -> None:
        """To the last byte."""
        with (self.path / "filler").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def make_room(self) -> None:
        (self.path / "filler").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "cfuica-test", path],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("needs the command mount, which is not here")
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a small disk: {mounted.stderr.strip()}")
    yield Disk(path)
    subprocess.run(["umount", path], check=True)


def same(run_folder: Path, reference: Path) -> bool:
    weights = [
        (path / "model" / "model.safetensors").read_bytes() for path in (run_folder, reference)
    ]
    return weights[0] == weights[1] and set(os.listdir(run_folder)) == set(os.listdir(reference))


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before_it(
    ratings: Path, disk: Disk, tmp_path: Path
) -> None:
    """Room for one checkpoint (1.3 MB), not for two; through a process as people start it once."""
    size = ["--set", "hidden_users=64", "--set", "hidden_items=64"]
    done("train", ratings, "--out", tmp_path / "whole", *SETTINGS, *size)
    disk.resize("2m")
    outcome = in_a_process("train", ratings, "--out", "run", *SETTINGS, *size, cwd=disk.path)
    assert outcome.returncode == 1
    assert outcome.stderr.splitlines()[-1] == (
        "cfuica: The run run cannot be written (No space left on device); make room and go on "
        "from what is kept with:  cfuica train --resume run"
    )
    assert "Traceback" not in outcome.stderr
    assert sorted(os.listdir(disk.path / "run" / "unfinished")) == ["checkpoint-000001", "inputs"]
    kept = CheckpointFolder(disk.path / "run" / "unfinished").newest()
    assert kept is not None
    assert kept.step == 1
    # As long as there is no room it stays so.
    resume = ("train", "--resume", disk.path / "run", "--checkpoint-every", "0")
    still = run(*resume)
    assert still.code == 1
    assert "No space left on device" in still.err
    disk.resize("8m")
    done(*resume)
    assert same(disk.path / "run", tmp_path / "whole")


# What writes, which of its calls meets the full disk, and whether something was kept by then.
MOMENTS = {
    "the test set": (RunFolder, "write_test", 1, False),
    "the inputs": (cfuica.runs.run, "save_inputs", 1, False),
    "the record of a new run": (RunFolder, "write_record", 1, False),
    "the first metrics": (MetricsFile, "open", 1, False),
    "the first checkpoint": (CheckpointFolder, "write", 1, False),
    "the second checkpoint": (CheckpointFolder, "write", 2, True),
    "the metrics": (MetricsFile, "validated", 1, True),
    "the model": (RatingModel, "save", 1, True),
    "the report": (cfuica.runs.run, "write_run_report", 1, True),
    "the record of a finished run": (RunFolder, "write_record", 2, True),
}


def fill_before(
    monkeypatch: pytest.MonkeyPatch, disk: Disk, place: Any, name: str, number: int
) -> None:
    """Fill the disk when this is called for the so-many-th time."""
    really, calls = getattr(place, name), iter(range(1, 100))

    def full(*arguments: Any, **options: Any) -> Any:
        if next(calls) == number:
            disk.fill()
        return really(*arguments, **options)

    monkeypatch.setattr(place, name, full)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_disk_that_is_full_at_any_time_loses_no_checkpoint(
    ratings: Path, trained: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    place, name, number, kept = MOMENTS[moment]
    fill_before(monkeypatch, disk, place, name, number)
    out = disk.path / "run"
    outcome = run("train", ratings, "--out", out, *SETTINGS)
    monkeypatch.undo()
    assert outcome.code == 1
    message = outcome.err.splitlines()[-1]
    assert "No space left on device" in message
    assert "make room" in message
    assert "Done." not in outcome.err
    if kept:
        assert message.endswith(f"go on from what is kept with:  cfuica train --resume {out}")
        assert json.loads((out / "run.json").read_text("utf-8"))["status"] == "training"
        disk.make_room()
        done("train", "--resume", out)
    else:
        assert not out.exists()
        disk.make_room()
        done("train", ratings, "--out", out, *SETTINGS)
    assert same(out, trained)


def test_a_run_is_not_harmed_by_an_attempt_to_resume_it_on_a_full_disk(
    ratings: Path, trained: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_before(monkeypatch, disk, CheckpointFolder, "write", 3)
    assert run("train", ratings, "--out", disk.path / "run", *SETTINGS).code == 1
    disk.fill()  # what the failed attempt had freed
    outcome = run("train", "--resume", disk.path / "run")
    assert outcome.code == 1
    assert "No space left on device" in outcome.err
    assert "make room" in outcome.err
    disk.make_room()
    monkeypatch.undo()
    done("train", "--resume", disk.path / "run")
    assert same(disk.path / "run", trained)
