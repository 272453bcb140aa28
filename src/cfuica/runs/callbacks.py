"""Callbacks of a training run: a metrics file, a live display, plain or JSON lines, TensorBoard.

`progress_callback` chooses the display for a terminal or a log. `TensorBoardFiles` needs
tensorboard, the extra `viz`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from cfuica.errors import SettingsError
from cfuica.io import write_text_atomically
from cfuica.settings import CommonSettings
from cfuica.training.trainer import Callback, Progress

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter
SECONDS_BETWEEN_LINES = 10.0


class CallbackList(Callback):
    """Passes every event on to several callbacks."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    def started(self, settings: CommonSettings) -> None:
        for callback in self._callbacks:
            callback.started(settings)

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

    settings = CommonSettings()

    def started(self, settings: CommonSettings) -> None:
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


class MetricsFile(TrainingCallback):
    """One JSON line per validation.

    It begins with the history of the checkpoint that training resumes from: the lines after that
    checkpoint will be written again.
    """

    def __init__(self, path: Path, history: Sequence[dict[str, Any]] = ()) -> None:
        self._path = path
        self._history = history

    def open(self) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in self._history)
        write_text_atomically(self._path, lines)

    def validated(self, progress: Progress) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress)) + "\n")


PROGRESS = ("auto", "live", "lines", "json", "quiet")


def progress_callback(console: Console, mode: str = "auto") -> TrainingCallback:
    """The callback of a mode: live display, plain lines, JSON lines or nothing; auto is the live
    display on a terminal and plain lines elsewhere."""
    if mode not in PROGRESS:
        raise SettingsError(f"--progress {mode} is not known; choose from {', '.join(PROGRESS)}.")
    if mode == "quiet":
        return TrainingCallback()
    if mode == "json":
        return JsonLines(sys.stdout)
    live = mode == "live" or (mode == "auto" and console.is_terminal)
    return LiveDisplay(console) if live else PlainLines(sys.stderr)


class JsonLines(TrainingCallback):
    """Every validation as a line of JSON, for programs that watch a training."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def started(self, settings: CommonSettings) -> None:
        self._write("started", settings=settings.model_dump())

    def validated(self, progress: Progress) -> None:
        self._write("validated", **asdict(progress))

    def _write(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=self._stream, flush=True)


class PlainLines(TrainingCallback):
    """A line per validation, at most one in ten seconds but always the last of a network."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last = 0.0

    def validated(self, progress: Progress) -> None:
        final = progress.step == self.settings.max_steps or progress.verdict in ("cut", "stop")
        now = time.monotonic()
        if final or now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            print(describe(progress), file=self._stream, flush=True)


class LiveDisplay(TrainingCallback):
    """A bar per network with step rate, time left, current and best validation metric."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f} steps"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[scores]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[int, TaskID] = {}
        self._began = (time.monotonic(), 0)

    def open(self) -> None:
        self._bars.start()

    def close(self) -> None:
        self._bars.stop()

    def stepped(self, member: int, step: int, loss: float) -> None:
        settings = self.settings
        if member not in self._tasks:
            several = settings.networks > 1
            name = f"model {member + 1}/{settings.networks}" if several else "training"
            if settings.is_cold_start(member):
                name = "cold_start"  # short, for the same reason as below
            total = settings.max_steps if settings.schedule == "planned" else None
            self._tasks[member] = self._bars.add_task(name, total=total, rate="", scores="")
            self._began = (time.monotonic(), step)
        # The clock starts with the first one done, which in a resumed run is not number 1.
        since, first = self._began
        rate = (step - first) / max(time.monotonic() - since, 1e-9)
        self._bars.update(self._tasks[member], completed=step, rate=f"{rate:.1f}/s")

    def validating(self, member: int, step: int, share: float) -> None:
        if member in self._tasks:  # not yet, where a run is resumed in a validation
            self._bars.update(self._tasks[member], scores=f"validating {share:.0%}")

    def validated(self, progress: Progress) -> None:
        if progress.valid is not None and progress.member in self._tasks:
            # Short, so that a line with a four-digit step fits 80 columns.
            valid = progress.valid
            scores = f"{valid.measure} {valid.value:.4f}, best {progress.best:.4f}"
            self._bars.update(self._tasks[progress.member], scores=scores)


def describe(progress: Progress) -> str:
    """One plain line."""
    network = f"{progress.network} " if progress.networks > 1 else ""
    planned = f"/{progress.steps_planned}" if progress.steps_planned else ""
    scores = ""
    if (valid := progress.valid) is not None:
        scores = f"  valid {valid.measure} {valid.value:.4f}  best {progress.best:.4f}"
    verdict = "  rate cut" if progress.verdict == "cut" else ""
    return (
        f"{network}step {progress.step}{planned}  loss {progress.loss:.4f}  "
        f"rate {progress.rate:.2g}{scores}  {progress.seconds:.0f} s{verdict}"
    )


def require_tensorboard() -> None:
    """Refuse before a training, not after it, where tensorboard is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            f"Writing for TensorBoard needs the extra viz ({error}): pip install 'cfuica[viz]'."
        ) from None


class TensorBoardFiles(TrainingCallback):
    """Scalars over minibatches under `folder`, with a TensorBoard run for each network.

    The loss comes with every minibatch, everything else with every validation, and shows while
    training goes on: `tensorboard --logdir RUN/tensorboard`.

    `resumed_after` is where a training resumes: (number of the network, its steps so far). The
    files of the training before it stay; later steps in them are hidden, because they are repeated.
    """

    def __init__(self, folder: Path, *, resumed_after: tuple[int, int] = (0, 0)) -> None:
        self._folder = folder
        self._resumed_after = resumed_after
        self._writers: dict[int, SummaryWriter] = {}

    def open(self) -> None:
        require_tensorboard()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def stepped(self, member: int, step: int, loss: float) -> None:
        self._writer(member).add_scalar("training/loss", loss, step)

    def validated(self, progress: Progress) -> None:
        values = {
            "training/learning rate": progress.rate,
            "training/gradient norm": progress.gradient_norm,
        }
        if progress.valid is not None:
            values |= {f"validation/{name}": x for name, x in progress.valid.named.items()}
            assert progress.best is not None
            values[f"validation/best {progress.valid.measure}"] = progress.best
        writer = self._writer(progress.member)
        for name, value in values.items():
            writer.add_scalar(name, value, progress.step)
        writer.flush()

    def _writer(self, member: int) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        if member not in self._writers:
            resumed, steps = self._resumed_after
            cold_start = self.settings.is_cold_start(member)
            self._writers[member] = SummaryWriter(
                str(self._folder / ("cold_start" if cold_start else f"model-{member + 1}")),
                # A later network than the resumed one starts from its first step.
                purge_step=1 + (steps if member == resumed else 0),
            )
        return self._writers[member]
