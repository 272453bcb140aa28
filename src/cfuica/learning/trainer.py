"""Training, from top to bottom: draw, compute, update; now and then validate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.rated import RatedPairs
from cfuica.errors import ModelFileError, SettingsError
from cfuica.evaluation.metrics import RatingScores, rating_scores
from cfuica.learning.block import Block
from cfuica.learning.dropout import Dropout
from cfuica.learning.estimator import Estimator, make_estimator, side_names
from cfuica.learning.gradients import GradientBuffers, block_cost_and_gradients
from cfuica.learning.merge import merge
from cfuica.learning.optimiser import Adam
from cfuica.learning.prefetch import Prefetcher
from cfuica.learning.schedule import Schedule, Verdict, make_schedule
from cfuica.learning.snapshot import (
    Keeper,
    Snapshot,
    Tensors,
    TrainingDiverged,
    TrainingInterrupted,
)
from cfuica.learning.strangers import SHORT_CONTEXTS, Strangers
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.gain import OFFSET, STRANGERS_OFFSET, Gain
from cfuica.model.pairs import AXES, SideName
from cfuica.model.prediction import Question, answer
from cfuica.model.side import TABLES
from cfuica.settings import Settings


@dataclass(frozen=True)
class Progress:
    """The state of training after a validation, or after the last step of a member."""

    member: int
    members: int
    step: int
    steps_planned: int | None
    cost: float
    rate: float
    gradient_norm: float
    valid: RatingScores | None
    best_rmse: float | None
    verdict: str
    seconds: float
    seconds_in_steps: float
    strangers: bool = False
    """Whether it is of the strangers' network, which is validated with all users as strangers."""

    @property
    def network(self) -> str:
        """The network's name."""
        return network_name(self.member, self.members, strangers=self.strangers)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Progress:
        """The progress that `asdict` and JSON made this record of."""
        valid = record["valid"]
        return cls(**{**record, "valid": None if valid is None else RatingScores(**valid)})


def network_name(number: int, networks: int, *, strangers: bool) -> str:
    """What network `number`, counted from 0, is called: "model 2/4", "model 4/4 (strangers)"."""
    return f"model {number + 1}/{networks}{' (strangers)' if strangers else ''}"


class Listener:
    """Told how training goes; does nothing by itself."""

    def started(self, settings: Settings) -> None:
        """Training begins."""

    def stepped(self, member: int, step: int, cost: float) -> None:
        """A minibatch is done."""

    def validated(self, progress: Progress) -> None:
        """A validation (or a member's last step) is done."""


@dataclass(frozen=True)
class Fitted:
    """A trained model and how it came about; `settings` are those given, with nothing left open.

    `rows` (n,) int32 names the table row of each user and item: the shared one, the last, where
    there was no behaviour to train on.
    """

    model: CoAutoregressive
    strangers: CoAutoregressive | None
    """The network that answers where the user or the item is a stranger."""
    rows: dict[SideName, np.ndarray]
    settings: Settings
    history: list[Progress]
    steps: int
    seconds: float
    seconds_in_steps: float

    @property
    def last(self) -> Progress:
        """The last progress of the networks of those who are known."""
        return [progress for progress in self.history if not progress.strangers][-1]


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


Validator = Callable[[CoAutoregressive], RatingScores]

SEEDS_APART = 1_000_003  # between members; a prime, so that nearby seeds share none of them


def new_model(
    matrix: BehaviourMatrix, settings: Settings, *, of_strangers: bool = False
) -> CoAutoregressive:
    """Untrained parameters of the settings' shape for this matrix's users and items."""
    device = usable_device(settings.device)
    return CoAutoregressive.initial(
        n_users=matrix.n_users,
        n_items=matrix.n_items,
        n_labels=matrix.n_labels,
        hidden=hidden_units(settings),
        activation=settings.activation,
        share=settings.share_labels,
        seed=settings.seed,
        gains=side_gains(matrix, settings, of_strangers=of_strangers),
        bridged=of_strangers and settings.bridge_rate > 0,
    ).to(device)


def side_gains(
    matrix: BehaviourMatrix, settings: Settings, *, of_strangers: bool = False
) -> dict[SideName, Gain]:
    """How each side scales its sums; the users side sums over what was done on items."""
    offset = STRANGERS_OFFSET if of_strangers else OFFSET
    return {
        "users": Gain.for_rows(settings.size_power, matrix.by_item.offsets, offset),
        "items": Gain.for_rows(settings.size_power, matrix.by_user.offsets, offset),
    }


def hidden_units(settings: Settings) -> dict[SideName, int]:
    """The hidden units of each side that the settings' model has."""
    units: dict[SideName, int] = {"users": settings.hidden_users, "items": settings.hidden_items}
    return {side: units[side] for side in side_names(settings)}


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


def train(
    matrix: BehaviourMatrix,
    settings: Settings,
    values_k: np.ndarray,
    *,
    valid: RatedPairs | None = None,
    listener: Listener | None = None,
    keeper: Keeper | None = None,
) -> Fitted:
    """Fit a model to `matrix`; validate on `valid`, conditioned on `matrix` only.

    `values_k` (K) are the ratings that the labels stand for. The `keeper` writes training down
    now and then, and knows where an earlier one was left.
    """
    if matrix.n_behaviours == 0:
        raise SettingsError("There is no behaviour to train on; give more data or fewer folds.")
    settings = settings.settled(matrix.n_behaviours)
    listener, keeper = listener or Listener(), keeper or Keeper()
    kept = keeper.kept()
    history = [Progress.of_record(record) for record in kept.state["history"]] if kept else []
    start = time.perf_counter() - (kept.state["seconds"] if kept else 0.0)
    listener.started(settings)
    has_validation = valid is not None and valid.n > 0
    # Copies, because the kept ones may be a file's pages, and a lone member's become the model's.
    finished = [_copies(tensors) for tensors in kept.finished] if kept else []
    while len(finished) < settings.networks:
        member = _Member.new(matrix, settings, len(finished), has_validation=has_validation)
        validate = None
        if valid is not None and has_validation:
            validate = make_validator(
                matrix, valid, values_k, as_strangers=member.answers_for_strangers
            )
        if kept:
            member.restore(kept)
            kept = None
        _train_member(member, matrix, validate, listener, keeper, finished, history, start)
        # On the CPU, where those of a resumed training are; and a GPU has better to hold.
        finished = [*finished, {k: t.cpu() for k, t in member.model.tensors().items()}]
    networks = [
        CoAutoregressive.of_tensors(
            each,
            settings.activation,
            side_gains(matrix, settings, of_strangers=settings.is_of_strangers(number)),
        )
        for number, each in enumerate(finished)
    ]
    model = merge(networks[: settings.members]).to("cpu")
    strangers = networks[-1].to("cpu") if settings.strangers else None
    known = {axis: np.flatnonzero(np.diff(matrix.by(axis).offsets)) for axis in AXES}
    _share_the_mean(model, known, TABLES)
    if strangers is not None:  # it has learned V and b of the shared rows
        _share_the_mean(strangers, known, ("encoder_nkh",))
    last_of_member = {progress.member: progress for progress in history}.values()
    return Fitted(
        model=model,
        strangers=strangers,
        rows={axis: _rows(matrix.by(axis).n_rows, known[axis]) for axis in AXES},
        settings=settings,
        history=history,
        steps=sum(progress.step for progress in last_of_member),
        seconds=time.perf_counter() - start,
        seconds_in_steps=sum(progress.seconds_in_steps for progress in last_of_member),
    )


@dataclass
class _Member:
    """One member in training: all that a minibatch or a validation changes."""

    number: int
    settings: Settings
    model: CoAutoregressive
    optimiser: Adam
    schedule: Schedule
    best: Tensors
    in_steps: Stopwatch
    step: int = 0
    verdict: Verdict = "continue"

    @classmethod
    def new(
        cls, matrix: BehaviourMatrix, settings: Settings, number: int, *, has_validation: bool
    ) -> _Member:
        # Members differ in their seed only: initial values and blocks. That of strangers has as
        # many units as it is given, and blocks of its own kind.
        settings = settings.replaced(seed=settings.seed + SEEDS_APART * number)
        of_strangers = settings.is_of_strangers(number)
        if of_strangers:
            units = settings.strangers
            settings = settings.replaced(hidden_users=units, hidden_items=units)
        model = new_model(matrix, settings, of_strangers=of_strangers)
        schedule = make_schedule(settings, has_validation=has_validation)
        return cls(number, settings, model, Adam(model, settings), schedule, {}, Stopwatch())

    @property
    def answers_for_strangers(self) -> bool:
        """Whether this is the strangers' network."""
        return self.settings.is_of_strangers(self.number)

    @property
    def is_done(self) -> bool:
        return self.verdict == "stop" or self.schedule.finished(self.step)

    def tensors(self) -> Tensors:
        kinds = {"model": self.model.tensors(), "adam": self.optimiser.tensors(), "best": self.best}
        return {f"{kind}.{k}": t for kind, tensors in kinds.items() for k, t in tensors.items()}

    def snapshot(self, finished: list[Tensors], history: list[Progress], start: float) -> Snapshot:
        state = {
            "step": self.step,
            "verdict": self.verdict,
            "schedule": self.schedule.state(),
            "optimiser": self.optimiser.state(),
            "seconds": time.perf_counter() - start,
            "seconds_in_steps": self.in_steps.seconds,
            "history": [asdict(progress) for progress in history],
        }
        return Snapshot(self.tensors(), finished, state)

    def restore(self, kept: Snapshot) -> None:
        prefix = "best."
        best = {k: t for k, t in kept.tensors.items() if k.startswith(prefix)}
        current = {k: t for k, t in kept.tensors.items() if k not in best}
        if _shapes(current) != _shapes(self.tensors()):
            raise ModelFileError(
                "The checkpoint is not of these settings, this data and this version of cfuica; "
                "train again."
            )
        _copy(current, self.tensors())
        # Copies, because the kept ones may be a file's pages, which would keep the file.
        self.best = _copies({k.removeprefix(prefix): tensor for k, tensor in best.items()})
        self.step, self.verdict = kept.step, kept.state["verdict"]
        self.schedule.restore(kept.state["schedule"])
        self.optimiser.restore(kept.state["optimiser"])
        self.in_steps.seconds = kept.state["seconds_in_steps"]


def _train_member(
    member: _Member,
    matrix: BehaviourMatrix,
    validate: Validator | None,
    listener: Listener,
    keeper: Keeper,
    finished: list[Tensors],
    history: list[Progress],
    start: float,
) -> None:
    """Train to the end of its schedule; appends to the history."""
    settings, model, optimiser = member.settings, member.model, member.optimiser
    schedule, buffers = member.schedule, GradientBuffers()
    blocks = Prefetcher(_drawing(matrix, settings, for_strangers=member.answers_for_strangers))
    try:
        while not member.is_done:
            rate = schedule.rate(member.step)
            with member.in_steps.running():
                block = blocks.take(member.step)
                cost, gradients = block_cost_and_gradients(
                    model,
                    block,
                    factor=cost_factor(block, matrix, settings),
                    ordinal_weight=settings.ordinal_weight,
                    share=settings.share_labels,
                    buffers=buffers,
                )
                norm = optimiser.step(gradients, rate)
            member.step += 1
            _refuse_divergence(member, rate, {"cost": cost, "gradient's norm": norm})
            listener.stepped(member.number, member.step, cost)
            if member.step % settings.validate_every == 0 or schedule.finished(member.step):
                scores = validate(model) if validate else None
                if scores is not None:
                    _refuse_divergence(member, rate, {"validation RMSE": scores.rmse})
                    member.verdict = schedule.judge(scores.rmse)
                if schedule.keeps_best:
                    if member.verdict == "improved":
                        _copy(model.tensors(), member.best)
                    elif member.verdict in ("cut", "stop") or schedule.finished(member.step):
                        _copy(member.best, model.tensors())
                        optimiser.measure()
                history.append(
                    Progress(
                        member=member.number,
                        members=settings.networks,
                        step=member.step,
                        steps_planned=None if schedule.keeps_best else settings.max_steps,
                        cost=cost,
                        rate=rate,
                        gradient_norm=norm,
                        valid=scores,
                        best_rmse=schedule.best if validate else None,
                        verdict=member.verdict,
                        seconds=time.perf_counter() - start,
                        seconds_in_steps=member.in_steps.seconds,
                        strangers=member.answers_for_strangers,
                    )
                )
                listener.validated(history[-1])
            stopping = keeper.is_stopping()
            if stopping or keeper.is_due():
                keeper.keep(member.snapshot(finished, history, start))
            if stopping:
                raise TrainingInterrupted(f"Training was stopped after step {member.step}")
    finally:
        blocks.close()


def _rows(members: int, known: np.ndarray) -> np.ndarray:
    """(n,) the table row of each member: its own, or the shared one after all of them."""
    rows = np.full(members, members, np.int32)
    rows[known] = known
    return rows


def _share_the_mean(
    model: CoAutoregressive, known: dict[SideName, np.ndarray], tables: tuple[str, ...]
) -> None:
    """Where training does not teach the shared row, it is the mean of those who are known."""
    for name, side in model.sides.items():
        side.share_the_mean(torch.from_numpy(known[name]), tables)


def _drawing(matrix: BehaviourMatrix, settings: Settings, *, for_strangers: bool) -> Estimator:
    short_contexts = SHORT_CONTEXTS if for_strangers else 0.0
    estimator = make_estimator(matrix, settings, short_contexts=short_contexts)
    if for_strangers:
        estimator = Strangers(estimator, matrix.n_users, matrix.n_items, settings.seed)
    if settings.dropout == 0:
        return estimator
    return Dropout(estimator, settings.dropout, hidden_units(settings), settings.seed)


def _refuse_divergence(member: _Member, rate: float, found: dict[str, float]) -> None:
    """Raise where something that was found, or the parameters, are no longer numbers."""
    broken = [f"the {name} is {value}" for name, value in found.items() if not math.isfinite(value)]
    if not member.optimiser.is_finite:
        broken.append("the parameters overflowed")
    if broken:
        networks, strangers = member.settings.networks, member.answers_for_strangers
        name = network_name(member.number, networks, strangers=strangers)
        which = f" of {name}" if networks > 1 else ""
        raise TrainingDiverged(
            f"Training diverged at step {member.step}{which}: {' and '.join(broken)} at a rate of "
            f"{rate:.2g}; try a lower learning_rate than {member.settings.learning_rate:g}."
        )


def cost_factor(block: Block, matrix: BehaviourMatrix, settings: Settings) -> float:
    """What the sum of the block's costs is multiplied by.

    Strict: the estimate of the whole objective, divided by the number of behaviours, so that
    rates and penalties mean the same for every size of data. Published: the block's mean.
    """
    if settings.estimator == "strict":
        return block.scale / matrix.n_behaviours
    return 1.0 / max(block.pairs.size, 1)


def make_validator(
    matrix: BehaviourMatrix,
    valid: RatedPairs,
    values_k: np.ndarray,
    *,
    as_strangers: bool = False,
) -> Validator:
    """Scores of a model on rated pairs, predicted from the behaviours of `matrix`.

    With `as_strangers` all users have the shared row, and their histories.
    """
    question = Question.about(matrix, valid.users_p, valid.items_p, strange_users=as_strangers)
    return lambda model: rating_scores(
        answer(model, question), valid.labels_p, values_k, valid.ratings_p
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
