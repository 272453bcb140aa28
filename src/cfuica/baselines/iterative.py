"""Baselines that learn in epochs: the loop, early stopping, learning again from train + validation
set, checkpoints and negative sampling.

A subclass implements `_begin`, the initial tensors, and `_epoch`, which changes them in place. All
that is random in them is a function of the seed and the epoch, so a resumed training ends in the
same bits.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from cfuica.baselines.contract import (
    Baseline,
    BaselineSettings,
    Index,
    Learning,
    Singles,
    TrainingData,
)
from cfuica.errors import ModelFileError
from cfuica.settings import ValidatedBy
from cfuica.training.checkpoint import (
    Checkpoint,
    Tensors,
    TrainingDiverged,
    TrainingInterrupted,
)
from cfuica.training.trainer import Progress, Trained

_TRIES = 100  # Draws of a negative item; a user may have all items.


class EpochSettings(BaselineSettings):
    """Settings of a baseline that learns in epochs, by steps that need no learning rate."""

    changeable: ClassVar[tuple[str, ...]] = ("epochs", "patience")

    epochs: int = Field(100, ge=1, description="Passes over the train set at most.")
    patience: int = Field(
        5, ge=1, description="Epochs without a better validation before training ends."
    )

    @property
    def most_steps(self) -> int:
        """Epochs at most."""
        return self.epochs

    @property
    def keeps_best(self) -> bool:
        """The epoch that validated best counts: its parameters, or its number (`learns_again`)."""
        return True

    @property
    def least_epochs(self) -> int:
        """Patience counts the epochs after so many."""
        return 0

    @property
    def learns_again(self) -> bool:
        """Whether it learns again, from train + validation set, when the validation has chosen the
        number of epochs."""
        return False

    def rate_after(self, cuts: int, epochs: int = 0) -> float | None:
        """The learning rate after so many cuts and epochs, where there is one."""
        return None

    def ends_at(self, cut: int) -> bool:
        """Whether training ends in place of this cut, counted from 1; cut 0 is the beginning."""
        return cut > 0


class RefitSettings(EpochSettings):
    """Settings of a ranking baseline that learns in epochs. Its validation set has the latest
    interaction of each user, which tells most about the next one."""

    refit: bool = Field(
        True,
        description="Learn again from train + validation set, for as many epochs as validated "
        "best.",
    )
    validated_by: ValidatedBy = "ndcg"

    @property
    def learns_again(self) -> bool:
        """As `refit` says."""
        return self.refit


class IterativeSettings(EpochSettings):
    """Settings of a baseline that descends along a gradient."""

    changeable: ClassVar[tuple[str, ...]] = ("learning_rate", *EpochSettings.changeable)

    learning_rate: float = Field(0.01, gt=0, description="Learning rate.")

    def rate_after(self, cuts: int, epochs: int = 0) -> float | None:
        """The learning rate."""
        return self.learning_rate


class FallingRateSettings(IterativeSettings):
    """Settings of a baseline whose learning rate is cut, several times, before training ends."""

    changeable: ClassVar[tuple[str, ...]] = (
        *IterativeSettings.changeable, "rate_divisor", "stop_rate",
    )  # fmt: skip

    patience: int = Field(
        5, ge=1, description="Epochs without a better validation before the rate is cut."
    )
    rate_divisor: float = Field(4.0, gt=1, description="A cut divides the learning rate by this.")
    stop_rate: float = Field(
        1e-5, gt=0, description="Training ends where a cut would lead to this rate or below."
    )

    @model_validator(mode="after")
    def _begins_above_the_end(self) -> Self:
        if self.ends_at(0):
            raise ValueError(
                f"stop_rate={self.stop_rate} is not below learning_rate={self.learning_rate}, "
                f"where the rate begins; add a lower stop_rate or a higher learning_rate"
            )
        return self

    def rate_after(self, cuts: int, epochs: int = 0) -> float:
        """The learning rate after so many cuts."""
        return self.learning_rate / self.rate_divisor**cuts

    def ends_at(self, cut: int) -> bool:
        """Where it would lead to `stop_rate` or below."""
        return self.rate_after(cut) <= self.stop_rate


class Iterative(Baseline):
    """A baseline that learns in epochs, each followed by a validation.

    It ends with the epoch that validated best, or, where `learns_again`, with that many epochs of
    train + validation set, at the learning rates of the first time."""

    # Attributes that only training needs, beyond what a model has learned.
    training_state: ClassVar[tuple[str, ...]] = ()

    settings: EpochSettings
    rate: float | None  # The learning rate of this epoch.

    @abstractmethod
    def _begin(self, data: TrainingData) -> Tensors:
        """All that an epoch changes, on the CPU: the initial parameters, by the names of `_shapes`,
        and perhaps the state of an optimiser. While training goes on, an attribute with an
        underscore at the end is a view of each parameter."""

    @abstractmethod
    def _epoch(self, data: TrainingData, epoch: int) -> float:
        """Change the tensors of `_begin` in place; returns the mean loss. Epochs count from 0."""

    def _parameters(self, data: TrainingData) -> Tensors:
        """What is learned, as tensors of the same memory."""
        return {name: torch.from_numpy(getattr(self, f"{name}_")) for name in self._shapes(data)}

    def _rng(self, epoch: int | None = None) -> np.random.Generator:
        """The random numbers of an epoch, or of the initial parameters."""
        number = 0 if epoch is None else epoch + 1
        return np.random.Generator(np.random.PCG64([self.settings.seed, number]))

    def _learn(self, learning: Learning) -> Trained:
        settings, callback = self.settings, learning.callback
        restored = learning.checkpointer.restored()
        loop: dict[str, Any] = {"step": 0, "best": None, "waited": 0, "cuts": 0, "again": None}
        loop["seconds_in_steps"] = 0.0
        history: list[Progress] = []
        start = time.perf_counter()
        is_again = restored is not None and restored.states["loop"].get("again") is not None
        self._catalogue = learning.everything if is_again else learning.train
        tensors, parameters = self._start(self._catalogue.data)
        best: Tensors = {}
        if restored is not None:
            loop, best = _continued(restored, tensors, parameters)
            history = [Progress.of_record(record) for record in loop.pop("history")]
            start -= loop.pop("seconds")
        callback.started(settings)

        def pause() -> None:
            """Save what is due, and stop where that was asked for."""
            stopping = learning.checkpointer.is_stopping()
            if stopping or learning.checkpointer.is_due():
                records = [asdict(one) for one in history]
                own = {**loop, "seconds": time.perf_counter() - start, "history": records}
                network = {name: tensor.detach() for name, tensor in tensors.items()}
                states = {"network": network, "best": best, "loop": own}
                learning.checkpointer.save(Checkpoint(states, []))
            if stopping:
                again = loop["again"]
                raise TrainingInterrupted(
                    f"Training was stopped after epoch {loop['step']}"
                    if again is None
                    else f"Learning again was stopped after epoch {again}"
                )

        def is_learning() -> bool:
            return bool(loop["step"] < settings.epochs and not settings.ends_at(loop["cuts"]))

        while loop["again"] is None and is_learning():
            began = time.perf_counter()
            rate = settings.rate_after(loop["cuts"], loop["step"])
            loss = self._finite_epoch(learning.train.data, loop["step"], rate)
            loop["step"] += 1
            loop["seconds_in_steps"] += time.perf_counter() - began
            callback.stepped(0, loop["step"], loss)
            scores, verdict = None, "continue"
            if learning.validate is not None:
                scores = learning.validate()
                value = scores.sign * scores.value
                loop["waited"] += loop["step"] > settings.least_epochs
                if loop["best"] is None or value < loop["best"]:
                    loop["best"], loop["waited"], verdict = value, 0, "improved"
                    best = _copies(parameters)
                elif loop["waited"] >= settings.patience:
                    loop["cuts"], loop["waited"] = loop["cuts"] + 1, 0
                    verdict = "stop" if settings.ends_at(loop["cuts"]) else "cut"
            history.append(
                Progress(
                    member=0,
                    networks=1,
                    step=loop["step"],
                    steps_planned=settings.epochs,
                    loss=loss,
                    rate=rate,
                    gradient_norm=None,
                    valid=scores,
                    best=None if scores is None else scores.sign * loop["best"],
                    verdict=verdict,
                    seconds=time.perf_counter() - start,
                    seconds_in_steps=loop["seconds_in_steps"],
                )
            )
            callback.validated(history[-1])
            pause()
        _copy_to(parameters, best)
        self._catalogue = learning.everything
        if learning.validate is not None and settings.learns_again:
            epochs = max(each.step for each in history if each.verdict == "improved")
            if loop["again"] is None:
                callback.note(
                    f"Epoch {epochs} validated best; the model learns again, for as many epochs, "
                    f"from the train and the validation set."
                )
                tensors, parameters = self._start(learning.everything.data)
                loop["again"], best = 0, {}
            while loop["again"] < epochs:
                rate = history[loop["again"]].rate
                self._finite_epoch(learning.everything.data, loop["again"], rate)
                loop["again"] += 1
                callback.preparing("learning again", loop["again"] / epochs)
                pause()
        for name in self.training_state:
            delattr(self, name)
        return Trained([], settings, history, time.perf_counter() - start)

    def _start(self, data: TrainingData) -> tuple[Tensors, Tensors]:
        """What an epoch changes, and the parameters among it, as they are at first."""
        tensors = self._begin(data)
        parameters = {name: tensors[name] for name in self._shapes(data)}
        for name, tensor in parameters.items():
            setattr(self, f"{name}_", tensor.detach().numpy())
        return tensors, parameters

    def _finite_epoch(self, data: TrainingData, epoch: int, rate: float | None) -> float:
        """The mean loss of an epoch; an error where it is no number."""
        self.rate = rate
        loss = self._epoch(data, epoch)
        if not math.isfinite(loss):
            remedy = "a larger l2" if rate is None else f"a lower learning rate than {rate:g}"
            raise TrainingDiverged(
                f"Training diverged in epoch {epoch + 1}: the loss is {loss}; try {remedy}."
            )
        return loss


def _continued(
    restored: Checkpoint, tensors: Tensors, parameters: Tensors
) -> tuple[dict[str, Any], Tensors]:
    """The loop's state and the best parameters of a checkpoint, whose tensors are copied."""
    found = restored.states
    expected = ({k: t.shape for k, t in own.items()} for own in (tensors, parameters))
    own, best = ({k: t.shape for k, t in found[name].items()} for name in ("network", "best"))
    of_network, of_best = expected
    if own != of_network or (best and best != of_best):
        raise ModelFileError(
            "The checkpoint is not of these settings, this data and this version of cfuica; train "
            "again."
        )
    _copy_to(tensors, found["network"])
    return dict(found["loop"]), _copies(found["best"])


def _copy_to(tensors: Tensors, values: Tensors) -> None:
    for name, value in values.items():
        tensors[name].detach().copy_(value)


def _copies(tensors: Tensors) -> Tensors:
    # Restored tensors may be mapped from a file, and would keep it open.
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def unseen_items(data: TrainingData, users_p: Index, rng: np.random.Generator) -> Index:
    """(p,) a random item for each of p users, of those without an interaction."""
    n_items = data.n_items - 1  # the last one stands for unknown items
    seen = data.users_p * n_items + data.items_p  # ascending
    items_p = rng.integers(0, n_items, len(users_p))
    again = np.arange(len(users_p))
    for _ in range(_TRIES):
        keys = users_p[again] * n_items + items_p[again]
        place = np.minimum(np.searchsorted(seen, keys), len(seen) - 1)
        again = again[seen[place] == keys]
        if not len(again):
            break
        items_p[again] = rng.integers(0, n_items, len(again))
    return items_p


def give_cold_users_the_mean(user_uf: Singles, data: TrainingData) -> None:
    """Users without interactions have the mean factors of the others."""
    is_cold_u = data.counts("users") == 0
    user_uf[is_cold_u] = user_uf[~is_cold_u].mean(0)


def adam(parameters: Tensors, rate: float) -> tuple[torch.optim.Adam, Tensors]:
    """An Adam of these parameters, which then require a gradient; and all that `_begin` returns of
    both, so that a checkpoint has the moments too."""
    tensors = dict(parameters)
    learned = [each.requires_grad_() for each in parameters.values()]
    optimizer = torch.optim.Adam(learned, rate, fused=True)
    for parameter in learned:
        optimizer.state[parameter] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter.detach()),
            "exp_avg_sq": torch.zeros_like(parameter.detach()),
        }
    return optimizer, tensors | state_of(optimizer, parameters)


def state_of(optimizer: torch.optim.Optimizer, parameters: Tensors) -> Tensors:
    """The optimiser's own tensors of each parameter."""
    return {
        f"state.{name}.{key}": tensor
        for name, parameter in parameters.items()
        for key, tensor in optimizer.state[parameter].items()
    }
