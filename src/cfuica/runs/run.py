"""A training run: from tables to a run folder, resumable after an interruption.

`Job` trains a new run or resumes an unfinished one. `RunCheckpointer` saves the state of training
every few minutes. `StopRequest` turns Ctrl-C, SIGTERM and a closed terminal into a checkpoint after
the current minibatch.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Self

import cfuica
from cfuica.baselines.contract import Baseline
from cfuica.data.split_tables import DataSplit
from cfuica.errors import CfuicaError, Interrupted, SettingsError
from cfuica.io import is_full
from cfuica.models.co_autoregressive import RankingModel, RatingModel
from cfuica.models.recommender import kind_named
from cfuica.ops.runtime import peak_memory_gb, thread_count
from cfuica.reporting.report import write_run_report
from cfuica.run_folder import FINISHED, TRAINING, RunFolder
from cfuica.runs.callbacks import MetricsFile, TensorBoardFiles
from cfuica.runs.inputs import save_inputs, saved_inputs, settled_settings
from cfuica.settings import CommonSettings, TrainingSettings
from cfuica.training.checkpoint import (
    Checkpoint,
    Checkpointer,
    CheckpointFolder,
    TrainingDiverged,
    TrainingInterrupted,
)
from cfuica.training.display import CallbackList, TrainingCallback
from cfuica.training.trainer import Callback, network_name

# Windows has no SIGHUP.
_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class StopRequest:
    """While entered, a first signal is recorded; a second one stops at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Python hands signals to its main thread only; elsewhere the caller deals with them.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # What was ignored stays ignored: `nohup` means it.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            for each in self._before:  # a third one would only disturb the cleaning up
                signal.signal(each, signal.SIG_IGN)
            raise KeyboardInterrupt
        self.signal = number
        # print is not safe inside a handler: the signal may have come in the middle of a print.
        with suppress(OSError):  # the terminal may be gone, which is no reason to lose the run
            os.write(2, b"\nStopping after this minibatch; once more to stop at once.\n")


class RunCheckpointer(Checkpointer):
    """A checkpoint every `every_seconds`, and one when a stop is requested."""

    def __init__(
        self,
        checkpoints: CheckpointFolder,
        *,
        every_seconds: float,
        stop: StopRequest,
        restored: Checkpoint | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._every = every_seconds
        self._stop = stop
        self._cached = restored
        self._last = time.monotonic()

    def restored(self) -> Checkpoint | None:
        """The checkpoint to resume from, once: held here, it would double the memory."""
        restored, self._cached = self._cached, None
        return restored

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self._every

    def is_stopping(self) -> bool:
        return self._stop.signal is not None

    def save(self, checkpoint: Checkpoint) -> None:
        self._checkpoints.write(checkpoint)
        self._last = time.monotonic()


Model = RatingModel | RankingModel | Baseline

CHECKPOINT_SECONDS = 300.0


@dataclass
class Job:
    """A run that is about to be trained, from the start or from a checkpoint."""

    folder: RunFolder
    data_split: DataSplit
    settings: TrainingSettings
    record: dict[str, Any]
    restored: Checkpoint | None = None

    @classmethod
    def new(
        cls, folder: RunFolder, data_split: DataSplit, settings: TrainingSettings, *, preset: str
    ) -> Job:
        """Save the inputs of the run, so that it can be resumed; the folder stays held."""
        folder.hold()
        settings, _ = settled_settings(settings, data_split)
        record = {
            "status": TRAINING,
            "cfuica": cfuica.__version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "task": settings.task,
            "model": settings.model,
            "preset": preset,
            "settings": settings.model_dump(),
            "data": {
                "source": data_split.whole.source,
                "sha256": data_split.whole.sha256(),
                "users": data_split.whole.users.size,
                "items": data_split.whole.item_ids.size,
                "train": data_split.train.n,
                "valid": data_split.valid.n if data_split.valid else 0,
                "test": data_split.test.n if data_split.test else 0,
            },
            "split": data_split.description,
            "machine": {
                "platform": platform.platform(),
                "python": platform.python_version(),
                "threads": thread_count(),
            },
        }
        try:
            if data_split.test is not None:
                folder.write_test(data_split.test)
            save_inputs(folder.inputs, data_split, settings)
            folder.write_settings(settings)
            folder.write_record(record)
        except BaseException:
            folder.discard()
            folder.release()
            raise
        return cls(folder, data_split, settings, record)

    @classmethod
    def resumed(cls, folder: RunFolder, changes: dict[str, Any]) -> Job:
        """The job of an unfinished run, perhaps with changed settings of learning."""
        record = folder.read_record()
        if record.get("status") == FINISHED:
            raise CfuicaError(f"The run {folder.path} is finished; there is nothing to resume.")
        is_list = isinstance(record.get("resumed_at", []), list)
        if not (is_list and record.keys() >= {"settings", "date", "preset", "data", "split"}):
            raise CfuicaError(f"{folder.path}/run.json is damaged or not of a run; train again.")
        model = str(record.get("model", CommonSettings.model))
        kind = kind_named(model, record.get("task")).settings
        for name in changes:
            if name in kind.model_fields and name not in kind.changeable:
                *some, last = kind.changeable or ("",)
                others = f", only {', '.join(some)} and {last} can" if some else ""
                raise SettingsError(
                    f"Setting {name} cannot change when a run is resumed{others}; start another "
                    f"run for it."
                )
        try:
            settings = kind(**record["settings"]).replaced(**changes)
        except (TypeError, ValueError):
            raise CfuicaError(
                f"The settings in {folder.path}/run.json are damaged; train again."
            ) from None
        folder.hold()  # to the end of `run`
        try:
            checkpoints = CheckpointFolder(folder.unfinished)
            data_split, first_settings = saved_inputs(folder.inputs)
            restored, began = checkpoints.newest(), first_settings.model_dump()
            for name, value in settings.model_dump().items():
                if name not in kind.changeable and value != began[name]:
                    raise CfuicaError(
                        f"Setting {name} is {value!r} in {folder.path}/run.json, but the run began "
                        f"with {began[name]!r}; put it back, or start another run."
                    )
            place = {"member": 0, "step": 0}
            if restored:
                place = {"member": restored.member, "step": restored.step}
            if "max_steps" in changes and settings.most_steps <= place["step"]:
                raise SettingsError(
                    f"Setting max_steps = {settings.most_steps} is not usable: {place['step']} "
                    f"steps are done already; give more, or leave it as it was."
                )
            folder.clean()
            checkpoints.clean()
            record |= {"settings": settings.model_dump()}
            record["resumed_at"] = [*record.get("resumed_at", []), place]
            folder.write_settings(settings)
            folder.write_record(record)
            return cls(folder, data_split, settings, record, restored)
        except BaseException:
            folder.release()
            raise

    @property
    def place(self) -> str:
        """Where training begins, in words."""
        if self.restored is None:
            return "from the beginning"
        number, networks = self.restored.member, self.settings.networks
        name = network_name(number, networks, cold_start=self.settings.is_cold_start(number))
        return f"after step {self.restored.step}{f' of {name}' if networks > 1 else ''}"

    def run(
        self,
        callback: Callback,
        *,
        checkpoint_every: float | None = None,
        tensorboard: bool = False,
    ) -> Model:
        """Train, save the model, and record what is needed to repeat the run.

        `checkpoint_every` is in seconds; None means every five minutes.
        """
        folder = self.folder
        seconds = CHECKPOINT_SECONDS if checkpoint_every is None else checkpoint_every
        board = TrainingCallback()
        if tensorboard:
            after = (self.restored.member, self.restored.step) if self.restored else (0, 0)
            board = TensorBoardFiles(folder.tensorboard, resumed_after=after)
        with folder.held(), board, StopRequest() as stop:
            try:
                return self._finish(self._trained(CallbackList([board, callback]), stop, seconds))
            except TrainingInterrupted as error:
                raise Interrupted(
                    f"{error} and is kept; go on with:  {folder.how_to_resume}",
                    stop.signal or signal.SIGINT,
                ) from None
            except KeyboardInterrupt:
                raise Interrupted(
                    f"Training was stopped at once; {self._remedy()}", stop.signal or signal.SIGINT
                ) from None
            except TrainingDiverged as error:
                raise self._diverged(error) from None
            except BrokenPipeError as error:
                raise CfuicaError(
                    f"Training was stopped because nobody reads its progress any more; "
                    f"{self._remedy()}"
                ) from error
            except OSError as error:
                make_room = "make room and " if is_full(error) else ""
                raise CfuicaError(
                    f"The run {folder.path} cannot be written ({error.strerror or error}); "
                    f"{make_room}{self._remedy()}"
                ) from error

    def _trained(self, callback: Callback, stop: StopRequest, checkpoint_seconds: float) -> Model:
        folder, data_split, restored = self.folder, self.data_split, self.restored
        checkpoints = CheckpointFolder(folder.unfinished)
        history = restored.history if restored else []
        checkpointer = RunCheckpointer(
            checkpoints, every_seconds=checkpoint_seconds, stop=stop, restored=restored
        )
        self.restored = restored = None  # the checkpointer's alone: it is as large as the training
        try:
            with MetricsFile(folder.metrics, history) as metrics:
                model: Model = kind_named(self.settings.model, self.settings.task).model(
                    self.settings
                )
                return model.fit(
                    data_split.train,
                    valid=data_split.valid,
                    vocabulary=data_split.whole,
                    callback=CallbackList([metrics, callback]),
                    checkpointer=checkpointer,
                )
        except BaseException:
            if "resumed_at" not in self.record and not checkpoints.exist():
                folder.discard()
            raise

    def _remedy(self) -> str:
        """What to do after a failure, as the end of a sentence."""
        if self.folder.can_be_resumed:
            return f"go on from what is kept with:  {self.folder.how_to_resume}"
        return "train again, nothing was kept before."

    def _finish(self, model: Model) -> Model:
        trained, parameters = model.trained, model.parameter_counts
        assert trained is not None
        training = {
            "steps": trained.steps,
            "seconds": round(trained.seconds, 3),
            "seconds_in_minibatches": round(trained.seconds_in_steps, 3),
            "l2": getattr(trained.settings, "l2", None),
            "parameters": parameters["warm"],
            "peak_memory_gb": round(peak_memory_gb(), 3),
            "last": asdict(trained.last),
            "outcomes": trained.outcomes,
            "cold_start": None,
        }
        if "cold_start" in parameters:
            # It was trained last, and its metrics are those of cold-start users.
            training["cold_start"] = {
                "parameters": parameters["cold_start"],
                "last": asdict(trained.history[-1]),
            }
        record = {**self.record, "status": FINISHED, "training": training}
        model.artifact.card.update(
            {key: record[key] for key in ("date", "preset", "data", "split", "training")}
        )
        model.save(self.folder.model)
        write_run_report(self.folder, record, trained.history, model.checks)
        self.folder.write_record(record)
        self.folder.finish()
        return model

    def _diverged(self, error: TrainingDiverged) -> CfuicaError:
        rate = getattr(self.settings, "learning_rate", None)
        if rate is None or not self.folder.can_be_resumed:
            return error
        return TrainingDiverged(
            f"{str(error).removesuffix('.')}; what is kept is from before: go on from it "
            f"with:  {self.folder.how_to_resume} --set learning_rate={rate / 4:g}"
        )
