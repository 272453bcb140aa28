"""Training, from top to bottom: draw, compute, update; now and then validate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.rated import RatedPairs
from cfuica.errors import CfuicaError, SettingsError
from cfuica.evaluation.metrics import RatingScores, rating_scores
from cfuica.learning.block import Block
from cfuica.learning.estimator import make_estimator, side_names
from cfuica.learning.gradients import GradientBuffers, block_cost_and_gradients
from cfuica.learning.merge import merge
from cfuica.learning.optimiser import Adam
from cfuica.learning.prefetch import Prefetcher
from cfuica.learning.schedule import make_schedule
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.prediction import Question, answer
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
    """A trained model and how it came about."""

    model: CoAutoregressive
    history: list[Progress]
    steps: int
    seconds: float
    seconds_in_steps: float


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


def new_model(matrix: BehaviourMatrix, settings: Settings) -> CoAutoregressive:
    """Untrained parameters of the settings' shape for this matrix's users and items."""
    device = _device(settings.device)
    units = {"users": settings.hidden_users, "items": settings.hidden_items}
    return CoAutoregressive.initial(
        n_users=matrix.n_users,
        n_items=matrix.n_items,
        n_labels=matrix.n_labels,
        hidden={side: units[side] for side in side_names(settings)},
        activation=settings.activation,
        share=settings.share_labels,
        seed=settings.seed,
    ).to(device)


def _device(name: str) -> torch.device:
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
) -> Fitted:
    """Fit a model to `matrix`; validate on `valid`, conditioned on `matrix` only.

    `values_k` (K) are the ratings that the labels stand for.
    """
    if matrix.n_behaviours == 0:
        raise SettingsError("There is no behaviour to train on; give more data or fewer folds.")
    listener = listener or Listener()
    listener.started(settings)
    start = time.perf_counter()
    validate = _validator(matrix, valid, values_k) if valid and valid.n else None
    parts = [
        _train_member(matrix, settings, member, validate, listener, start)
        for member in range(settings.members)
    ]
    return Fitted(
        model=merge([part.model for part in parts]).to("cpu"),
        history=[progress for part in parts for progress in part.history],
        steps=sum(part.steps for part in parts),
        seconds=time.perf_counter() - start,
        seconds_in_steps=sum(part.seconds_in_steps for part in parts),
    )


def _train_member(
    matrix: BehaviourMatrix,
    settings: Settings,
    member: int,
    validate: Validator | None,
    listener: Listener,
    start: float,
) -> Fitted:
    # Members differ in their seed only: initial values and blocks.
    settings = settings.replaced(seed=settings.seed + SEEDS_APART * member)
    model = new_model(matrix, settings)
    optimiser, buffers = Adam(model, settings), GradientBuffers()
    schedule = make_schedule(settings, has_validation=validate is not None)
    blocks = Prefetcher(make_estimator(matrix, settings))
    best: dict[str, Tensor] = {}
    history: list[Progress] = []
    in_steps = Stopwatch()
    step, verdict = 0, "continue"
    try:
        while verdict != "stop" and not schedule.finished(step):
            rate = schedule.rate(step)
            with in_steps.running():
                block = blocks.take(step)
                cost, gradients = block_cost_and_gradients(
                    model,
                    block,
                    factor=cost_factor(block, matrix, settings),
                    ordinal_weight=settings.ordinal_weight,
                    share=settings.share_labels,
                    buffers=buffers,
                )
                norm = optimiser.step(gradients, rate)
            step += 1
            if not (np.isfinite(cost) and np.isfinite(norm) and optimiser.is_finite):
                raise CfuicaError(
                    f"Training diverged at step {step}: the cost is {cost} and the gradient's "
                    f"norm {norm}; try a lower learning_rate than {settings.learning_rate}."
                )
            listener.stepped(member, step, cost)
            if step % settings.validate_every and not schedule.finished(step):
                continue
            scores = validate(model) if validate else None
            if scores is not None:
                verdict = schedule.judge(scores.rmse)
            if schedule.keeps_best:
                if verdict == "improved":
                    _copy(model.tensors(), best)
                elif verdict in ("cut", "stop") or schedule.finished(step):
                    _copy(best, model.tensors())
                    optimiser.measure()
            history.append(
                Progress(
                    member=member,
                    members=settings.members,
                    step=step,
                    steps_planned=None if schedule.keeps_best else settings.max_steps,
                    cost=cost,
                    rate=rate,
                    gradient_norm=norm,
                    valid=scores,
                    best_rmse=schedule.best if validate else None,
                    verdict=verdict,
                    seconds=time.perf_counter() - start,
                    seconds_in_steps=in_steps.seconds,
                )
            )
            listener.validated(history[-1])
    finally:
        blocks.close()
    return Fitted(model, history, step, time.perf_counter() - start, in_steps.seconds)


def cost_factor(block: Block, matrix: BehaviourMatrix, settings: Settings) -> float:
    """What the sum of the block's costs is multiplied by.

    Strict: the estimate of the whole objective, divided by the number of behaviours, so that
    rates and penalties mean the same for every size of data. Published: the block's mean.
    """
    if settings.estimator == "strict":
        return block.scale / matrix.n_behaviours
    return 1.0 / max(block.pairs.size, 1)


def _validator(matrix: BehaviourMatrix, valid: RatedPairs, values_k: np.ndarray) -> Validator:
    question = Question.about(matrix, valid.users_p, valid.items_p)
    return lambda model: rating_scores(
        answer(model, question), valid.labels_p, values_k, valid.ratings_p
    )


def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Copy tensors by name, making room in an empty target."""
    for name, tensor in source.items():
        if name in target:
            target[name].copy_(tensor)
        else:
            target[name] = tensor.clone()
