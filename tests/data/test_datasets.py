"""Data sets by name: where they are looked for, and how they come into the cache."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cfuica.data import datasets
from cfuica.data.datasets import RELEASES, FetchCallbacks, Fetched, Release, fetch, found, resolve
from cfuica.data.layout import ReadOptions
from cfuica.errors import DataError, SettingsError
from tests.data.webserver import Site, serving

RATINGS = "1::1::5::10\n1::2::3::20\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory, a cache of its own, and no data anywhere."""
    work = tmp_path / "project" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.delenv("CFUICA_DATA", raising=False)
    monkeypatch.delenv("CFUICA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def _put(folder: Path, text: str = RATINGS) -> None:
    folder.mkdir(parents=True)
    (folder / "ratings.dat").write_text(text)


def test_data_is_looked_for_under_the_variable_then_in_the_cache(place, monkeypatch):
    (place / "project" / "shared" / "data").mkdir(parents=True)
    assert datasets.homes() == [place / "cache" / "cfuica"], "and not beside the working directory"
    monkeypatch.setenv("CFUICA_DATA", str(place / "mine"))
    assert datasets.homes() == [place / "mine", place / "cache" / "cfuica"]
    assert datasets.homes()[0] == place / "mine"


def test_the_cache_is_where_the_system_has_caches(place, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: place)
    monkeypatch.setattr(datasets.sys, "platform", "linux")
    assert datasets.homes()[0] == place / ".cache" / "cfuica"
    monkeypatch.setattr(datasets.sys, "platform", "darwin")
    assert datasets.homes()[0] == place / "Library" / "Caches" / "cfuica"
    monkeypatch.setattr(datasets.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(place / "local"))
    assert datasets.homes()[0] == place / "local" / "cfuica"
    monkeypatch.setenv("CFUICA_CACHE", str(place / "big disk"))
    assert datasets.homes()[0] == place / "big disk", "or where the user has it"


@pytest.mark.parametrize("inside", ["ml-1m", "ml-1m/ml-1m"])
def test_a_name_is_found_under_the_variable_and_in_the_cache(place, monkeypatch, inside):
    monkeypatch.setenv("CFUICA_DATA", str(place / "mine"))
    _put(place / "cache" / "cfuica" / inside)
    assert resolve("ml-1m").n == 2
    _put(place / "mine" / inside, "1::1::5::10\n")
    assert resolve("ml-1m").n == 1, "the variable comes first"


def test_a_name_that_is_nowhere_says_where_it_was_looked_for_and_how_to_get_it(place, monkeypatch):
    monkeypatch.setenv("CFUICA_DATA", str(place / "mine"))
    with pytest.raises(DataError, match="run  cfuica data get ml-1m  to fetch it") as caught:
        resolve("ml-1m")
    for part in ("'ml-1m'", "ml-1m.zip", str(place / "mine"), str(place / "cache"), "CFUICA_DATA"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "inside", ["ml-10m", "ml-10M100K", "ml-10m/ml-10M100K", "ml-10M100K/ml-10M100K"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_10m_is_found_by_either_name_as_folder_or_zip(place, inside, packed):
    home = place / "cache" / "cfuica"
    if packed:
        (home / inside).parent.mkdir(parents=True)
        (home / f"{inside}.zip").write_bytes(_packed({"ml-10M100K/ratings.dat": RATINGS}))
    else:
        _put(home / inside)
    expected = home / f"{inside}.zip" if packed else home / inside
    assert found() == {name: expected if name == "ml-10m" else None for name in RELEASES}
    assert resolve("ml-10m").n == 2
    _put(home / "ml-10M100K" / "ml-10m")
    assert found()["ml-10m"] != home / f"{inside}.zip", "a folder comes before a zip"


def test_options_reach_the_reader_but_the_demo_is_not_read(place):
    _put(place / "cache" / "cfuica" / "ml-1m")
    with pytest.raises(SettingsError, match="separator was given"):
        resolve("ml-1m", ReadOptions(separator=";"))
    with pytest.raises(SettingsError, match=r"'demo' is generated, not read .*; leave them out"):
        resolve("demo", ReadOptions(bad_rows="skip"))
    assert resolve("demo").n == 60_000
    assert resolve("demo", ReadOptions(empty_rating="keep")).n == 60_000  # what ranking asks for


def test_anything_else_is_a_path(place):
    path = place / "some.csv"
    path.write_text("user,item,rating\n1,1,5\n")
    assert resolve(str(path)).n == resolve(path).n == 1
    _put(place / "project" / "work" / "ml-1m")
    assert resolve("ml-1m").n == 2, "also a folder of that name, if there is no other"


def test_an_unknown_name_lists_the_known_ones(place):
    known = "(ml-100k, ml-1m, ml-10m, ml-20m, ml-25m, ml-32m, ml-latest-small, netflix, demo)"
    with pytest.raises(DataError, match=rf"'ml-2m' .*{re.escape(known)}") as caught:
        resolve("ml-2m")
    assert str(place / "project" / "work" / "ml-2m") in str(caught.value)


def test_the_home_of_an_unknown_user_is_a_folder_that_is_not_there(place, monkeypatch):
    for variable in ("CFUICA_DATA", "CFUICA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, "~nosuchuser-at-all/data")
        with pytest.raises(DataError, match=r"~nosuchuser-at-all/x\.csv' is neither"):
            resolve("~nosuchuser-at-all/x.csv")
        assert set(found().values()) == {None}


def test_real_names(data_path, monkeypatch):
    monkeypatch.setenv("CFUICA_DATA", str(data_path("ml-100k").parent))
    assert resolve("ml-100k").n == 100_000


# Fetching.


def _packed(files: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return memory.getvalue()


FILES = {"ratings.dat": RATINGS, "movies.dat": "1::A (1995)::Drama\n", "README": "terms\n"}
MEMBERS = {f"ml-10M100K/{name}": text for name, text in FILES.items()}
ARCHIVE = _packed({**MEMBERS, "ml-10M100K/tags.dat": os.urandom(400_000)})
KNOWN = Release(
    "ml-known", "ratings.dat", sha256=hashlib.sha256(ARCHIVE).hexdigest(), folder="ml-10M100K"
)
CHANGING = replace(KNOWN, name="ml-changing", sha256=None)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(datasets, "_PAUSES", (0.0, 0.0))
    with serving({"/ml-known.zip": ARCHIVE, "/ml-changing.zip": ARCHIVE}) as site:
        yield site


def _get(release: Release, cache: Path, site: Site | None = None, **more: object) -> Fetched:
    mirror = site.address if site else "http://127.0.0.1:9"
    return fetch(release, cache, **{"mirror": mirror, **more})  # type: ignore[arg-type]


def _refused(release: Release, cache: Path, site: Site | None = None, **more: object) -> str:
    """The message, which is one line; nothing is left in the cache but the lock."""
    before = _names(cache)
    with pytest.raises(DataError) as caught:
        _get(release, cache, site, **more)
    assert "\n" not in str(caught.value)
    assert _names(cache) == before
    return str(caught.value)


def _names(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*") if not path.name.endswith(".lock"))


def _content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_release_is_downloaded_verified_and_what_is_needed_is_extracted(cache, site):
    messages: list[str] = []
    seen: list[tuple[int, int | None]] = []
    progress = FetchCallbacks(messages.append, lambda *amounts: seen.append(amounts))
    fetched = _get(KNOWN, cache, site, callbacks=progress)
    assert fetched == Fetched(
        cache / "ml-known", True, "Verified: ml-known.zip has the SHA-256 that cfuica knows."
    )
    assert messages == [f"Downloading {site.address}/ml-known.zip."]
    assert seen == sorted(seen)
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert _content(fetched.folder) == FILES
    assert _names(cache) == ["ml-known"]


def test_a_second_time_it_is_there_and_force_replaces_it(cache, site):
    folder = _get(KNOWN, cache, site).folder
    (folder / "movies.dat").write_text("changed")
    again = _get(KNOWN, cache, site)
    assert again == Fetched(folder, False, "It was not verified again; --force fetches it anew.")
    assert len(site.asked) == 1
    assert _get(KNOWN, cache, site, force=True).new
    assert _content(folder) == FILES
    (folder / "ratings.dat").unlink()
    assert "ratings.dat is missing" in _refused(KNOWN, cache, site)
    assert _names(cache) == ["ml-known"]


@pytest.mark.parametrize(("trouble", "says"), [
    ({"fails_with": [503]}, "ml-known.zip answered 503 (Service Unavailable); trying again."),
    ({"cut_after": [99_000]}, f"(it broke off after 99,000 of {len(ARCHIVE):,} bytes); trying"),
    ({"cut_after": [0]}, f"(it broke off after 0 of {len(ARCHIVE):,} bytes); trying again."),
])  # fmt: skip
def test_trouble_that_passes_is_tried_again(cache, site, trouble, says):
    vars(site).update(trouble)
    messages: list[str] = []
    fetched = _get(KNOWN, cache, site, callbacks=FetchCallbacks(messages.append))
    assert _content(fetched.folder) == FILES
    assert says in messages[1]
    assert len(site.asked) == 2


@pytest.mark.parametrize(("trouble", "says", "attempts"), [
    ({"fails_with": [500] * 9}, "answered 500 (Internal Server Error)", 3),
    ({"cut_after": [9] * 9}, "could not be downloaded (it broke off after 9 of", 3),
    ({"files": {}}, "/ml-known.zip answered 404 (Not Found)", 1),
])  # fmt: skip
def test_trouble_that_stays_is_one_sentence_with_the_remedy(cache, site, trouble, says, attempts):
    vars(site).update(trouble)
    message = _refused(KNOWN, cache, site)
    assert says in message
    remedy = "or get ml-known.zip some other way and run  cfuica data get ml-known --from FILE."
    assert message.endswith(remedy)
    assert len(site.asked) == attempts


def test_a_server_that_cannot_be_reached_or_says_nothing(cache, monkeypatch):
    monkeypatch.setattr(datasets, "_PAUSES", ())
    monkeypatch.setattr(datasets, "_TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        mirror = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert f"{mirror}ml-known.zip could not be downloaded (Connection refused)" in _refused(
            KNOWN, cache, mirror=mirror
        )
        silent.listen()
        assert "could not be downloaded (timed out)" in _refused(KNOWN, cache, mirror=mirror)
    assert "could not be downloaded (" in _refused(KNOWN, cache, mirror="http://a..b")


def test_a_server_that_does_not_say_the_length(cache, site):
    site.says_length = False
    seen: list[int | None] = []
    progress = FetchCallbacks(progress=lambda done, total: seen.append(total))
    assert _get(KNOWN, cache, site, callbacks=progress).new
    assert set(seen) == {None}


def test_another_content_than_the_published_one_is_refused(cache, site):
    folder = _get(KNOWN, cache, site).folder
    site.files["/ml-known.zip"] = _packed(MEMBERS)
    message = _refused(KNOWN, cache, site, force=True)
    assert f"{site.address}/ml-known.zip is not the ml-known.zip of GroupLens" in message
    assert f"but {KNOWN.sha256} was expected" in message
    assert _content(folder) == FILES, "what was there stays"


def test_without_a_published_checksum_it_says_so(cache, site):
    fetched = _get(CHANGING, cache, site)
    assert fetched.verified.startswith("Not verified: ml-changing.zip changes over time and has no")
    site.files["/ml-changing.zip"] = ARCHIVE[:-100]
    assert f"{site.address}/ml-changing.zip cannot be read (" in _refused(
        CHANGING, cache, site, force=True
    )


@pytest.mark.parametrize("name", [
    "../../evil", "ml-10M100K/../../../evil", "{outside}/evil", "C:/evil", "..\\..\\evil",
])  # fmt: skip
def test_a_member_that_points_elsewhere_is_not_written_there(cache, site, tmp_path, name):
    name = name.format(outside=tmp_path)
    site.files["/ml-changing.zip"] = _packed({name: "x", f"{name}/a/b/README": "x", **MEMBERS})
    assert _content(_get(CHANGING, cache, site).folder) == FILES
    site.files["/ml-changing.zip"] = _packed({f"{name}/ratings.dat": RATINGS})
    folder = _get(CHANGING, cache, site, force=True).folder
    assert _content(folder) == {"ratings.dat": RATINGS}, "that name is in the folder as any other"
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


def test_links_in_an_archive_are_left_out(cache, tmp_path):
    link = zipfile.ZipInfo("README")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "given.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("ratings.dat", RATINGS)
    folder = _get(CHANGING, cache, source=tmp_path / "given.zip").folder
    assert _content(folder) == {"ratings.dat": RATINGS}


def test_a_zip_bomb_is_not_extracted(cache, site):
    site.files["/ml-changing.zip"] = _packed({**MEMBERS, "more": bytes(60 << 20)})
    message = _refused(CHANGING, cache, site)
    assert f"{site.address}/ml-changing.zip unpacks to 62,914" in message
    assert "zip bomb" in message


@pytest.mark.parametrize("kind", ["zip", "folder", "folder of the folder"])
def test_from_a_zip_or_a_folder_without_any_network(cache, tmp_path, kind):
    given = tmp_path / "given"
    given.mkdir()
    (given / "mine.zip").write_bytes(ARCHIVE)
    with zipfile.ZipFile(given / "mine.zip") as archive:
        archive.extractall(given)
    source = {"zip": given / "mine.zip", "folder": given / "ml-10M100K"}.get(kind, given)
    fetched = _get(KNOWN, cache, source=source)
    assert _content(fetched.folder) == FILES
    assert fetched.verified.startswith("Verified" if kind == "zip" else "Not verified: only arch")
    assert source.exists(), "what was given stays"


@pytest.mark.parametrize(("files", "says"), [
    ({"a.dat": RATINGS}, "it has no u.data, ratings.dat or ratings.csv"),
    ({"ratings.csv": "userId,movieId\n"}, "ratings.csv of 0.0 MB, but ratings.dat of about 265"),
    ({"ratings.dat": RATINGS}, "has ratings.dat of 0.0 MB, but ratings.dat of about 265.0 MB was"),
    ({"a/ratings.dat": RATINGS, "b/ratings.dat": RATINGS}, "ratings in several folders (a, b)"),
])  # fmt: skip
def test_other_data_is_refused(cache, tmp_path, files, says):
    (tmp_path / "given.zip").write_bytes(_packed(files))
    with zipfile.ZipFile(tmp_path / "given.zip") as archive:
        archive.extractall(tmp_path / "given")
    release = replace(RELEASES["ml-10m"], sha256=None)
    assert says in _refused(release, cache, source=tmp_path / "given.zip")
    assert says in _refused(release, cache, source=tmp_path / "given")
    assert "absent.zip does not exist" in _refused(release, cache, source=tmp_path / "absent.zip")


def test_the_real_ml_1m_is_the_published_one(cache, data_path):
    given = data_path("ml-1m/ml-1m.zip")
    fetched = _get(RELEASES["ml-1m"], cache, source=given)
    assert fetched.verified.startswith("Verified")
    assert set(_names(fetched.folder)) == {"README", "movies.dat", "ratings.dat"}
    assert "is not the ml-10m.zip of GroupLens" in _refused(RELEASES["ml-10m"], cache, source=given)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(cache, site, monkeypatch, call):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Full(io.BytesIO):
        write = full

    with monkeypatch.context() as patch:
        if call == "write":
            really = Path.open
            patch.setattr(
                Path, "open", lambda path, how="r": really(path, how) if how == "rb" else Full()
            )
        else:
            patch.setattr(os, call, full)
        message = _refused(KNOWN, cache, site)
    assert f"The disk that holds {cache} is full" in message
    assert "CFUICA_CACHE" in message
    assert len(site.asked) == 1, "and it is no trouble of the network"
    assert _get(KNOWN, cache, site).new, "once there is space, it works"


def test_several_at_once_fetch_once(cache, site):
    results: list[Fetched] = []
    threads = [
        threading.Thread(target=lambda: results.append(_get(KNOWN, cache, site))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.new for result in results) == [False, False, False, True]
    assert len(site.asked) == 1


def test_a_killed_process_is_not_waited_for_and_its_litter_is_cleared(cache, site):
    """The process is killed while it downloads and another one waits for it."""
    code = (
        "import sys; from pathlib import Path; from cfuica.data.datasets import *\n"
        "fetch(Release('ml-known', 'ratings.dat'), Path(sys.argv[1]), mirror=sys.argv[2])"
    )
    other = cache / ".unsealed-ml-changing-0123"
    other.mkdir(parents=True)
    messages: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mirror = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen([sys.executable, "-c", code, str(cache), mirror]) as worker:
            silent.accept()[0].close()
            assert len(_names(cache)) == 2

            def message(text: str) -> None:
                messages.append(text)
                worker.kill()

            assert _get(KNOWN, cache, site, callbacks=FetchCallbacks(message)).new
    assert messages[0] == "Another process is fetching ml-known; waiting for it."
    assert _names(cache) == [other.name, "ml-known"], "the other may be at work"
