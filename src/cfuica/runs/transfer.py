"""How a download goes: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cfuica.data.fetch import Watcher

SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def watching(console: Console) -> Iterator[Watcher]:
    """A watcher that shows everything on the console."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    if not console.is_terminal:
        lines = _Lines(console)
        yield Watcher(say, lines.report)
        return
    bar = Progress(
        BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=console
    )
    task = bar.add_task("", total=None, visible=False)
    with bar:
        yield Watcher(
            say, lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        )


class _Lines:
    """At most one line in five seconds, and one when all is there."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = time.monotonic()

    def report(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if done != total and now - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = now
        of_total = "" if total is None else f" of {total / 1e6:,.1f}"
        self._console.print(f"{done / 1e6:,.1f}{of_total} MB", highlight=False)
