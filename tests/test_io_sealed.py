from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cfuica.errors import ModelFileError
from cfuica.io import MANIFEST, atomic_folder, sealed_folder, verify


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sealed_folder(tmp_path / "sealed") as work:
        (work / "a.txt").write_text("a")
        (work / "b.bin").write_bytes(bytes(100))
    return tmp_path / "sealed"


def test_what_was_sealed_is_there_and_whole(folder: Path) -> None:
    verify(folder)
    assert sorted(os.listdir(folder)) == ["a.txt", "b.bin", MANIFEST]
    assert os.listdir(folder.parent) == ["sealed"]


@pytest.mark.parametrize("make", [atomic_folder, sealed_folder])
def test_everything_is_on_the_disk_before_the_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any]
) -> None:
    synced: list[tuple[int, bool]] = []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "whole").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with make(tmp_path / "whole") as work:
        (work / "a.txt").write_text("a")
    places = (tmp_path / "whole", *(tmp_path / "whole").iterdir())
    assert {(path.stat().st_ino, False) for path in places} <= set(synced)
    assert synced[-1] == (tmp_path.stat().st_ino, True)


@pytest.mark.parametrize("make", [atomic_folder, sealed_folder])
def test_a_failure_leaves_nothing(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    with suppress(ZeroDivisionError), make(tmp_path / "sealed") as work:
        (work / "a.txt").write_text("a")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def truncate(folder: Path) -> None:
    os.truncate(folder / "b.bin", 99)


def edit(folder: Path) -> None:
    (folder / "a.txt").write_text("b")


def lose(folder: Path) -> None:
    (folder / "a.txt").unlink()


def add(folder: Path) -> None:
    (folder / "c.txt").write_text("c")


def lose_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def cut_manifest(folder: Path) -> None:
    os.truncate(folder / MANIFEST, 20)


def nest_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[" * 100_000)


def list_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps(["a.txt", "b.bin"]))


def replace_by_a_folder(folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "a.txt").mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        truncate, edit, lose, add, lose_manifest, cut_manifest, nest_manifest, list_manifest,
        replace_by_a_folder,
    ],
)  # fmt: skip
def test_any_damage_is_noticed_and_reported_in_a_sentence(folder: Path, damage: object) -> None:
    damage(folder)  # type: ignore[operator]
    with pytest.raises(ModelFileError, match=r"sealed is damaged \(.+\); train again\.$"):
        verify(folder)


def test_a_folder_that_is_not_there_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is damaged"):
        verify(tmp_path / "nowhere")
