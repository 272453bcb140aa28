"""How far a reproduction is: bars on a terminal, and a line for each cell anywhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cfuica.reproduction.cells import FAILED, Cell, Watch
from cfuica.reproduction.sections import duration, scores


class ProgressDisplay(Watch):
    """A bar for all cells with the time left, and one for the training of the current cell."""

    def __init__(self, console: Console) -> None:
        self._console, self._place = console, ""
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task("cells", total=None, left="")
        self._cell = self._bars.add_task("", total=1.0, left="", visible=False)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def began(self, cell: Cell, number: int, total: int, seconds_left: float) -> None:
        left = f"about {duration(seconds_left)} left"
        self._ends = time.monotonic() + seconds_left
        self._place = f"[{number}/{total}]"
        self._bars.update(self._all, completed=number - 1, total=total, left=left)
        self._bars.reset(self._cell, description=cell.title, visible=True)
        if not self._console.is_terminal:
            self.note(f"{self._place} {cell.title}; {left}")

    def trained(self, share: float) -> None:
        self._bars.update(self._cell, completed=share)
        left = max(0.0, self._ends - time.monotonic())
        self._bars.update(self._all, left=f"about {duration(left)} left")

    def ended(self, cell: Cell, record: Mapping[str, Any]) -> None:
        self._bars.update(self._cell, visible=False)
        if record["status"] == FAILED:
            self.note(f"{self._place} {cell.title} failed: {record['reason']}.")
            return
        parts = filter(None, [scores(record), duration(record["seconds"])])
        self.note(f"{self._place} {cell.title}: {', '.join(parts)}")
