"""Learning rate schedules: the rate of each step, early stopping, and which weights to keep.

`Patience` divides the rate when validation stops improving. `Planned` warms up, holds and decays
over a number of steps that is known before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from cfuica.settings import CommonSettings

Verdict = Literal["improved", "continue", "cut", "stop"]


@dataclass
class Schedule(ABC):
    """The rate of each step, and the verdict on each validation."""

    settings: CommonSettings
    best: float = float("inf")  # The lowest validation loss so far.

    @property
    @abstractmethod
    def keeps_best(self) -> bool:
        """Whether training ends with the parameters that validated best."""

    @property
    @abstractmethod
    def steps_planned(self) -> int | None:
        """The number of steps, where it is known before."""

    @abstractmethod
    def rate(self, step: int) -> float:
        """The learning rate of a step."""

    def judge(self, loss: float) -> Verdict:
        """The verdict on a validation loss, which becomes the best if it is lower."""
        if loss < self.best:
            self.best = loss
            return "improved"
        return "continue"

    def finished(self, step: int) -> bool:
        """Whether training ends after so many steps."""
        return step >= self.settings.max_steps

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs. JSON has no infinity; float() reads the text back."""
        return {"best": self.best if self.best < float("inf") else "inf"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`."""
        self.best = float(state["best"])


def make_schedule(settings: CommonSettings, *, has_validation: bool) -> Schedule:
    """The schedule that the settings name; without validation data always `Planned`."""
    if settings.schedule == "patience" and has_validation:
        return Patience(settings)
    return Planned(settings)


@dataclass
class Patience(Schedule):
    """Divide the rate after `patience` validations without a new best, each time restoring the
    best parameters; stop where the rate would fall to `stop_rate` or below."""

    waited: int = 0
    cuts: int = 0
    keeps_best = True
    steps_planned = None

    def rate(self, step: int) -> float:
        return self.settings.learning_rate / self.settings.rate_divisor**self.cuts

    def judge(self, loss: float) -> Verdict:
        if super().judge(loss) == "improved":
            self.waited = 0
            return "improved"
        self.waited += 1
        if self.waited < self.settings.patience:
            return "continue"
        self.waited = 0
        self.cuts += 1
        return "stop" if self.rate(0) <= self.settings.stop_rate else "cut"

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "waited": self.waited, "cuts": self.cuts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.waited, self.cuts = state["waited"], state["cuts"]


class Planned(Schedule):
    """Hold the rate over the share `hold` of the steps, then fall linearly to zero."""

    @property
    def keeps_best(self) -> bool:
        return self.settings.keep_best

    @property
    def steps_planned(self) -> int:
        return self.settings.max_steps

    def rate(self, step: int) -> float:
        share, hold = step / self.settings.max_steps, self.settings.hold
        full = self.settings.learning_rate
        return full if share < hold else full * (1 - share) / (1 - hold)
