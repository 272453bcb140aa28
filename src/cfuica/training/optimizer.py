"""The optimiser: Adam as in the published experiments, and an average of the weights over steps.

`Adam` updates every parameter at every step, also the table rows without a gradient, with an L2
penalty on W and V and limits of the gradient. `MovingAverage` is an exponential moving average of
the weights, which validates better than the weights of the last step.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cfuica.model.network import Network
from cfuica.ops import reference, runtime
from cfuica.ops.adam import adam_step
from cfuica.ops.tables import RowGradient, RowTable
from cfuica.settings import CommonSettings, RatingSettings

PENALISED = ("W", "V")


@dataclass
class _Slot:
    """One parameter as a table (n, K, H), and its moments."""

    owner: RowTable | nn.Parameter
    penalty: float = 0.0
    rate: float = 1.0  # A factor of the learning rate.
    mean_nkh: Tensor = field(init=False)
    square_nkh: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mean_nkh = runtime.zeros_like(self.table)
        self.square_nkh = runtime.zeros_like(self.table)

    @property
    def table(self) -> Tensor:
        return self.owner.values if isinstance(self.owner, RowTable) else _as_table(self.owner.data)

    @property
    def share(self) -> bool:
        return isinstance(self.owner, RowTable) and self.owner.share

    @property
    def is_frozen(self) -> bool:
        own = self.owner.anchor if isinstance(self.owner, RowTable) else self.owner
        return not own.requires_grad

    @property
    def gradient(self) -> RowGradient | None:
        if isinstance(self.owner, RowTable):
            return self.owner.gradient
        if self.owner.grad is None:
            return None
        grad = _as_table(self.owner.grad.contiguous())
        squares = float(np.square(grad.cpu().numpy(), dtype=np.float64).sum())
        return RowGradient(None, grad, squares, 0.0)

    def clear(self) -> None:
        if isinstance(self.owner, RowTable):
            self.owner.gradient = None
        else:
            self.owner.grad = None

    def squares(self) -> float:
        """The squared norm of the stored parameters."""
        stored = reference.differences(self.table) if self.share else self.table
        # numpy adds in one order whatever the number of threads; torch does not.
        return float(np.square(stored.cpu().numpy()).sum(dtype=np.float64))


class Adam:
    """Its state is the moments of every stored parameter and the number of steps."""

    def __init__(self, network: Network, settings: CommonSettings) -> None:
        self.settings = settings
        self.steps = 0
        rates = {}
        if isinstance(settings, RatingSettings):
            rates["bilinear.A"] = settings.bilinear_rate
        self._slots: dict[str, _Slot] = {
            name: _Slot(table, settings.l2 if name.split(".")[1] in PENALISED else 0.0)
            for name, table in network.tables.items()
        }
        for name, parameter in network.named_parameters():
            self._slots[name] = _Slot(parameter, rate=rates.get(name, 1.0))
        self._penalised_squares = 0.0
        self.measure()

    def measure(self) -> None:
        """Compute the norm of the parameters, after they were set or frozen from outside."""
        self._penalised_squares = sum(
            slot.penalty**2 * slot.squares()
            for slot in self._slots.values()
            if slot.penalty > 0 and not slot.is_frozen
        )

    @property
    def is_finite(self) -> bool:
        """Whether the parameters are finite after the last step."""
        return math.isfinite(self._penalised_squares)

    def state_dict(self) -> dict[str, Any]:
        """The moments, and what else the next step depends on. The norm is stored rather than
        computed again, because a sum in another order differs in its last bits."""
        return {
            "mean": {name: slot.mean_nkh for name, slot in self._slots.items()},
            "square": {name: slot.square_nkh for name, slot in self._slots.items()},
            "steps": self.steps,
            "penalised_squares": self._penalised_squares,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`, which is copied."""
        for name, slot in self._slots.items():
            for own, saved in (
                (slot.mean_nkh, state["mean"][name]),
                (slot.square_nkh, state["square"][name]),
            ):
                own.copy_(saved.view_as(own))  # a shape that only fits by broadcasting is an error
        self.steps = int(state["steps"])
        self._penalised_squares = float(state["penalised_squares"])

    def gradient_norm(self) -> float:
        """Norm of the whole gradient including the penalty's, |g + 2 l2 w|."""
        return self._norm([slot.gradient for slot in self._slots.values()])

    def _norm(self, gradients: list[RowGradient | None]) -> float:
        squares = 4 * self._penalised_squares
        for slot, gradient in zip(self._slots.values(), gradients, strict=True):
            if gradient is not None:
                squares += gradient.squares + 4 * slot.penalty * gradient.inner
        # Rounding may leave a tiny negative number where everything vanishes.
        return math.sqrt(max(squares, 0.0))

    @torch.no_grad()
    def step(self, learning_rate: float) -> float:
        """Update every parameter in place by its gradient, which is then cleared. Returns the
        gradient's norm before the limits."""
        settings = self.settings
        gradients = [slot.gradient for slot in self._slots.values()]
        norm = self._norm(gradients)
        scale = 1.0
        if settings.max_norm is not None and norm > settings.max_norm:
            scale = settings.max_norm / norm
        self.steps += 1
        rate = learning_rate * (
            (1 - settings.beta2**self.steps) ** 0.5 / (1 - settings.beta1**self.steps)
        )
        penalised = 0.0
        for slot, gradient in zip(self._slots.values(), gradients, strict=True):
            if slot.is_frozen:
                continue
            squares = adam_step(
                slot.table,
                slot.mean_nkh,
                slot.square_nkh,
                gradient,
                share=slot.share,
                penalty=slot.penalty,
                scale=scale,
                limit=math.inf if settings.max_entry is None else settings.max_entry,
                rate=rate * slot.rate,
                beta1=settings.beta1,
                beta2=settings.beta2,
                epsilon=settings.epsilon,
            )
            penalised += slot.penalty**2 * squares
            slot.clear()
        self._penalised_squares = penalised
        return norm


def _as_table(tensor: Tensor) -> Tensor:
    """A tensor of any shape as a table (n, 1, H) of the same memory; a vector is one row."""
    return tensor.view(1 if tensor.ndim < 2 else len(tensor), 1, -1)


STRIDE = 10  # steps between two updates of the average, which then take a few per cent of the time


class MovingAverage:
    """average = (1 - a) average + a weights after step t, where a = min(1, 1 / (span t)).

    The average covers about the newest share `span` of all steps, however many there will be, and
    nothing of the initial values remains. Steps between two updates count with the weights of the
    second.
    """

    def __init__(self, network: Network, span: float) -> None:
        self.network = deepcopy(network)
        """The network of averaged weights; it may be set from outside."""
        self.seen = 0
        self._span = span

    def update(self, network: Network, step: int) -> None:
        """Update the average with the weights after `step` steps."""
        steps = range(self.seen + 1, step + 1)
        remaining = math.prod(1 - min(1.0, 1 / (self._span * each)) for each in steps)
        newest = network.state_dict()
        for name, tensor in self.network.state_dict().items():
            tensor.lerp_(newest[name], 1 - remaining)
        self.seen = step

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights and the number of steps that they cover."""
        return {"network": dict(self.network.state_dict()), "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`, which is copied."""
        self.network.load_state_dict(state["network"])
        self.seen = int(state["seen"])
