"""The optimiser: Adam as in the published experiments, and an average of the weights over steps.

`Adam` updates every parameter at every step, also the table rows without a gradient, with an L2
penalty on the tables and limits of the gradient. `MovingAverage` is an exponential moving average
of the weights, which validates better than the weights of the last step.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from cfuica.model.network import BILINEAR, Network
from cfuica.model.side import PAPERS
from cfuica.ops import adam, reference, runtime
from cfuica.ops.runtime import run_rows
from cfuica.settings import CommonSettings, RatingSettings
from cfuica.training.gradients import Gradients


@dataclass
class _Slot:
    """One parameter tensor as a table (n, K, H), its moments, and its label sharing and penalty."""

    table_nkh: Tensor
    share: bool = False
    penalty: float = 0.0
    mean_nkh: Tensor = field(init=False)
    square_nkh: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mean_nkh = runtime.zeros_like(self.table_nkh)
        self.square_nkh = runtime.zeros_like(self.table_nkh)


class Adam:
    """Its state is the moments of every stored parameter and the number of steps."""

    def __init__(self, model: Network, settings: CommonSettings) -> None:
        self.settings = settings
        self.steps = 0
        self._bilinear_rate = (
            settings.bilinear_rate if isinstance(settings, RatingSettings) else 0.0
        )
        self._slots: dict[str, _Slot] = {}
        share = isinstance(settings, RatingSettings) and settings.share_labels
        for name, side in model.sides.items():
            slots = {
                "encoder_nkh": _Slot(side.encoder_nkh, share, settings.l2),
                "encoder_bias_h": _Slot(side.encoder_bias_h[None, None, :]),
                "decoder_nkh": _Slot(side.decoder_nkh, share, settings.l2),
                "decoder_bias_nk": _Slot(side.decoder_bias_nk[:, :, None], share),
            }
            for key, tensor in side.tensors().items():
                if key not in PAPERS:
                    slots[key] = _Slot(_as_table(tensor))
            self._slots |= {f"{name}.{key}": slot for key, slot in slots.items()}
        if model.bilinear is not None:
            self._slots[BILINEAR] = _Slot(model.bilinear.table_hku)
        self._penalised_squares = 0.0
        self.measure()

    def measure(self) -> None:
        """Compute the norm of the parameters, after they were set from outside."""
        self._penalised_squares = sum(
            # numpy adds in one order whatever the number of threads; torch does not.
            slot.penalty**2 * float(np.square(_stored(slot).cpu().numpy()).sum(dtype=np.float64))
            for slot in self._slots.values()
            if slot.penalty > 0
        )

    @property
    def is_finite(self) -> bool:
        """Whether the parameters are finite after the last step."""
        return math.isfinite(self._penalised_squares)

    def tensors(self) -> dict[str, Tensor]:
        """The moments by name, as a checkpoint lists them."""
        return {
            f"{name}.{kind}": tensor
            for name, slot in self._slots.items()
            for kind, tensor in (("mean", slot.mean_nkh), ("square", slot.square_nkh))
        }

    def state(self) -> dict[str, float]:
        """What a checkpoint needs beside the moments. The norm is stored rather than computed
        again, because a sum in another order differs in its last bits."""
        return {"steps": self.steps, "penalised_squares": self._penalised_squares}

    def restore(self, state: dict[str, float]) -> None:
        """Continue from a checkpoint whose tensors are already in place."""
        self.steps = int(state["steps"])
        self._penalised_squares = float(state["penalised_squares"])

    def gradient_norm(self, gradients: Gradients) -> float:
        """Norm of the whole gradient including the penalty's, |g + 2 l2 w|."""
        l2 = self.settings.l2
        squares = 4 * self._penalised_squares
        for side in gradients.values():
            squares += side.squares + 4 * l2 * side.inner
        # Rounding may leave a tiny negative number where everything vanishes.
        return math.sqrt(max(squares, 0.0))

    def step(self, gradients: Gradients, learning_rate: float) -> float:
        """Update every parameter in place. Returns the gradient's norm before the limits."""
        settings = self.settings
        norm = self.gradient_norm(gradients)
        scale = 1.0
        if settings.max_norm is not None and norm > settings.max_norm:
            scale = settings.max_norm / norm
        self.steps += 1
        rate = learning_rate * (
            (1 - settings.beta2**self.steps) ** 0.5 / (1 - settings.beta1**self.steps)
        )
        penalised = 0.0
        for name, side in gradients.items():
            groups = side.group_of_row
            for key, grad_gkh, group_of_row in (
                ("encoder_nkh", side.encoder_nkh, _identity(len(groups))),
                ("encoder_bias_h", side.encoder_bias_h[None, None, :], _identity(1)),
                ("decoder_nkh", side.decoder_gkh, groups),
                ("decoder_bias_nk", side.decoder_bias_gk[:, :, None], groups),
            ):
                slot = self._slots[f"{name}.{key}"]
                squares = self._update(slot, grad_gkh, group_of_row, scale, rate)
                penalised += slot.penalty**2 * squares
            for key, gradient in side.more.items():
                grad_gkh = _as_table(gradient)
                slot = self._slots[f"{name}.{key}"]
                self._update(slot, grad_gkh, _identity(len(grad_gkh)), scale, rate)
            if side.bilinear_hku is not None:
                grad_nkh = side.bilinear_hku
                bilinear_rate = rate * self._bilinear_rate
                self._update(
                    self._slots[BILINEAR], grad_nkh, _identity(len(grad_nkh)), scale, bilinear_rate
                )
        self._penalised_squares = penalised
        return norm

    def _update(
        self,
        slot: _Slot,
        grad_gkh: Tensor,
        group_of_row: np.ndarray,
        scale: float,
        rate: float,
    ) -> float:
        """Returns the squared norm of the stored parameters after the step."""
        settings = self.settings
        limit = float("inf") if settings.max_entry is None else settings.max_entry
        if slot.table_nkh.device.type != "cpu":
            stored = _stored(slot)
            grad = scale * (grad_gkh + 2 * slot.penalty * stored)
            stored = reference.adam(
                stored,
                slot.mean_nkh,
                slot.square_nkh,
                grad.clamp_(-limit, limit),
                rate=rate,
                beta1=settings.beta1,
                beta2=settings.beta2,
                epsilon=settings.epsilon,
            )
            slot.table_nkh.copy_(reference.accumulate(stored) if slot.share else stored)
            return float(stored.double().square().sum())
        rows = len(slot.table_nkh)
        squares_n = np.empty(rows)
        run_rows(
            adam.adam,
            rows,
            slot.table_nkh.numpy(),
            slot.mean_nkh.numpy(),
            slot.square_nkh.numpy(),
            grad_gkh.numpy(),
            group_of_row,
            slot.share,
            np.float32(slot.penalty),
            np.float32(scale),
            np.float32(limit),
            np.float32(rate),
            np.float32(settings.beta1),
            np.float32(settings.beta2),
            np.float32(settings.epsilon),
            squares_n,
        )
        return float(squares_n.sum())


def _as_table(tensor: Tensor) -> Tensor:
    """A vector (H) or matrix (n, H) as a table (n, 1, H)."""
    return tensor[None, None, :] if tensor.ndim == 1 else tensor[:, None, :]


def _stored(slot: _Slot) -> Tensor:
    return reference.differences(slot.table_nkh) if slot.share else slot.table_nkh


def _identity(rows: int) -> np.ndarray:
    return np.arange(rows, dtype=np.int32)


STRIDE = 10  # steps between two updates of the average, which then take a few per cent of the time


class MovingAverage:
    """average = (1 - a) average + a weights after step t, where a = min(1, 1 / (span t)).

    The average covers about the newest share `span` of all steps, however many there will be, and
    nothing of the initial values remains. Steps between two updates count with the weights of the
    second.
    """

    def __init__(self, model: Network, span: float) -> None:
        self.model = deepcopy(model)
        """The network of averaged weights; it may be set from outside."""
        self.seen = 0
        self._span = span

    def update(self, model: Network, step: int) -> None:
        """Update the average with the weights after `step` steps."""
        steps = range(self.seen + 1, step + 1)
        remaining = math.prod(1 - min(1.0, 1 / (self._span * each)) for each in steps)
        newest = model.tensors()
        for name, tensor in self.model.tensors().items():
            tensor.lerp_(newest[name], 1 - remaining)
        self.seen = step
