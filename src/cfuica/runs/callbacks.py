"""Callbacks of a training run: a metrics file, plain or JSON lines, TensorBoard.

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
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console

from cfuica.errors import SettingsError
from cfuica.io import write_text_atomically
from cfuica.settings import TrainingSettings
from cfuica.training.display import LiveDisplay, TrainingCallback
from cfuica.training.trainer import Progress

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter
SECONDS_BETWEEN_LINES = 10.0


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

    def started(self, settings: TrainingSettings) -> None:
        self._write("started", settings=settings.model_dump())

    def preparing(self, what: str, share: float) -> None:
        self._write("preparing", what=what, share=share)

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def validated(self, progress: Progress) -> None:
        self._write("validated", **asdict(progress))

    def _write(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=self._stream, flush=True)


class PlainLines(TrainingCallback):
    """A line per validation, at most one in ten seconds but always the last of a network."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last = 0.0

    def preparing(self, what: str, share: float) -> None:
        if share == 1 or time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            print(f"{what}: {share:.0%}", file=self._stream, flush=True)

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def validated(self, progress: Progress) -> None:
        final = progress.step == self.settings.most_steps or progress.verdict in ("cut", "stop")
        now = time.monotonic()
        if final or now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            print(describe(progress), file=self._stream, flush=True)


def describe(progress: Progress) -> str:
    """One plain line."""
    network = f"{progress.network} " if progress.networks > 1 else ""
    planned = f"/{progress.steps_planned}" if progress.steps_planned else ""
    loss = "" if progress.loss is None else f"  loss {progress.loss:.4f}"
    rate = "" if progress.rate is None else f"  rate {progress.rate:.2g}"
    scores = ""
    if (valid := progress.valid) is not None:
        scores = f"  valid {valid.measure} {valid.value:.4f}  best {progress.best:.4f}"
    verdict = "  rate cut" if progress.verdict == "cut" else ""
    return (
        f"{network}step {progress.step}{planned}{loss}{rate}{scores}  "
        f"{progress.seconds:.0f} s{verdict}"
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
        values: dict[str, float | None] = {
            "training/learning rate": progress.rate,
            "training/gradient norm": progress.gradient_norm,
        }
        if progress.valid is not None:
            values |= {f"validation/{name}": x for name, x in progress.valid.named.items()}
            values[f"validation/best {progress.valid.measure}"] = progress.best
        writer = self._writer(progress.member)
        for name, value in values.items():
            if value is not None:
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
