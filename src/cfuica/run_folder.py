"""The folder of a training run: create, open, lock, clean and read it.

RUN/run.json         status, data, split, settings, versions, timings
RUN/settings.toml    its settings, for train --settings
RUN/metrics.jsonl    one line per validation
RUN/test.parquet     the run's own test set, in the caller's ids
RUN/model/           the model folder
RUN/report.html      settings, learning curves and calibration
RUN/tensorboard/     for TensorBoard, with --tensorboard
RUN/unfinished/      while training: the newest checkpoint, and the tables to resume with
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl

from cfuica.artifact import FILES as MODEL_FILES
from cfuica.artifact import may_be_replaced
from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError, DataError
from cfuica.io import (
    locked,
    parquet_bytes,
    read_parquet,
    write_bytes_atomically,
    write_text_atomically,
)
from cfuica.settings import TrainingSettings

_REPLACED = ".replaced"  # an earlier run, until the new one is finished
# What a run consists of; the hidden ones are left where a process was killed while writing.
_NAMES = (
    "run.json", "settings.toml", "metrics.jsonl", "test.parquet", "model", "report.html",
    "tensorboard", "unfinished", _REPLACED,
)  # fmt: skip
_LEFT_OVER = (
    ".run.json.", ".settings.toml.", ".unsealed-model-", ".report.html.", ".metrics.jsonl.",
    ".test.parquet.",
)  # fmt: skip

TRAINING, FINISHED = "training", "finished"


class RunFolder:
    """The paths of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = path / "model"
        self.test = path / "test.parquet"
        self.metrics = path / "metrics.jsonl"
        self.report = path / "report.html"
        self.tensorboard = path / "tensorboard"
        self.unfinished = path / "unfinished"
        self.inputs = self.unfinished / "inputs"
        self.how_to_resume = f"cfuica train --resume {shlex.quote(str(path))}"
        self._replaced = path / _REPLACED
        self._lock: ExitStack | None = None

    @classmethod
    def create(cls, path: str | Path, *, overwrite: bool = False) -> RunFolder:
        """A new folder, which is held; refuses one with content unless it is a run that may be
        overwritten."""
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise CfuicaError(f"--out {path} is a file; give the name of a folder to create.")
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder.hold()
        except OSError as error:
            raise CfuicaError(f"The folder {path} cannot be created: {error.strerror}.") from None
        try:
            folder._make_room(overwrite=overwrite)
        except BaseException:
            folder.release()
            raise
        return folder

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run."""
        path = Path(path)
        if not path.is_dir():
            raise CfuicaError(f"There is no run folder {path}; `cfuica train --out` makes one.")
        return cls(path)

    @property
    def can_be_resumed(self) -> bool:
        return (self.path / "run.json").is_file()

    def hold(self) -> None:
        """Keep other processes from training in this folder, or from replacing it, until `release`
        or the end of the process."""

        def refuse() -> None:
            raise CfuicaError(
                f"Another process is training in {self.path}; wait until it ends, or stop it."
            )

        if self._lock is None:
            with ExitStack() as stack:
                stack.enter_context(locked(self.path, refuse))
                self._lock = stack.pop_all()

    def release(self) -> None:
        """Let other processes train here."""
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder, if it is not held yet, and release it in the end."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def clean(self) -> None:
        """Remove what a killed process left half-written."""
        _clear(self.path, only=_LEFT_OVER)

    def discard(self) -> None:
        """Remove the run after a failure before the first checkpoint; refused where another process
        holds it.

        An earlier run that it was to replace comes back.
        """
        self.hold()
        self._clear_own()
        if self._replaced.is_dir():
            for child in self._replaced.iterdir():
                os.replace(child, self.path / child.name)
            self._replaced.rmdir()
        with suppress(OSError):  # a mounted folder stays, and one with an earlier run
            self.path.rmdir()

    def finish(self) -> None:
        """Remove what only an unfinished run needs, and an earlier run that it replaces."""
        shutil.rmtree(self.unfinished, ignore_errors=True)
        shutil.rmtree(self._replaced, ignore_errors=True)

    def _make_room(self, *, overwrite: bool) -> None:
        """Set an earlier run aside; refuse any other content."""
        children = list(self.path.iterdir())
        if not children:
            return
        is_run = all(map(_is_of_a_run, children))
        if not overwrite or not is_run:
            remedy = "add --overwrite or choose another" if is_run else "choose another"
            if is_run and self.unfinished.is_dir():
                remedy = f"go on with it ({self.how_to_resume}), {remedy}"
            raise CfuicaError(f"The folder {self.path} exists and is not empty; {remedy}.")
        self._set_aside()

    def _clear_own(self) -> None:
        _clear(self.path, only=(*(name for name in _NAMES if name != _REPLACED), *_LEFT_OVER))

    def _set_aside(self) -> None:
        """Keep an earlier run until there is something in its place."""
        if self._replaced.is_dir() and not self.model.exists():
            # What stands here was to replace that one and never got so far.
            self._clear_own()
            return
        shutil.rmtree(self._replaced, ignore_errors=True)
        children = list(self.path.iterdir())
        self._replaced.mkdir()
        for child in children:
            os.replace(child, self._replaced / child.name)

    def write_record(self, record: dict[str, Any]) -> None:
        text = json.dumps(record, indent=2) + "\n"
        write_text_atomically(self.path / "run.json", text)

    def write_settings(self, settings: TrainingSettings) -> None:
        comment = f"cfuica train DATA {settings.option} --settings FILE"
        write_text_atomically(self.path / "settings.toml", settings.toml(comment))

    def read_record(self) -> dict[str, Any]:
        path = self.path / "run.json"
        if path.exists() and not path.is_file():  # a pipe may never end
            raise CfuicaError(f"{path} is not a file; give the folder of a run.")
        try:
            record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise CfuicaError(
                f"{self.path} is not a run (no run.json); `cfuica train --out` makes one."
            ) from None
        except (ValueError, RecursionError):
            raise CfuicaError(f"{self.path / 'run.json'} is damaged; train again.") from None
        if not isinstance(record, dict):
            raise CfuicaError(f"{self.path / 'run.json'} is not of a run; train again.")
        return record

    def write_test(self, table: Interactions) -> None:
        write_bytes_atomically(self.test, parquet_bytes(table.frame))

    def read_test(self) -> Interactions:
        """The run's own test set."""
        path = self.test
        if not path.is_file():
            raise DataError(
                f"{self.path} has no test set (no test.parquet): it was trained on all its data; "
                f"name ratings to test on with --test FILE."
            )
        try:
            frame = read_parquet(path)
        except (OSError, ValueError):
            frame = None
        if frame is None or not _is_of_a_table(frame):
            raise DataError(
                f"{path} is damaged; train again, or name ratings to test on with --test FILE."
            )
        return Interactions(frame, source=str(path))


def owner_of(path: Path) -> str | None:
    """The model or run that a file belongs to or would belong to, in words.

    In a model folder that is any file, because a folder with other files is not replaced.
    """
    path = Path(os.path.realpath(path))
    if all((path.parent / name).is_file() for name in MODEL_FILES):
        return f"the model in {path.parent}"
    for folder in path.parents:
        if (folder / "run.json").is_file() and _is_of_a_run(
            folder / path.relative_to(folder).parts[0]
        ):
            return f"the run {folder}"
    return None


def _is_of_a_table(frame: pl.DataFrame) -> bool:
    """Whether the columns are those of `Interactions`."""
    ids = [frame.schema.get(role) for role in ("user", "item")]
    return (
        all(kind is not None and (kind.is_integer() or kind == pl.String) for kind in ids)
        and frame.schema.get("rating", pl.Float64) == pl.Float64
        and frame.schema.get("timestamp", pl.Int64) == pl.Int64
        and not any(frame[role].null_count() for role in ("user", "item"))
    )


def _is_of_a_run(path: Path) -> bool:
    """Whether a file belongs to a run, by its name; a folder `model` must hold a model."""
    if path.name == "model" and path.is_dir():
        return may_be_replaced(path)
    return path.name in _NAMES or path.name.startswith(_LEFT_OVER)


def _clear(folder: Path, only: tuple[str, ...] = ("",)) -> None:
    """Empty the folder, which may itself be a link or a mounted one, of names that begin so."""
    for child in folder.iterdir():
        if not child.name.startswith(only):
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()
