"""When to change the learning rate and when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from cfuica.settings import CommonSettings

Verdict = Literal["improved", "continue", "cut", "stop"]


class Schedule(Protocol):
    """The rate of each step, and what a validation means."""

    best: float

    @property
    def keeps_best(self) -> bool:
        """Whether training ends with the parameters that validated best."""
        ...

    @property
    def steps_planned(self) -> int | None:
        """How many steps there will be, where that is known."""
        ...

    def rate(self, step: int) -> float: ...

    def judge(self, loss: float) -> Verdict: ...

    def finished(self, step: int) -> bool: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


def make_schedule(settings: CommonSettings, *, has_validation: bool) -> Schedule:
    """The schedule that the settings name. Without validation data only a plan is possible."""
    if settings.schedule == "patience" and has_validation:
        return Patience(settings)
    return Planned(settings)


@dataclass
class Patience:
    """Divide the rate after `patience` validations without a new best, each time going back to
    the best parameters; stop where the rate would fall to `stop_rate` or below."""

    settings: CommonSettings
    best: float = float("inf")
    waited: int = 0
    cuts: int = 0
    keeps_best: ClassVar[bool] = True
    steps_planned: ClassVar[None] = None

    def rate(self, step: int) -> float:
        return self.settings.learning_rate / self.settings.rate_divisor**self.cuts

    def judge(self, loss: float) -> Verdict:
        if loss < self.best:
            self.best, self.waited = loss, 0
            return "improved"
        self.waited += 1
        if self.waited < self.settings.patience:
            return "continue"
        self.waited = 0
        self.cuts += 1
        return "stop" if self.rate(0) <= self.settings.stop_rate else "cut"

    def finished(self, step: int) -> bool:
        return step >= self.settings.max_steps

    def state(self) -> dict[str, Any]:
        return {"best": _number(self.best), "waited": self.waited, "cuts": self.cuts}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.waited, self.cuts = float(state["best"]), state["waited"], state["cuts"]


@dataclass
class Planned:
    """Rise over the first share of the steps, hold, then fall linearly to zero."""

    settings: CommonSettings
    best: float = float("inf")

    @property
    def keeps_best(self) -> bool:
        return self.settings.keep_best

    @property
    def steps_planned(self) -> int:
        return self.settings.max_steps

    def rate(self, step: int) -> float:
        settings = self.settings
        done = step / settings.max_steps
        full = settings.learning_rate
        if done < settings.warmup:
            return full * (step + 1) / (settings.warmup * settings.max_steps + 1)
        if done < settings.hold:
            return full
        return full * (1 - done) / (1 - settings.hold)

    def judge(self, loss: float) -> Verdict:
        if loss < self.best:
            self.best = loss
            return "improved"
        return "continue"

    def finished(self, step: int) -> bool:
        return step >= self.settings.max_steps

    def state(self) -> dict[str, Any]:
        return {"best": _number(self.best)}

    def restore(self, state: dict[str, Any]) -> None:
        self.best = float(state["best"])


def _number(value: float) -> float | str:
    """JSON has no infinity; float() reads the text back."""
    return value if value < float("inf") else "inf"
