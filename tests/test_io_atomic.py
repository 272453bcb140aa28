from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cfuica.io import exchanged, write_bytes_atomically, write_text_atomically


def test_writes_a_new_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_bytes_atomically(tmp_path / "a.bin", b"\x00\r\n\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\r\n\xff"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_text_is_utf8_with_newlines_as_they_are(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / "a.txt", "é\nü\r\n")
    assert (tmp_path / "a.txt").read_bytes() == "é\nü\r\n".encode()


def test_accepts_a_path_given_as_a_string(tmp_path: Path) -> None:
    write_text_atomically(str(tmp_path / "a.txt"), "x")
    assert (tmp_path / "a.txt").read_text() == "x"


def test_replaces_an_existing_file_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    write_text_atomically(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / "ours", "x")
    (tmp_path / "any").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "any").stat().st_mode


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write_text_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_interruption_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text_atomically(tmp_path / "a.txt", "new")
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_text_atomically(tmp_path / "nowhere" / "a.txt", "x")


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_text_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_bytes)
        write_bytes_atomically(pipe, b"content")
        assert read.result() == b"content"
    assert pipe.is_fifo()


def test_two_folders_exchange_their_names_or_stay_as_they_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of-{name}").touch()
    done = exchanged(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == ["of-b" if done else "of-a"]
    assert os.listdir(tmp_path / "b") == ["of-a" if done else "of-b"]
    assert not exchanged(tmp_path / "a", tmp_path / "nowhere")
