"""Data sets into the cache, from a server, a zip or a folder, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cfuica.data import fetch as module
from cfuica.data.catalogue import RELEASES, Release
from cfuica.data.download import Patience
from cfuica.data.fetch import Fetched, Watcher, fetch
from cfuica.data.movielens import read_movielens
from cfuica.errors import DataError
from cfuica.io import Record, locked, record, recorded
from tests.data.webserver import Site, serving

RATINGS = b"1::3::5::978300760\n2::1::3.5::978302109\n"
FILES = {"ratings.dat": RATINGS, "movies.dat": b"1::A (1995)::Drama\n", "README": b"terms\n"}
QUICK = Patience(timeout=5, attempts=2, pause=0.0)


def _packed(files: dict[str, bytes], inside: str = "ml-10M100K/") -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(inside + name, data)
    return memory.getvalue()


ARCHIVE = _packed({**FILES, "padding": os.urandom(400_000)})
KNOWN = Release(
    "ml-known", "ratings.dat", sha256=hashlib.sha256(ARCHIVE).hexdigest(), folder="ml-10M100K"
)
CHANGING = replace(KNOWN, name="ml-changing", sha256=None)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"/ml-known.zip": ARCHIVE, "/ml-changing.zip": ARCHIVE}) as site:
        yield site


def _get(release: Release, cache: Path, site: Site | None = None, **more: object) -> Fetched:
    mirror = site.address if site else "http://127.0.0.1:9"
    return fetch(release, cache, mirror=mirror, patience=QUICK, **more)  # type: ignore[arg-type]


def _refused(release: Release, cache: Path, site: Site | None = None, **more: object) -> str:
    with pytest.raises(DataError) as caught:
        _get(release, cache, site, **more)
    return str(caught.value)


def _visible(cache: Path) -> list[str]:
    """What a user sees in the cache; hidden are locks and parts."""
    return sorted(path.name for path in cache.iterdir() if not path.name.startswith("."))


def _no_litter(cache: Path) -> bool:
    return not any(path.name.endswith((".tmp", ".part", ".json")) for path in cache.glob(".*"))


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_known_release_is_downloaded_verified_and_extracted(cache, site):
    said: list[str] = []
    fetched = _get(KNOWN, cache, site, watcher=Watcher(said.append))
    assert fetched.folder == cache / "ml-known"
    assert fetched.new
    assert fetched.verified == "Verified: ml-known.zip has the SHA-256 that cfuica knows."
    assert said == [f"Downloading {site.address}/ml-known.zip."]
    content = _content(fetched.folder)
    assert content.pop("padding")
    assert content == FILES
    assert read_movielens(fetched.folder).n == 2
    assert _visible(cache) == ["checksums.json", "ml-known"]
    assert _no_litter(cache)


def test_a_second_time_it_is_there_and_is_verified(cache, site):
    _get(KNOWN, cache, site)
    again = _get(KNOWN, cache, site)
    assert not again.new
    assert "Verified: its files have the checksums recorded on 2" in again.verified
    assert len(site.asked) == 1
    (again.folder / "movies.dat").write_bytes(b"1::Other::Drama\n")
    message = _refused(KNOWN, cache, site)
    assert "movies.dat is no longer what it was" in message
    assert "cfuica data get ml-known --force" in message
    assert _get(KNOWN, cache, site, force=True).new
    assert _content(again.folder)["movies.dat"] == FILES["movies.dat"]
    assert len(site.asked) == 2
    assert _no_litter(cache)


def test_a_file_that_went_missing_is_noticed(cache, site):
    (_get(KNOWN, cache, site).folder / "movies.dat").unlink()
    assert "movies.dat is no longer what it was" in _refused(KNOWN, cache, site)


def test_a_folder_put_there_by_hand_is_looked_at_and_recorded(cache):
    folder = cache / "ml-known"
    folder.mkdir(parents=True)
    assert "ratings.dat is missing" in _refused(KNOWN, cache)
    (folder / "ratings.dat").write_bytes(RATINGS)
    assert "No checksums were recorded" in _get(KNOWN, cache).verified
    assert "Verified" in _get(KNOWN, cache).verified


def test_a_broken_download_is_resumed_by_the_next_command(cache, site):
    site.cut_after = [100_000, 0, 0, 0]
    message = _refused(KNOWN, cache, site)
    assert "broke off" in message
    assert "--from FILE" in message
    assert _visible(cache) == []
    site.cut_after = []
    site.asked.clear()
    said: list[str] = []
    fetched = _get(KNOWN, cache, site, watcher=Watcher(said.append))
    assert [asked.get("Range") for asked in site.asked] == ["bytes=100000-"]
    assert said == [f"Resuming the download of {site.address}/ml-known.zip."]
    assert _content(fetched.folder)["ratings.dat"] == RATINGS
    assert _no_litter(cache)


def test_a_release_that_is_not_there_says_how_else(cache, site):
    message = _refused(replace(KNOWN, name="ml-gone"), cache, site)
    assert "/ml-gone.zip answered 404 (Not Found)" in message
    assert "cfuica data get ml-gone --from FILE" in message


def test_without_a_network_one_sentence_says_how_else(cache):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError) as caught:
        fetch(KNOWN, cache, mirror=f"http://127.0.0.1:{port}/", patience=QUICK)
    message = str(caught.value)
    assert f"http://127.0.0.1:{port}/ml-known.zip could not be reached (Connection" in message
    assert message.endswith("cfuica data get ml-known --from FILE.")
    assert "\n" not in message
    assert _visible(cache) == []


def test_another_content_than_the_known_one_is_refused(cache, site):
    site.files["/ml-known.zip"] = _packed(FILES)
    for force in (False, True):
        message = _refused(KNOWN, cache, site, force=force)
        assert f"but {KNOWN.sha256} was expected" in message
        assert _visible(cache) == []
        assert _no_litter(cache), "these bytes are not worth keeping"


def test_a_refused_content_leaves_what_was_there(cache, site):
    folder = _get(KNOWN, cache, site).folder
    site.files["/ml-known.zip"] = _packed({"ratings.dat": b"9::9::1::9\n"})
    site.etag = '"two"'
    _refused(KNOWN, cache, site, force=True)
    assert _content(folder)["ratings.dat"] == RATINGS
    assert "Verified" in _get(KNOWN, cache, site).verified


def test_what_changes_is_recorded_at_first_and_verified_after(cache, site):
    first = _get(CHANGING, cache, site)
    assert "changes over time" in first.verified
    assert str(KNOWN.sha256) in first.verified
    shutil.rmtree(first.folder)
    assert "has the SHA-256 recorded on 2" in _get(CHANGING, cache, site).verified
    shutil.rmtree(first.folder)
    site.etag, site.files["/ml-changing.zip"] = '"two"', _packed(FILES)
    message = _refused(CHANGING, cache, site)
    assert "differs from the ml-changing that was recorded on 2" in message
    assert "--force" in message
    assert _visible(cache) == ["checksums.json"]
    asked = len(site.asked)
    accepted = _get(CHANGING, cache, site, force=True)
    assert len(site.asked) == asked, "what was downloaded and refused is not downloaded again"
    assert _no_litter(cache)
    assert "differs from the one of 2" in accepted.verified
    assert _content(accepted.folder) == FILES
    shutil.rmtree(accepted.folder)
    assert "has the SHA-256 recorded" in _get(CHANGING, cache, site).verified


def test_a_truncated_archive_is_refused(cache, site):
    site.files["/ml-changing.zip"] = ARCHIVE[:-100]
    message = _refused(CHANGING, cache, site)
    assert message.startswith(f"{site.address}/ml-changing.zip is not a whole zip file")
    assert _visible(cache) == []
    assert _no_litter(cache)


def test_a_hostile_archive_writes_nothing_anywhere(cache, site, tmp_path):
    site.files["/ml-changing.zip"] = _packed({**FILES, "../../../evil": b"x"})
    assert "points outside the archive" in _refused(CHANGING, cache, site)
    assert _visible(cache) == []
    assert _no_litter(cache)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", ["zip", "folder", "folder of the folder"])
def test_from_a_zip_or_a_folder_without_any_network(cache, tmp_path, kind):
    given = tmp_path / "given"
    (given / "ml-10M100K").mkdir(parents=True)
    if kind == "zip":
        given = tmp_path / "given.zip"
        given.write_bytes(ARCHIVE)
    else:
        for name, data in FILES.items():
            (given / "ml-10M100K" / name).write_bytes(data)
        given = given / "ml-10M100K" if kind == "folder" else given
    fetched = _get(KNOWN, cache, source=given)
    content = _content(fetched.folder)
    content.pop("padding", None)
    assert content == FILES
    assert fetched.verified.startswith("Verified" if kind == "zip" else "Not verified")
    assert given.exists(), "what was given stays"
    assert "Verified" in _get(KNOWN, cache).verified
    assert _no_litter(cache)


def test_a_folder_is_verified_by_what_was_recorded(cache, site, tmp_path):
    _get(KNOWN, cache, site)
    given = tmp_path / "given"
    shutil.copytree(cache / "ml-known", given)
    shutil.rmtree(cache / "ml-known")
    assert "ratings.dat has the SHA-256 recorded on" in _get(KNOWN, cache, source=given).verified
    shutil.rmtree(cache / "ml-known")
    (given / "ratings.dat").write_bytes(b"1::1::1::1\n")
    assert "differs from the ml-known" in _refused(KNOWN, cache, source=given)
    assert _visible(cache) == ["checksums.json"]
    assert "differs" in _get(KNOWN, cache, source=given, force=True).verified


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"ratings.csv": b"userId,movieId,rating,timestamp\n1,1,4.0,1\n"}, "has no ratings.dat"),
        ({"ratings.dat": b"user,item\n"}, "begins with 'user,item"),
        ({"ratings.dat": b"1::2::9::3\n"}, "begins with '1::2::9::3"),
        ({"a/ratings.dat": RATINGS, "b/ratings.dat": RATINGS}, "has 2 files ratings.dat"),
    ],
)
def test_other_data_is_refused_by_a_look_at_it(cache, tmp_path, files, says):
    given = tmp_path / "given.zip"
    given.write_bytes(_packed(files, inside=""))
    assert says in _refused(CHANGING, cache, source=given)
    folder = tmp_path / "given"
    with zipfile.ZipFile(given) as archive:
        archive.extractall(folder)
    assert says in _refused(CHANGING, cache, source=folder)
    assert _visible(cache) == []


def test_releases_of_one_form_are_told_apart_by_size(cache, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    (given / "ratings.dat").write_bytes(RATINGS * 100)
    message = _refused(RELEASES["ml-10m"], cache, source=given)
    assert "it has 0.0 MB, but about 265.0 MB were expected" in message


def test_the_real_ml_1m_is_the_one_of_the_catalogue(cache, data_path):
    given = data_path("ml-1m/ml-1m.zip")
    assert "that cfuica knows" in _get(RELEASES["ml-1m"], cache, source=given).verified
    assert "is not the ml-10m.zip of GroupLens" in _refused(RELEASES["ml-10m"], cache, source=given)


def test_mac_litter_in_an_archive_does_no_harm(cache, tmp_path):
    given = tmp_path / "given.zip"
    given.write_bytes(_packed({f"set/{name}": data for name, data in FILES.items()}, inside=""))
    with zipfile.ZipFile(given, "a") as archive:
        archive.writestr("__MACOSX/ratings.dat", b"litter")
        archive.writestr("__MACOSX/set/._ratings.dat", b"litter")
    assert _content(_get(CHANGING, cache, source=given).folder) == FILES


def test_a_source_that_is_not_there_is_told(cache, tmp_path):
    assert "absent.zip does not exist" in _refused(KNOWN, cache, source=tmp_path / "absent.zip")


@pytest.mark.parametrize("where", ["download", "extract", "copy", "rename"])
def test_a_full_disk_is_one_sentence_and_nothing_half_written(
    cache, site, tmp_path, monkeypatch, where
):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    more: dict[str, object] = {}
    if where == "copy":
        given = tmp_path / "given"
        given.mkdir()
        (given / "ratings.dat").write_bytes(RATINGS)
        more["source"] = given
    with monkeypatch.context() as patch:
        if where == "rename":
            patch.setattr(module.os, "replace", full)
        else:
            name = {"download": "download", "extract": "extract", "copy": "shutil.copyfileobj"}[
                where
            ]
            patch.setattr(f"cfuica.data.fetch.{name}", full)
        message = _refused(KNOWN, cache, site, **more)
    assert f"The disk that holds {cache} is full" in message
    assert "CFUICA_CACHE" in message
    assert _visible(cache) == []
    assert not list(cache.glob(".*.tmp"))
    assert _get(KNOWN, cache, site, **more).new, "once there is space, it works"


def test_a_disk_that_fills_while_extracting_leaves_nothing(cache, site, monkeypatch):
    """The write itself fails, after the first bytes."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("cfuica.data.archive.os.fsync", full)
        message = _refused(CHANGING, cache, source=_as_file(cache.parent / "given.zip"))
    assert "is full" in message
    assert _visible(cache) == []
    assert not list(cache.glob(".*.tmp"))


def _as_file(path: Path) -> Path:
    path.write_bytes(ARCHIVE)
    return path


def test_if_the_last_rename_fails_the_former_data_is_back(cache, site, monkeypatch):
    folder = _get(KNOWN, cache, site).folder
    real = os.replace

    def refuse_into_place(source: Path, target: Path) -> None:
        if Path(target) == folder and Path(source).name == "ml-10M100K":
            raise OSError(errno.EACCES, "Permission denied")
        real(source, target)

    monkeypatch.setattr(module.os, "replace", refuse_into_place)
    with pytest.raises(OSError, match="Permission denied"):
        _get(KNOWN, cache, site, force=True)
    assert _content(folder)["ratings.dat"] == RATINGS


def test_two_at_once_fetch_once(cache, site):
    results: list[Fetched] = []
    said: list[str] = []

    def work() -> None:
        results.append(_get(KNOWN, cache, site, watcher=Watcher(said.append)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.new for result in results) == [False, False, False, True]
    assert len(site.asked) == 1
    assert _no_litter(cache)


def test_a_process_waits_for_another_and_not_for_a_dead_one(cache, site):
    cache.mkdir()
    code = (
        "import sys; from pathlib import Path; from cfuica.io import locked\n"
        f"with locked(Path({str(cache / '.ml-known.lock')!r})):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            holder.kill()

        assert _get(KNOWN, cache, site, watcher=Watcher(say)).new
    assert said[0] == "Another process is fetching ml-known; waiting for it."


def test_what_a_killed_process_left_is_cleared_away(cache, site):
    left = cache / ".ml-known.0123456789ab.tmp"
    (left / "ml-10M100K").mkdir(parents=True)
    other = cache / ".ml-changing.0123456789ab.tmp"
    other.mkdir()
    _get(KNOWN, cache, site)
    assert not left.exists()
    assert other.exists(), "that may be somebody's work"


def test_a_lock_is_free_again_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock"):
        raise ZeroDivisionError
    waited: list[bool] = []
    with locked(tmp_path / "lock", lambda: waited.append(True)):
        pass
    assert waited == []


def test_records_of_several_at_once_are_all_kept(tmp_path):
    threads = [
        threading.Thread(target=record, args=(tmp_path, f"set-{number}", Record({"a": "b"})))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(recorded(tmp_path, f"set-{number}") for number in range(8))
    assert recorded(tmp_path, "set-9") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"ml-known": 1}', '{"ml-known": {"x": 1}}'])
def test_a_damaged_record_is_told(cache, text):
    cache.mkdir()
    (cache / "ml-known").mkdir()
    (cache / "checksums.json").write_text(text)
    message = _refused(KNOWN, cache)
    assert "checksums.json is not the record of checksums that cfuica writes" in message


def test_the_record_is_plain_json(cache, site):
    _get(KNOWN, cache, site)
    written = json.loads((cache / "checksums.json").read_text())
    assert written["ml-known"]["archive"] == KNOWN.sha256
    assert written["ml-known"]["files"]["ratings.dat"] == hashlib.sha256(RATINGS).hexdigest()
