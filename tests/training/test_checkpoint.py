"""Checkpoints on disk: restored as they were written, whatever happens while they are written."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from cfuica.errors import ModelFileError
from cfuica.training import checkpoint as module
from cfuica.training.checkpoint import Checkpoint, CheckpointFolder


def checkpoint(step: int, *, member: int = 0, version: int = 0) -> Checkpoint:
    """Made of its numbers, so that any two differ."""
    return Checkpoint(
        states={
            "network": {"users.W.values": torch.full((40, 5), float(step))},
            "optimizer": {"mean": {"users.W": torch.arange(7.0)}, "steps": step},
            "best": {},
            "loop": {"step": step, "history": [], "seconds": 1.5},
        },
        finished=[{"a": torch.full((40, 5), 100.0 * k + version)} for k in range(member)],
    )


def equal(one: Any, other: Any) -> bool:
    """Whether states are the same: nested dicts and lists of tensors and plain values."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def same(one: Checkpoint | None, other: Checkpoint) -> bool:
    return (
        one is not None and equal(one.states, other.states) and equal(one.finished, other.finished)
    )


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def both(folder: Path, older: Checkpoint, newer: Checkpoint) -> tuple[Path, Path]:
    """Two checkpoints side by side, as a process leaves them that is killed between writing one
    and removing the other."""
    folder.mkdir()
    CheckpointFolder(folder).write(older)
    shutil.copytree(folder / "checkpoint-000001", folder.parent / "aside")
    CheckpointFolder(folder).write(newer)
    shutil.move(folder.parent / "aside", folder / "checkpoint-000001")
    return folder / "checkpoint-000001", folder / "checkpoint-000002"


def test_without_any_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert CheckpointFolder(folder).newest() is None
        assert not CheckpointFolder(folder).exist()


def test_a_checkpoint_is_restored_as_it_was_written_and_only_the_newest_remains(
    tmp_path: Path,
) -> None:
    for step in (3, 4, 5):
        CheckpointFolder(tmp_path).write(checkpoint(step, member=2))
        assert same(CheckpointFolder(tmp_path).newest(), checkpoint(step, member=2))
    ensemble = ["member-0.safetensors", "member-1.safetensors"]
    assert names(tmp_path) == ["checkpoint-000003", *ensemble]


def test_the_newest_of_two_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    both(folder, checkpoint(1), checkpoint(2))
    assert same(CheckpointFolder(folder).newest(), checkpoint(2))
    CheckpointFolder(folder).write(checkpoint(3))
    assert names(folder) == ["checkpoint-000003"]


def test_the_newest_is_that_of_the_highest_number(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    older, newer = both(folder, checkpoint(1), checkpoint(2))
    os.rename(older, folder / "checkpoint-999999")
    os.rename(newer, folder / "checkpoint-1000000")
    assert same(CheckpointFolder(folder).newest(), checkpoint(2))
    CheckpointFolder(folder).write(checkpoint(3))
    assert names(folder) == ["checkpoint-1000001"]


def truncated_tensors(path: Path) -> None:
    os.truncate(path / "tensors.safetensors", 500)


def no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def edited_state(path: Path) -> None:
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "best": {"step": 9}}))


def no_tensors(path: Path) -> None:
    (path / "tensors.safetensors").unlink()


def a_file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def no_member(path: Path) -> None:
    (path.parent / "member-1.safetensors").unlink()


def a_foreign_member(path: Path) -> None:
    shutil.copy(path.parent / "member-0.safetensors", path.parent / "member-1.safetensors")


DAMAGES = [
    truncated_tensors, no_manifest, edited_state, no_tensors, a_file_instead, no_member,
    a_foreign_member,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_refused_with_a_sentence(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    CheckpointFolder(tmp_path).write(checkpoint(3, member=2))
    damage(tmp_path / "checkpoint-000001")
    with pytest.raises(ModelFileError, match=r"damaged.*train again\.$"):
        CheckpointFolder(tmp_path).newest()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_one_falls_back_to_the_older(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "kept"
    _, newer = both(folder, checkpoint(1, member=1), checkpoint(2, member=2))
    damage(newer)
    assert same(CheckpointFolder(folder).newest(), checkpoint(1, member=1))


def test_names_of_others_are_no_checkpoints(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path).write(checkpoint(1))
    for name in ("checkpoint-", "checkpoint-old", "checkpoint-0copy"):
        (tmp_path / name).mkdir()
    assert same(CheckpointFolder(tmp_path).newest(), checkpoint(1))
    CheckpointFolder(tmp_path).write(checkpoint(2))
    assert same(CheckpointFolder(tmp_path).newest(), checkpoint(2))


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path).write(checkpoint(1, member=1))
    (tmp_path / ".unsealed-checkpoint-000002-0a1b").mkdir()
    (tmp_path / ".unsealed-checkpoint-000002-0a1b" / "tensors.safetensors").write_bytes(b"half")
    (tmp_path / ".unsealed-member-1.safetensors").write_bytes(b"half")
    CheckpointFolder(tmp_path).clean()
    assert names(tmp_path) == ["checkpoint-000001", "member-0.safetensors"]


def test_a_network_trained_again_replaces_the_one_of_an_earlier_process(tmp_path: Path) -> None:
    """Killed after writing the member and before the checkpoint that counts it, then resumed from
    an older checkpoint with another learning rate: the member is another."""
    CheckpointFolder(tmp_path).write(checkpoint(3))
    left = tmp_path / "elsewhere"
    left.mkdir()
    CheckpointFolder(left).write(checkpoint(4, member=1, version=0))
    shutil.move(left / "member-0.safetensors", tmp_path)
    anew = checkpoint(4, member=1, version=1)
    CheckpointFolder(tmp_path).write(anew)
    assert same(CheckpointFolder(tmp_path).newest(), anew)


class PowerCut(BaseException):
    """From here on nothing is written any more, and nothing is tidied up either."""


def cut_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The `number`-th write to the disk is done half and all later ones not at all."""
    calls = itertools.count(1)
    made = 0

    def guard(place: Any, name: str, half: Callable[..., None] | None = None) -> None:
        really = getattr(place, name)

        def guarded(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            made = next(calls)
            if made == number and half is not None:
                half(*arguments)
            if made >= number:
                raise PowerCut
            return really(*arguments, **options)

        monkeypatch.setattr(place, name, guarded)

    def half_a_file(_: object, path: Path, *__: object) -> None:
        path.write_bytes(b"half")

    def half_a_text(path: Path, text: str, **_: object) -> None:
        path.write_bytes(text[: len(text) // 2].encode())

    def half_a_folder(path: Path, **_: object) -> None:
        next(iter(sorted(path.iterdir()))).unlink()

    guard(os, "replace")
    guard(os, "fsync")
    guard(shutil, "rmtree", half_a_folder)
    guard(module, "write_tensors", half_a_file)
    guard(Path, "write_text", half_a_text)
    guard(Path, "mkdir")
    return lambda: made


def test_a_power_cut_at_any_stage_of_writing_leaves_a_readable_checkpoint(tmp_path: Path) -> None:
    older, newer = checkpoint(7, member=1), checkpoint(2, member=2)
    outcomes = []
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        CheckpointFolder(folder).write(older)
        with pytest.MonkeyPatch.context() as monkeypatch:
            made = cut_at(number, monkeypatch)
            with suppress(PowerCut):
                CheckpointFolder(folder).write(newer)
        if made() < number:
            break
        found = CheckpointFolder(folder).newest()
        assert same(found, older) or same(found, newer)
        outcomes.append(same(found, newer))
        # And training goes on from there as if nothing had been.
        again = CheckpointFolder(folder)
        again.clean()
        again.write(checkpoint(3, member=2))
        assert same(CheckpointFolder(folder).newest(), checkpoint(3, member=2))
        ensemble = ["member-0.safetensors", "member-1.safetensors"]
        assert [name[:11] for name in names(folder)] == ["checkpoint-", *(m[:11] for m in ensemble)]
    assert len(outcomes) > 12
    assert outcomes == sorted(outcomes)  # from the old one to the new one, once
    assert {True, False} == set(outcomes)


@pytest.mark.parametrize("refused", ["replace", "fsync", "write_tensors", "write_text"])
def test_a_refusal_leaves_the_old_one_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    place: Any = {"write_tensors": module, "write_text": Path}.get(refused, os)
    CheckpointFolder(tmp_path).write(checkpoint(1))
    monkeypatch.setattr(place, refused, refuse)
    with pytest.raises(OSError, match="No space"):
        CheckpointFolder(tmp_path).write(checkpoint(2))
    monkeypatch.undo()
    assert names(tmp_path) == ["checkpoint-000001"]
    assert same(CheckpointFolder(tmp_path).newest(), checkpoint(1))
