"""Bytes over HTTP into a file, resumed where an earlier attempt ended."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cfuica.errors import SettingsError
from cfuica.io import write_text_atomically

Report = Callable[[int, int | None], None]
"""Told how many bytes there are, and how many there will be if the server says so."""

_CHUNK = 1 << 18
_MOST_BYTES = 8 << 30
# Answers that another attempt may better.
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_NO_SUCH_RANGE = 416


class DownloadError(Exception):
    """What happened, as the beginning of a sentence; the caller knows what to do about it."""


@dataclass(frozen=True)
class Patience:
    """When to give up."""

    timeout: float = 30.0
    """Seconds without a byte."""
    attempts: int = 3
    """Attempts in a row that brought nothing new."""
    pause: float = 1.0
    """Seconds before the second attempt; twice as long each further time nothing new came."""


PATIENCE = Patience()


def download(url: str, part: Path, report: Report, patience: Patience = PATIENCE) -> None:
    """Complete the file `part`, from whatever it holds of this very content.

    Beside it, `part`.json says what the bytes belong to. They are used again only if the server
    confirms that its content is still the same; otherwise the download starts over. Trouble with
    the disk is an OSError, trouble with the network a DownloadError, any other kind of address a
    SettingsError.
    """
    if not re.match(r"https?://", url):
        raise SettingsError(
            f"{url} is not an address of the web, because it does not begin with http:// or "
            f"https://; give --mirror (or CFUICA_MIRROR) one that does."
        )
    failures = 0
    while True:
        before = bytes_of(url, part)
        try:
            _attempt(url, part, report, patience.timeout)
            return
        except _PassingError as error:
            failures = 0 if bytes_of(url, part) > before else failures + 1
            if failures == patience.attempts:
                raise DownloadError(str(error)) from error
        time.sleep(patience.pause * 2 ** max(failures - 1, 0))


def bytes_of(url: str, part: Path) -> int:
    """How many bytes of an earlier download can be used."""
    return _resumable(url, part)[0]


def discard(part: Path) -> None:
    """Forget a download."""
    part.unlink(missing_ok=True)
    _beside(part).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Origin:
    """What the bytes of a part are the beginning of."""

    url: str
    validator: str
    """The server's word for this content: its ETag, or when it last changed."""
    total: int


class _PassingError(Exception):
    """Something that another attempt may better."""


def _attempt(url: str, part: Path, report: Report, timeout: float) -> None:
    have, origin = _resumable(url, part)
    if origin is not None and have == origin.total:
        report(have, have)
        return
    headers = {"User-Agent": "cfuica", "Accept-Encoding": "identity"}
    if origin is not None and have:
        headers |= {"Range": f"bytes={have}-", "If-Range": origin.validator}
    with _open(urllib.request.Request(url, headers=headers), part, timeout) as response:
        if response.status == 206 and origin is not None:
            _refuse_other_range(response, part, have, origin)
            total: int | None = origin.total
        else:
            have, total = 0, _content_length(response)
            _begin(part, _origin_of(url, response, total))
        _receive(response, part, have, total, report)


def _open(request: urllib.request.Request, part: Path, timeout: float) -> http.client.HTTPResponse:
    try:
        with _network(f"{request.full_url} could not be reached"):
            response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)
            return response
    except urllib.error.HTTPError as error:
        problem = f"{request.full_url} answered {error.code} ({error.reason})"
        if error.code == _NO_SUCH_RANGE:
            # Our bytes are not the beginning of what is there now.
            discard(part)
            raise _PassingError(problem) from error
        if error.code in _PASSING:
            raise _PassingError(problem) from error
        raise DownloadError(problem) from error


def _receive(
    response: http.client.HTTPResponse, part: Path, have: int, total: int | None, report: Report
) -> None:
    most = _MOST_BYTES if total is None else total
    # Unbuffered: what was written counts, and a full disk shows at the write itself.
    with part.open("r+b", buffering=0) as file:
        file.seek(have)
        report(have, total)
        while True:
            with _network(f"the download of {response.url} broke off"):
                chunk = response.read(_CHUNK)
            if not chunk:
                break
            have += len(chunk)
            if have > most:
                raise DownloadError(f"{response.url} sent more than {most:,} bytes")
            rest = memoryview(chunk)
            while rest:
                rest = rest[file.write(rest) :]
            report(have, total)
    if total is not None and have < total:
        raise _PassingError(
            f"the download of {response.url} broke off after {have:,} of {total:,} bytes"
        )


@contextmanager
def _network(problem: str) -> Iterator[None]:
    """Whatever the network does wrong inside, but an answer that is an error, may pass."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise _PassingError(f"{problem} ({_reason(error)})") from error


def _begin(part: Path, origin: _Origin | None) -> None:
    """An empty part, which can be resumed if its origin is known."""
    discard(part)
    part.touch()
    if origin is not None:
        write_text_atomically(_beside(part), json.dumps(asdict(origin)) + "\n")


def _resumable(url: str, part: Path) -> tuple[int, _Origin | None]:
    """(bytes that are there, what they belong to); (0, None) if that is not known."""
    try:
        origin = _Origin(**json.loads(_beside(part).read_text(encoding="utf-8")))
        size = part.stat().st_size
        usable = origin.url == url and size <= origin.total
    except (FileNotFoundError, ValueError, TypeError):
        return 0, None
    return (size, origin) if usable else (0, None)


def _origin_of(url: str, response: http.client.HTTPResponse, total: int | None) -> _Origin | None:
    etag = response.headers.get("ETag")
    # A weak tag promises the same meaning, not the same bytes.
    strong = etag if etag and not etag.startswith("W/") else None
    validator = strong or response.headers.get("Last-Modified")
    return None if validator is None or total is None else _Origin(url, validator, total)


def _content_length(response: http.client.HTTPResponse) -> int | None:
    given = response.headers.get("Content-Length", "")
    total = int(given) if given.isdecimal() else None
    if total is not None and total > _MOST_BYTES:
        raise DownloadError(f"{response.url} offers {total:,} bytes, more than any data set has")
    return total


def _refuse_other_range(
    response: http.client.HTTPResponse, part: Path, have: int, origin: _Origin
) -> None:
    """A server that sends another range than was asked for cannot be resumed from."""
    expected = f"bytes {have}-{origin.total - 1}/{origin.total}"
    if response.headers.get("Content-Range") != expected:
        discard(part)
        raise _PassingError(f"{response.url} sent another part of the file than was asked for")


def _beside(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, TimeoutError):
        return "no answer in time"
    return getattr(inner, "strerror", None) or str(inner).rstrip(".") or type(inner).__name__
