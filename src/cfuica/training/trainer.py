"""The training loop: draw a block, compute loss and gradients, update; validate and checkpoint.

`train_networks` trains the networks of a task one after another: the ensemble, and perhaps a
cold-start network. A `TrainingTask` says what they are and learn from, callbacks receive their
`Progress`, and a checkpointer saves and restores the state of the loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from cfuica.errors import ModelFileError, SettingsError
from cfuica.metrics.ranking_metrics import Scores, scores_of_record
from cfuica.model.network import Network
from cfuica.ops.runtime import quiet_torch_threads
from cfuica.settings import CommonSettings, TrainingSettings
from cfuica.training.batches import Block, Estimator, Prefetcher
from cfuica.training.checkpoint import (
    Checkpoint,
    Checkpointer,
    Tensors,
    TrainingDiverged,
    TrainingInterrupted,
)
from cfuica.training.optimizer import STRIDE, Adam, MovingAverage
from cfuica.training.schedule import Verdict, make_schedule


@dataclass(frozen=True)
class Progress:
    """The state of training after a validation, or after the last step of a network."""

    member: int
    networks: int
    step: int
    steps_planned: int | None
    # None where a baseline has none of it.
    loss: float | None
    rate: float | None
    gradient_norm: float | None
    valid: Scores | None
    best: float | None  # The best value so far of the measure that validation is judged by.
    verdict: str
    seconds: float
    seconds_in_steps: float
    # Whether this is the cold-start network, which is validated with all users cold-start.
    cold_start: bool = False

    @property
    def network(self) -> str:
        """The network's name."""
        return network_name(self.member, self.networks, cold_start=self.cold_start)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Progress:
        """The inverse of `asdict` and JSON."""
        return cls(**{**record, "valid": scores_of_record(record["valid"])})


def network_name(number: int, networks: int, *, cold_start: bool) -> str:
    """The name of network `number`, counted from 0: "model 2/4", "model 4/4 (cold start)"."""
    return f"model {number + 1}/{networks}{' (cold start)' if cold_start else ''}"


class Callback:
    """Receives the progress of training; this one ignores it."""

    def started(self, settings: TrainingSettings) -> None:
        """Training begins."""

    def preparing(self, what: str, share: float) -> None:
        """So much of what comes before the first minibatch, or after the last validation, is
        done."""

    def note(self, text: str) -> None:
        """A sentence about the training, for the log."""

    def stepped(self, member: int, step: int, loss: float) -> None:
        """A minibatch is done."""

    def validating(self, member: int, step: int, share: float) -> None:
        """So much of a validation is done; called in long ones only."""

    def validated(self, progress: Progress) -> None:
        """A validation (or a network's last step) is done."""


# Called between the parts of a long validation with the share that is done; it may raise.
Pause = Callable[[float], None]


def _no_pause(share: float) -> None:
    """Go on."""


class Validator(Protocol):
    """The scores of a network on validation data."""

    def __call__(self, network: Network, pause: Pause = _no_pause) -> Scores: ...


# Between the seeds of an ensemble; a prime, so that ensembles of nearby seeds share none of them.
SEEDS_APART = 1_000_003


class TrainingTask(Protocol):
    """What is trained: networks by number, counted from 0, each from blocks of its own kind."""

    @property
    def settings(self) -> CommonSettings:
        """The settings of the whole training, with every default resolved."""
        ...

    def settings_of(self, number: int) -> CommonSettings:
        """The settings of one network."""
        ...

    def new_network(self, number: int) -> Network:
        """Its initial parameters."""
        ...

    def blocks(self, number: int) -> Estimator:
        """The source of its minibatches."""
        ...

    def loss(self, network: Network, block: Block) -> tuple[Tensor, float]:
        """The sum of a block's losses without the penalty, a float64 scalar, and the count that it
        is divided by."""
        ...

    def validator(self, number: int) -> Validator | None:
        """Its scores on validation data, where there are any."""
        ...


# In place of "best" parameters: those of a training from both sets, as long as validated best.
LEARNED_AGAIN = "learned again"


def describe_outcome(outcome: Mapping[str, Any]) -> str:
    """A sentence about one of `Trained.outcomes`."""
    if outcome["parameters"] == LEARNED_AGAIN:
        return (
            f"Step {outcome['step']} validated best, with a {outcome['measure']} of "
            f"{outcome['valid']:.4f}; the model has learned again, for as many steps, from the "
            f"train and the validation set."
        )
    other = ""
    if outcome["best_step"] != outcome["step"]:
        other = f"; the best was {outcome['best']:.4f} at step {outcome['best_step']}"
    return (
        f"Kept of {outcome['network']}: the {outcome['parameters']} parameters, of step "
        f"{outcome['step']} with a validation {outcome['measure']} of {outcome['valid']:.4f}"
        f"{other}."
    )


@dataclass(frozen=True)
class Trained:
    """The weights of each network, on the CPU, and the progress of its training.

    `settings` have every default resolved."""

    weights: list[Tensors]
    settings: TrainingSettings
    history: list[Progress]
    seconds: float

    def __repr__(self) -> str:
        valid = self.last.valid
        scores = "" if valid is None else f", validation {valid.measure} {valid.value:.4f}"
        return (
            f"Trained({self.settings.networks} networks, {self.steps:,} steps, {self.seconds:.1f} s"
            f"{scores})"
        )

    @property
    def steps(self) -> int:
        """Minibatches in all."""
        return sum(progress.step for progress in self._ends)

    @property
    def seconds_in_steps(self) -> float:
        return sum(progress.seconds_in_steps for progress in self._ends)

    @property
    def last(self) -> Progress:
        """The last progress of the ensemble, the cold-start network left out."""
        return [progress for progress in self.history if not progress.cold_start][-1]

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        """Of each network that was validated: whether it ended with its last parameters, with
        those that validated best, or learned again; and the validations of the last and best."""
        keeps_best = self.settings.keeps_best
        parameters = "best" if keeps_best else "last"
        if getattr(self.settings, "learns_again", False):
            parameters = LEARNED_AGAIN
        found = []
        for last in self._ends:
            if last.valid is None or last.loss is None:  # a closed form has nothing to choose
                continue
            scores = {
                each.step: each.valid.sign * each.valid.value
                for each in self.history
                if each.member == last.member and each.valid is not None
            }
            best_step = min(scores, key=scores.__getitem__)
            step = best_step if keeps_best else last.step
            found.append(
                {
                    "network": last.network,
                    "parameters": parameters,
                    "measure": last.valid.measure,
                    "step": step,
                    "valid": last.valid.sign * scores[step],
                    "best_step": best_step,
                    "best": last.valid.sign * scores[best_step],
                }
            )
        return found

    @property
    def _ends(self) -> list[Progress]:
        return list({progress.member: progress for progress in self.history}.values())


@torch.no_grad()
def merge(networks: Sequence[Network], merged: Network) -> Network:
    """An ensemble as one wide network: writes the parameters of these networks to `merged`.

    Hidden units are independent until the decoder sums them, so `merged` has the hidden units of
    all, and its logits are the mean of theirs: a geometric mean of the distributions.
    """
    share = 1.0 / len(networks)
    for name, side in merged.sides.items():
        own = [network.sides[name] for network in networks]
        side.W.values.copy_(torch.cat([each.W.values for each in own], dim=2))
        side.V.values.copy_(torch.cat([each.V.values for each in own], dim=2).mul_(share))
        side.b.values.copy_(torch.stack([each.b.values for each in own]).mean(0))
        side.c.copy_(torch.cat([each.c.data for each in own]))
        if side.decay is not None:
            decays = [each.decay.log_time_constants.data for each in own if each.decay is not None]
            side.decay.log_time_constants.copy_(torch.cat(decays))
        if side.layer is not None:
            layers = [each.layer[0] for each in own if each.layer is not None]
            for layer, theirs in zip(side.layer, layers, strict=True):
                layer.load_state_dict(theirs.state_dict())
    if merged.bilinear is not None and networks[0].bilinear is not None:
        merged.bilinear.load_state_dict(networks[0].bilinear.state_dict())
    return merged


def usable_device(name: str) -> torch.device:
    """The torch device of this name; a SettingsError where it is not usable."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # the device must exist and hold numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise SettingsError(
            f"Setting device = {name!r} is not usable here ({reason}); use device=cpu."
        ) from None
    return device


def train_networks(task: TrainingTask, callback: Callback, checkpointer: Checkpointer) -> Trained:
    """Train all networks of a task, from the checkpoint of an earlier training if there is one."""
    restored = checkpointer.restored()
    history = [Progress.of_record(record) for record in restored.history] if restored else []
    start = time.perf_counter() - (restored.states["loop"]["seconds"] if restored else 0.0)
    # Copies, because restored tensors may be mapped from a file, and become the model's.
    finished = [_copies(tensors) for tensors in restored.finished] if restored else []
    while len(finished) < task.settings.networks:
        run = _NetworkTraining(task, len(finished), history, start)
        if restored:
            run.load_state_dict(restored.states)
            restored = None
        _train_network(run, callback, checkpointer, finished)
        # On the CPU, as those of a resumed training are, so that a GPU has room for the next.
        finished = [*finished, {k: t.cpu() for k, t in run.outcome.state_dict().items()}]
    return Trained(finished, task.settings, history, time.perf_counter() - start)


class _NetworkTraining:
    """One network in training: everything that a minibatch or a validation changes."""

    def __init__(
        self, task: TrainingTask, number: int, history: list[Progress], start: float
    ) -> None:
        self.task, self.number, self.history, self.start = task, number, history, start
        self.settings, self.network = task.settings_of(number), task.new_network(number)
        self.validate = task.validator(number)
        self.schedule = make_schedule(self.settings, has_validation=self.validate is not None)
        self.optimizer = Adam(self.network, self.settings)
        span = self.settings.weight_average
        self.average = MovingAverage(self.network, span) if span else None
        self.best: Tensors = {}
        self.seconds_in_steps = 0.0
        self.step = 0
        self.verdict: Verdict = "continue"
        # Loss, gradient norm and rate of the last step, while its validation is still to come.
        self.unvalidated: dict[str, float] | None = None

    @property
    def outcome(self) -> Network:
        """The network that is validated, and that training ends with."""
        return self.network if self.average is None else self.average.network

    @property
    def is_due(self) -> bool:
        """Whether the network is validated after this step."""
        return self.step % self.settings.validate_every == 0 or self.schedule.finished(self.step)

    def minibatch(self, block: Block, rate: float) -> tuple[float, float]:
        """One step of the optimiser; the loss and the norm of its gradient."""
        with quiet_torch_threads():
            total, count = self.task.loss(self.network, block)
            loss = total / global_count(count)
            loss.backward()
            norm = self.optimizer.step(rate)
            self.step += 1
            if self.average is not None and (self.is_due or self.step % STRIDE == 0):
                self.average.update(self.network, self.step)
        return loss.item(), norm

    def state_dict(self) -> dict[str, Any]:
        """The state dicts of all parts."""
        return {
            "network": dict(self.network.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": {} if self.average is None else self.average.state_dict(),
            "best": self.best,
            "loop": {
                "step": self.step,
                "verdict": self.verdict,
                "unvalidated": self.unvalidated,
                "seconds": time.perf_counter() - self.start,
                "seconds_in_steps": self.seconds_in_steps,
                "history": [asdict(progress) for progress in self.history],
            },
        }

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Continue from a `state_dict()`, which is copied."""
        try:
            self.network.load_state_dict(states["network"])
            self.optimizer.load_state_dict(states["optimizer"])
            self.schedule.load_state_dict(states["schedule"])
            if self.average is not None:
                self.average.load_state_dict(states["average"])
            # Copies, because restored tensors may be mapped from a file and would keep it open.
            self.best = _copies(states["best"])
            loop = states["loop"]
            self.step, self.verdict = int(loop["step"]), loop["verdict"]
            self.unvalidated = loop["unvalidated"]
            self.seconds_in_steps = loop["seconds_in_steps"]
        except (RuntimeError, KeyError):  # shapes or names differ
            raise ModelFileError(
                "The checkpoint is not of these settings, this data and this version of cfuica; "
                "train again."
            ) from None


def global_count(count: float) -> float:
    """The count that the sum of a minibatch's losses is divided by: that of all ranks, where there
    are several."""
    return count


def _train_network(
    run: _NetworkTraining, callback: Callback, checkpointer: Checkpointer, finished: list[Tensors]
) -> None:
    """Train to the end of the schedule; appends to the history."""

    def pause(share: float | None = None) -> None:
        """Save or stop where that is asked for: between two steps, or inside a validation, which
        is then done anew."""
        if share is not None:
            callback.validating(run.number, run.step, share)
        stopping = checkpointer.is_stopping()
        if stopping or checkpointer.is_due():
            checkpointer.save(Checkpoint(run.state_dict(), finished))
        if stopping:
            raise TrainingInterrupted(f"Training was stopped after step {run.step}")

    schedule, blocks = run.schedule, Prefetcher(run.task.blocks(run.number))
    try:
        if run.unvalidated is not None:  # stopped inside a validation
            _validate(run, callback, pause)
        while run.verdict != "stop" and not schedule.finished(run.step):
            rate = schedule.rate(run.step)
            step_start = time.perf_counter()
            loss, norm = run.minibatch(blocks.take(run.step), rate)
            run.seconds_in_steps += time.perf_counter() - step_start
            _refuse_divergence(run, rate, {"loss": loss, "gradient's norm": norm})
            callback.stepped(run.number, run.step, loss)
            if run.is_due:
                run.unvalidated = {"loss": loss, "gradient_norm": norm, "rate": rate}
                _validate(run, callback, pause)
            pause()
    finally:
        blocks.close()


def _validate(run: _NetworkTraining, callback: Callback, pause: Pause) -> None:
    """Validate the last step, judge it and report."""
    task, schedule, last = run.task, run.schedule, run.unvalidated
    assert last is not None
    scores = None
    if run.validate is not None:
        with torch.no_grad():
            scores = run.validate(run.outcome, pause)
        _refuse_divergence(run, last["rate"], {f"validation {scores.measure}": scores.value})
        run.verdict = schedule.judge(scores.sign * scores.value)
    run.unvalidated = None
    if schedule.keeps_best:
        if run.verdict == "improved":
            newest = run.outcome.state_dict()
            if run.best:
                for name, tensor in run.best.items():
                    tensor.copy_(newest[name])
            else:
                run.best = _copies(newest)
        elif run.best and (  # without validation data there is no best
            run.verdict in ("cut", "stop") or schedule.finished(run.step)
        ):
            for network in (run.network, run.outcome):
                network.load_state_dict(run.best)
            run.optimizer.measure()
    run.history.append(
        Progress(
            member=run.number,
            networks=task.settings.networks,
            step=run.step,
            steps_planned=schedule.steps_planned,
            valid=scores,
            best=None if scores is None else scores.sign * schedule.best,
            verdict=run.verdict,
            seconds=time.perf_counter() - run.start,
            seconds_in_steps=run.seconds_in_steps,
            cold_start=task.settings.is_cold_start(run.number),
            **last,
        )
    )
    callback.validated(run.history[-1])


def _refuse_divergence(run: _NetworkTraining, rate: float, found: dict[str, float]) -> None:
    """Raise where a number that was found, or the parameters, are not finite."""
    broken = [f"the {name} is {value}" for name, value in found.items() if not math.isfinite(value)]
    if not run.optimizer.is_finite:
        broken.append("the parameters overflowed")
    if broken:
        settings = run.task.settings
        cold_start = settings.is_cold_start(run.number)
        name = network_name(run.number, settings.networks, cold_start=cold_start)
        which = f" of {name}" if settings.networks > 1 else ""
        raise TrainingDiverged(
            f"Training diverged at step {run.step}{which}: {' and '.join(broken)} at a rate of "
            f"{rate:.2g}; try a lower learning_rate than {run.settings.learning_rate:g}."
        )


def _copies(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}
