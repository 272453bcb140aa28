"""A web server in this process that can be made to misbehave."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Site:
    """What is offered, how, and what was asked for."""

    files: dict[str, bytes]
    """By path, with the slash."""
    address: str = ""
    etag: str | None = '"one"'
    last_modified: str | None = None
    knows_ranges: bool = True
    wrong_range: bool = False
    cut_after: list[int] = field(default_factory=list)
    """For each of the next answers, after how many bytes the connection breaks."""
    fails_with: list[int] = field(default_factory=list)
    """Status codes of the next answers."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request."""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Site]:
    """The site, on a port of its own."""
    site = Site(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, site)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(request: BaseHTTPRequestHandler, site: Site) -> None:
    site.asked.append(dict(request.headers))
    if site.fails_with:
        request.send_error(site.fails_with.pop(0))
        return
    body = site.files.get(request.path)
    if body is None:
        request.send_error(404)
        return
    start = _start_of_range(request, site)
    if start is not None and start >= len(body):
        request.send_error(416)
        return
    if start is not None:
        shown = start + 1 if site.wrong_range else start
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
        body = body[start:]
    else:
        request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    if site.etag:
        request.send_header("ETag", site.etag)
    if site.last_modified:
        request.send_header("Last-Modified", site.last_modified)
    request.end_headers()
    request.wfile.write(body[: site.cut_after.pop(0)] if site.cut_after else body)


def _start_of_range(request: BaseHTTPRequestHandler, site: Site) -> int | None:
    """Where the answer starts; None for all of it, as when the content is not the expected one."""
    match = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    if match is None or not site.knows_ranges:
        return None
    current = (site.etag, site.last_modified)
    return int(match[1]) if request.headers.get("If-Range") in current else None
