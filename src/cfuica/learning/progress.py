"""How a training goes, and who is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfuica.evaluation.validation import Scores, scores_of_record
from cfuica.settings import CommonSettings


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
    valid: Scores | None
    best: float | None
    """The best of what validation is judged by."""
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
        return cls(**{**record, "valid": scores_of_record(record["valid"])})


def network_name(number: int, networks: int, *, strangers: bool) -> str:
    """What network `number`, counted from 0, is called: "model 2/4", "model 4/4 (strangers)"."""
    return f"model {number + 1}/{networks}{' (strangers)' if strangers else ''}"


class Listener:
    """Told how training goes; does nothing by itself."""

    def started(self, settings: CommonSettings) -> None:
        """Training begins."""

    def stepped(self, member: int, step: int, cost: float) -> None:
        """A minibatch is done."""

    def validated(self, progress: Progress) -> None:
        """A validation (or a member's last step) is done."""
