"""A web server in this process that can be made to misbehave."""

from __future__ import annotations

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
    says_length: bool = True
    cut_after: list[int] = field(default_factory=list)
    """For each of the next answers, after how many bytes the connection breaks."""
    fails_with: list[int] = field(default_factory=list)
    """Status codes of the next answers."""
    asked: list[str] = field(default_factory=list)
    """The path of each request."""


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
    site.asked.append(request.path)
    if site.fails_with:
        request.send_error(site.fails_with.pop(0))
        return
    body = site.files.get(request.path)
    if body is None:
        request.send_error(404)
        return
    request.send_response(200)
    if site.says_length:
        request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body[: site.cut_after.pop(0)] if site.cut_after else body)
