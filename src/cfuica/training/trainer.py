"""Training, from top to bottom: draw, compute, update; now and then validate.

How a training goes, and who is told.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from cfuica.errors import ModelFileError, SettingsError
from cfuica.metrics.ranking_metrics import Scores, scores_of_record
from cfuica.model.network import Network
from cfuica.settings import CommonSettings
from cfuica.training.batches import Block, Estimator, Prefetcher
from cfuica.training.checkpoint import (
    Checkpoint,
    Checkpointer,
    Tensors,
    TrainingDiverged,
    TrainingInterrupted,
)
from cfuica.training.gradients import GradientBuffers, Gradients
from cfuica.training.optimizer import STRIDE, Adam, MovingAverage
from cfuica.training.schedule import Schedule, Verdict, make_schedule


@dataclass(frozen=True)
class Progress:
    """The state of training after a validation, or after the last step of a member."""

    member: int
    networks: int
    step: int
    steps_planned: int | None
    loss: float
    rate: float
    gradient_norm: float
    valid: Scores | None
    best: float | None
    """The best of what validation is judged by."""
    verdict: str
    seconds: float
    seconds_in_steps: float
    cold_start: bool = False
    """Whether it is of the cold-start network, which is validated with all users as cold-start
    users or items."""

    @property
    def network(self) -> str:
        """The network's name."""
        return network_name(self.member, self.networks, cold_start=self.cold_start)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Progress:
        """The progress that `asdict` and JSON made this record of."""
        return cls(**{**record, "valid": scores_of_record(record["valid"])})


def network_name(number: int, networks: int, *, cold_start: bool) -> str:
    """What network `number`, counted from 0, is called: "model 2/4", "model 4/4 (cold-start users
    and items)"."""
    return f"model {number + 1}/{networks}{' (cold start)' if cold_start else ''}"


class Callback:
    """Told how training goes; does nothing by itself."""

    def started(self, settings: CommonSettings) -> None:
        """Training begins."""

    def stepped(self, member: int, step: int, loss: float) -> None:
        """A minibatch is done."""

    def validated(self, progress: Progress) -> None:
        """A validation (or a member's last step) is done."""


class Stopwatch:
    """Seconds spent inside `running()`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


Validator = Callable[[Network], Scores]

SEEDS_APART = 1_000_003  # between members; a prime, so that nearby seeds share none of them


class TrainingTask(Protocol):
    """What is trained: networks one after another, each from blocks of its own kind."""

    @property
    def settings(self) -> CommonSettings:
        """Those of all of them, with nothing left open."""
        ...

    def settings_of(self, network: int) -> CommonSettings:
        """The settings of one of them, counted from 0."""
        ...

    def new_model(self, network: int) -> Network:
        """Its parameters, untrained."""
        ...

    def blocks(self, network: int) -> Estimator:
        """What it learns from."""
        ...

    def loss_and_gradients(
        self, network: int, model: Network, block: Block, buffers: GradientBuffers
    ) -> tuple[float, Gradients]:
        """The cost of a block, and its gradients without the penalty."""
        ...

    def validator(self, network: int) -> Validator | None:
        """What scores it now and then, where there is something to score it on."""
        ...


@dataclass(frozen=True)
class Trained:
    """The parameters of each network, on the CPU, and how they came about."""

    networks: list[Tensors]
    history: list[Progress]
    seconds: float

    @property
    def steps(self) -> int:
        """Minibatches in all."""
        return sum(progress.step for progress in self._last)

    @property
    def seconds_in_steps(self) -> float:
        return sum(progress.seconds_in_steps for progress in self._last)

    @property
    def _last(self) -> list[Progress]:
        return list({progress.member: progress for progress in self.history}.values())


def usable_device(name: str) -> torch.device:
    """The torch device of this name; an error where it is not to be had."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # the device must be there and hold numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise SettingsError(
            f"Setting device = {name!r} is not usable here ({reason}); use device=cpu."
        ) from None
    return device


def train_networks(task: TrainingTask, callback: Callback, checkpointer: Checkpointer) -> Trained:
    """Train all networks of a task, or those that an earlier training left.

    The `checkpointer` writes training down now and then, and knows where an earlier one was left.
    """
    restored = checkpointer.restored()
    history = (
        [Progress.of_record(record) for record in restored.state["history"]] if restored else []
    )
    start = time.perf_counter() - (restored.state["seconds"] if restored else 0.0)
    # Copies, because the kept ones may be a file's pages, and a lone member's become the model's.
    finished = [_copies(tensors) for tensors in restored.finished] if restored else []
    while len(finished) < task.settings.networks:
        member = _Member.new(task, len(finished))
        if restored:
            member.restore(restored)
            restored = None
        _train_member(member, callback, checkpointer, finished, history, start)
        # On the CPU, where those of a resumed training are; and a GPU has better to hold.
        finished = [*finished, {k: t.cpu() for k, t in member.outcome.tensors().items()}]
    return Trained(finished, history, time.perf_counter() - start)


@dataclass
class _Member:
    """One member in training: all that a minibatch or a validation changes."""

    task: TrainingTask
    number: int
    settings: CommonSettings
    model: Network
    validate: Validator | None
    optimiser: Adam
    schedule: Schedule
    average: MovingAverage | None
    best: Tensors
    in_steps: Stopwatch
    step: int = 0
    verdict: Verdict = "continue"

    @classmethod
    def new(cls, task: TrainingTask, number: int) -> _Member:
        settings, model = task.settings_of(number), task.new_model(number)
        validate = task.validator(number)
        schedule = make_schedule(settings, has_validation=validate is not None)
        optimiser = Adam(model, settings)
        average = MovingAverage(model, settings.weight_average) if settings.weight_average else None
        return cls(
            task=task,
            number=number,
            settings=settings,
            model=model,
            validate=validate,
            optimiser=optimiser,
            schedule=schedule,
            average=average,
            best={},
            in_steps=Stopwatch(),
        )

    @property
    def outcome(self) -> Network:
        """What is validated, and what training ends with."""
        return self.model if self.average is None else self.average.model

    @property
    def is_done(self) -> bool:
        return self.verdict == "stop" or self.schedule.finished(self.step)

    @property
    def is_due(self) -> bool:
        """Whether it is validated after this step."""
        return self.step % self.settings.validate_every == 0 or self.schedule.finished(self.step)

    def update_average(self) -> None:
        """Bring the average, if there is one, up to this step where that is time."""
        if self.average is not None and (self.is_due or self.step % STRIDE == 0):
            self.average.update(self.model, self.step)

    def tensors(self) -> Tensors:
        kinds = {"model": self.model.tensors(), "adam": self.optimiser.tensors(), "best": self.best}
        if self.average is not None:
            kinds["average"] = self.average.model.tensors()
        return {f"{kind}.{k}": t for kind, tensors in kinds.items() for k, t in tensors.items()}

    def checkpoint(
        self, finished: list[Tensors], history: list[Progress], start: float
    ) -> Checkpoint:
        state = {
            "step": self.step,
            "verdict": self.verdict,
            "schedule": self.schedule.state(),
            "optimiser": self.optimiser.state(),
            "averaged": None if self.average is None else self.average.seen,
            "seconds": time.perf_counter() - start,
            "seconds_in_steps": self.in_steps.seconds,
            "history": [asdict(progress) for progress in history],
        }
        return Checkpoint(self.tensors(), finished, state)

    def restore(self, restored: Checkpoint) -> None:
        prefix = "best."
        best = {k: t for k, t in restored.tensors.items() if k.startswith(prefix)}
        current = {k: t for k, t in restored.tensors.items() if k not in best}
        if _shapes(current) != _shapes(self.tensors()):
            raise ModelFileError(
                "The checkpoint is not of these settings, this data and this version of cfuica; "
                "train again."
            )
        _copy(current, self.tensors())
        # Copies, because the kept ones may be a file's pages, which would keep the file.
        self.best = _copies({k.removeprefix(prefix): tensor for k, tensor in best.items()})
        self.step, self.verdict = restored.step, restored.state["verdict"]
        self.schedule.restore(restored.state["schedule"])
        self.optimiser.restore(restored.state["optimiser"])
        if self.average is not None:
            self.average.seen = restored.state["averaged"]
        self.in_steps.seconds = restored.state["seconds_in_steps"]


def _train_member(
    member: _Member,
    callback: Callback,
    checkpointer: Checkpointer,
    finished: list[Tensors],
    history: list[Progress],
    start: float,
) -> None:
    """Train to the end of its schedule; appends to the history."""
    task, model = member.task, member.model
    optimiser, schedule, validate = member.optimiser, member.schedule, member.validate
    buffers = GradientBuffers()
    blocks = Prefetcher(task.blocks(member.number))
    try:
        while not member.is_done:
            rate = schedule.rate(member.step)
            with member.in_steps.running():
                block = blocks.take(member.step)
                loss, gradients = task.loss_and_gradients(member.number, model, block, buffers)
                norm = optimiser.step(gradients, rate)
                member.step += 1
                member.update_average()
            _refuse_divergence(member, rate, {"loss": loss, "gradient's norm": norm})
            callback.stepped(member.number, member.step, loss)
            if member.is_due:
                scores = validate(member.outcome) if validate else None
                if scores is not None:
                    _refuse_divergence(member, rate, {f"validation {scores.measure}": scores.value})
                    member.verdict = schedule.judge(scores.sign * scores.value)
                if schedule.keeps_best:
                    if member.verdict == "improved":
                        _copy(member.outcome.tensors(), member.best)
                    elif member.verdict in ("cut", "stop") or schedule.finished(member.step):
                        for parameters in (model, member.outcome):
                            _copy(member.best, parameters.tensors())
                        optimiser.measure()
                history.append(
                    Progress(
                        member=member.number,
                        networks=task.settings.networks,
                        step=member.step,
                        steps_planned=schedule.steps_planned,
                        loss=loss,
                        rate=rate,
                        gradient_norm=norm,
                        valid=scores,
                        best=None if scores is None else scores.sign * schedule.best,
                        verdict=member.verdict,
                        seconds=time.perf_counter() - start,
                        seconds_in_steps=member.in_steps.seconds,
                        cold_start=task.settings.is_cold_start(member.number),
                    )
                )
                callback.validated(history[-1])
            stopping = checkpointer.is_stopping()
            if stopping or checkpointer.is_due():
                checkpointer.save(member.checkpoint(finished, history, start))
            if stopping:
                raise TrainingInterrupted(f"Training was stopped after step {member.step}")
    finally:
        blocks.close()


def _refuse_divergence(member: _Member, rate: float, found: dict[str, float]) -> None:
    """Raise where something that was found, or the parameters, are no longer numbers."""
    broken = [f"the {name} is {value}" for name, value in found.items() if not math.isfinite(value)]
    if not member.optimiser.is_finite:
        broken.append("the parameters overflowed")
    if broken:
        settings = member.task.settings
        cold_start = settings.is_cold_start(member.number)
        name = network_name(member.number, settings.networks, cold_start=cold_start)
        which = f" of {name}" if settings.networks > 1 else ""
        raise TrainingDiverged(
            f"Training diverged at step {member.step}{which}: {' and '.join(broken)} at a rate of "
            f"{rate:.2g}; try a lower learning_rate than {member.settings.learning_rate:g}."
        )


def _shapes(tensors: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _copies(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _copy(source: Tensors, target: Tensors) -> None:
    """Copy tensors by name, making room in an empty target."""
    for name, tensor in source.items():
        if name in target:
            target[name].copy_(tensor)
        else:
            target[name] = tensor.clone()
