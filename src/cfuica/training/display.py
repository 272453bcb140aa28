"""The live display of a training, a bar for each network; `display` decides if `fit` has it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from cfuica.settings import TrainingSettings
from cfuica.training.trainer import Callback, Progress


class CallbackList(Callback):
    """Passes every event on to several callbacks."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    def started(self, settings: TrainingSettings) -> None:
        for callback in self._callbacks:
            callback.started(settings)

    def preparing(self, what: str, share: float) -> None:
        for callback in self._callbacks:
            callback.preparing(what, share)

    def note(self, text: str) -> None:
        for callback in self._callbacks:
            callback.note(text)

    def stepped(self, member: int, step: int, loss: float) -> None:
        for callback in self._callbacks:
            callback.stepped(member, step, loss)

    def validating(self, member: int, step: int, share: float) -> None:
        for callback in self._callbacks:
            callback.validating(member, step, share)

    def validated(self, progress: Progress) -> None:
        for callback in self._callbacks:
            callback.validated(progress)


class TrainingCallback(Callback):
    """A callback that opens before a training and closes after it, however it ends."""

    settings = TrainingSettings()

    def started(self, settings: TrainingSettings) -> None:
        self.settings = settings

    def open(self) -> None:
        """Before training."""

    def close(self) -> None:
        """After training."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LiveDisplay(TrainingCallback):
    """A bar per network with step rate, time left, current and best validation metric."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[done]}"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[scores]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[int, TaskID] = {}
        self._preparations: dict[str, TaskID] = {}
        self._began = (time.monotonic(), 0)

    def open(self) -> None:
        self._bars.start()

    def close(self) -> None:
        self._bars.stop()

    def preparing(self, what: str, share: float) -> None:
        if what not in self._preparations:
            self._preparations[what] = self._add(what, 1.0)
        self._bars.update(self._preparations[what], completed=share)

    def note(self, text: str) -> None:
        self._bars.console.print(text, highlight=False)

    def _add(self, name: str, total: float | None) -> TaskID:
        return self._bars.add_task(name, total=total, done="", rate="", scores="")

    def stepped(self, member: int, step: int, loss: float) -> None:
        settings = self.settings
        if member not in self._tasks:
            several = settings.networks > 1
            name = f"model {member + 1}/{settings.networks}" if several else "training"
            if settings.is_cold_start(member):
                name = "cold_start"  # short, for the same reason as below
            self._tasks[member] = self._add(name, settings.steps_planned)
            self._began = (time.monotonic(), step)
        # The clock starts with the first one done, which in a resumed run is not number 1.
        since, first = self._began
        rate = (step - first) / max(time.monotonic() - since, 1e-9)
        self._bars.update(
            self._tasks[member], completed=step, done=f"{step} steps", rate=f"{rate:.1f}/s"
        )

    def validating(self, member: int, step: int, share: float) -> None:
        if member in self._tasks:  # not yet, where a run is resumed in a validation
            self._bars.update(self._tasks[member], scores=f"validating {share:.0%}")

    def validated(self, progress: Progress) -> None:
        if progress.valid is not None and progress.member in self._tasks:
            # Short, so that a line with a four-digit step fits 80 columns.
            valid = progress.valid
            scores = f"{valid.measure} {valid.value:.4f}, best {progress.best:.4f}"
            self._bars.update(self._tasks[progress.member], scores=scores)


def display(progress: bool | None, *, reported: bool) -> TrainingCallback:
    """A bar on standard error: with `progress`, or by default (None) where standard error is a
    terminal and training is not `reported` otherwise."""
    if progress is None:
        # A program without a console has no standard error at all.
        progress = sys.stderr is not None and sys.stderr.isatty() and not reported
    return LiveDisplay(Console(stderr=True)) if progress else TrainingCallback()
