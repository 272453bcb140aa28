"""What the rest of a training depends on, between two minibatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cfuica.errors import CfuicaError

Tensors = dict[str, Tensor]


class TrainingInterrupted(CfuicaError):
    """Training was asked to stop and has been kept for later."""


class TrainingDiverged(CfuicaError):
    """The numbers of a training are no longer numbers."""


@dataclass(frozen=True)
class Snapshot:
    """A training between two minibatches. Continued from here, it ends in the same bits.

    The tensors are those of the training itself, not copies: whoever keeps them writes them down
    before the next step.
    """

    tensors: Tensors
    """The member in training: parameters, moments, and their average and the best where kept."""
    finished: list[Tensors]
    """Parameters of the members before it."""
    state: dict[str, Any]
    """Everything else, in the types of JSON."""

    @property
    def member(self) -> int:
        """The member in training, from 0."""
        return len(self.finished)

    @property
    def step(self) -> int:
        """The minibatches it has seen."""
        return int(self.state["step"])


class Keeper:
    """Decides when a training is written down and when it stops; keeps nothing by itself."""

    def kept(self) -> Snapshot | None:
        """Where to continue from."""
        return None

    def is_due(self) -> bool:
        """Whether it is time to keep a snapshot."""
        return False

    def is_stopping(self) -> bool:
        """Whether training is to be kept and left."""
        return False

    def keep(self, snapshot: Snapshot) -> None:
        """Write it down."""
