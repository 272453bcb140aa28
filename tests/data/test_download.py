"""Downloads from a server that breaks off, forgets, changes its mind."""

from __future__ import annotations

import errno
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfuica.data import download as module
from cfuica.data.download import DownloadError, Patience, bytes_of, discard, download
from cfuica.errors import SettingsError
from tests.data.webserver import Site, serving

CONTENT = bytes(range(256)) * 4096
QUICK = Patience(timeout=5, attempts=2, pause=0.0)
ONCE = Patience(timeout=5, attempts=1, pause=0.0)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"/set.zip": CONTENT}) as site:
        yield site


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "set.part"


def _get(site: Site, part: Path, patience: Patience = QUICK) -> list[tuple[int, int | None]]:
    seen: list[tuple[int, int | None]] = []
    download(
        f"{site.address}/set.zip", part, lambda done, total: seen.append((done, total)), patience
    )
    return seen


def _break_off(site: Site, part: Path, after: int = 300_000) -> None:
    """Leave the beginning of a download, as a process that was killed would."""
    site.cut_after = [after, 0, 0]
    with pytest.raises(DownloadError, match="broke off"):
        _get(site, part, ONCE)
    assert part.stat().st_size == after
    site.cut_after = []
    site.asked.clear()


def test_a_whole_download_is_the_content_and_reports_its_progress(site, part):
    seen = _get(site, part)
    assert part.read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(site.asked) == 1


def test_a_broken_connection_is_resumed_where_it_broke(site, part):
    site.cut_after = [300_000]
    _get(site, part)
    assert part.read_bytes() == CONTENT
    first, second = site.asked
    assert "Range" not in first
    assert second["Range"] == "bytes=300000-"
    assert second["If-Range"] == '"one"'


def test_a_download_that_keeps_moving_is_never_given_up(site, part):
    site.cut_after = [100_000] * 9
    _get(site, part, ONCE)
    assert part.read_bytes() == CONTENT
    assert len(site.asked) == 10


@pytest.mark.parametrize("when", [None, "Mon, 01 Jan 2024 00:00:00 GMT"])
def test_another_process_resumes_by_tag_or_by_date(site, part, when):
    if when:
        site.etag, site.last_modified = None, when
    _break_off(site, part)
    assert bytes_of(f"{site.address}/set.zip", part) == 300_000
    seen = _get(site, part)
    assert part.read_bytes() == CONTENT
    assert seen[0] == (300_000, len(CONTENT))
    assert [asked.get("Range") for asked in site.asked] == ["bytes=300000-"]
    assert site.asked[0]["If-Range"] == (when or '"one"')


def test_a_download_that_is_complete_asks_nothing(site, part):
    _get(site, part)
    _get(site, part)
    assert len(site.asked) == 1


def test_a_server_without_ranges_starts_over(site, part):
    _break_off(site, part)
    site.knows_ranges = False
    assert _get(site, part)[0] == (0, len(CONTENT))
    assert part.read_bytes() == CONTENT


def test_content_that_has_changed_starts_over(site, part):
    _break_off(site, part)
    site.etag, site.files["/set.zip"] = '"two"', b"other" * 100_000
    _get(site, part)
    assert site.asked[0]["If-Range"] == '"one"'
    assert part.read_bytes() == b"other" * 100_000
    assert json.loads(part.with_name("set.part.json").read_text())["validator"] == '"two"'


def test_another_address_starts_over(site, part):
    _break_off(site, part)
    site.files["/other.zip"] = CONTENT[::-1]
    download(f"{site.address}/other.zip", part, lambda *_: None, QUICK)
    assert "Range" not in site.asked[0]
    assert part.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("etag", [None, 'W/"one"'])
def test_without_a_reliable_tag_nothing_is_resumed(site, part, etag):
    site.etag = etag
    site.cut_after = [300_000]
    _get(site, part)
    assert part.read_bytes() == CONTENT
    assert all("Range" not in asked for asked in site.asked)


def test_an_answer_with_another_range_starts_over(site, part):
    _break_off(site, part)
    site.wrong_range = True
    _get(site, part)
    assert part.read_bytes() == CONTENT
    assert [("Range" in asked) for asked in site.asked] == [True, False]


def test_bytes_that_the_server_does_not_have_start_over(site, part):
    _break_off(site, part)
    site.files["/set.zip"] = CONTENT[:1000]
    _get(site, part)
    assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("beside", ["", "[]", "{", '{"url": 1}', '{"a": 2}'])
def test_a_damaged_note_beside_the_part_starts_over(site, part, beside):
    _break_off(site, part)
    part.with_name("set.part.json").write_text(beside)
    assert _get(site, part)[0] == (0, len(CONTENT))
    assert part.read_bytes() == CONTENT


@pytest.mark.parametrize("code", [500, 503, 429])
def test_trouble_that_passes_is_tried_again(site, part, code):
    site.fails_with = [code]
    _get(site, part)
    assert part.read_bytes() == CONTENT


def test_trouble_that_stays_is_told(site, part):
    site.fails_with = [500] * 9
    with pytest.raises(DownloadError, match=r"set\.zip answered 500 \("):
        _get(site, part)
    assert len(site.asked) == 2


def test_what_is_not_there_is_told_at_once(site, part):
    with pytest.raises(DownloadError, match=r"nothing\.zip answered 404 \(Not Found\)$"):
        download(f"{site.address}/nothing.zip", part, lambda *_: None, QUICK)
    assert len(site.asked) == 1
    assert not part.exists()


def test_a_server_that_cannot_be_reached_is_told(part):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DownloadError, match=rf":{port}/x\.zip could not be reached \(Connection"):
        download(f"http://127.0.0.1:{port}/x.zip", part, lambda *_: None, QUICK)


def test_a_server_that_says_nothing_is_not_waited_for_long(part):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.zip"
        with pytest.raises(DownloadError, match=r"could not be reached \(no answer in time\)"):
            download(url, part, lambda *_: None, Patience(timeout=0.1, attempts=1))


@pytest.mark.parametrize("url", ["file:///etc/hosts", "ftp://x/y.zip", "ml-1m.zip"])
def test_only_the_web_is_asked(part, url):
    with pytest.raises(SettingsError, match=r"not an address of the web, .* begin with http://"):
        download(url, part, lambda *_: None)


def test_more_than_any_data_set_has_is_not_taken(site, part, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)
    with pytest.raises(DownloadError, match="offers 1,048,576 bytes, more than any data set"):
        _get(site, part)


def test_a_full_disk_is_no_trouble_of_the_network(site, part, monkeypatch):
    class Full(io.RawIOBase):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def seek(self, *_: int) -> int:
            return 0

    real = Path.open

    def open_(path: Path, *how: object, **more: object) -> object:
        return Full() if path == part else real(path, *how, **more)

    monkeypatch.setattr(Path, "open", open_)
    with pytest.raises(OSError, match="No space left"):
        _get(site, part)
    assert len(site.asked) == 1, "it was not tried again"


def test_a_discarded_download_leaves_nothing(site, part):
    _break_off(site, part)
    discard(part)
    assert list(part.parent.iterdir()) == []
