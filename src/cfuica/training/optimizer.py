"""Adam as the published experiments used it, exact on every parameter at every step.

A moving average of the parameters, which is calmer than they are themselves.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass

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
    """One parameter tensor as a table (n, K, H) with its moments, and how it is treated."""

    table_nkh: Tensor
    mean_nkh: Tensor
    square_nkh: Tensor
    share: bool
    penalty: float


class Adam:
    """State: moments of every stored parameter and the number of steps taken."""

    def __init__(self, model: Network, settings: CommonSettings) -> None:
        self.settings = settings
        self.steps = 0
        self._bilinear_rate = (
            settings.bilinear_rate if isinstance(settings, RatingSettings) else 0.0
        )
        self._slots: dict[str, _Slot] = {}
        share = isinstance(settings, RatingSettings) and settings.share_labels
        for name, side in model.sides.items():
            for key, table_nkh, shared, penalty in (
                ("encoder_nkh", side.encoder_nkh, share, settings.l2),
                ("encoder_bias_h", side.encoder_bias_h[None, None, :], False, 0.0),
                ("decoder_nkh", side.decoder_nkh, share, settings.l2),
                ("decoder_bias_nk", side.decoder_bias_nk[:, :, None], share, 0.0),
            ):
                self._slots[f"{name}.{key}"] = _Slot(
                    table_nkh,
                    runtime.zeros_like(table_nkh),
                    runtime.zeros_like(table_nkh),
                    shared,
                    penalty,
                )
            for key, tensor in side.tensors().items():
                if key not in PAPERS:
                    self._slots[f"{name}.{key}"] = _unpenalised(_as_table(tensor))
        if model.bilinear is not None:
            table_nkh = model.bilinear.table_hku
            self._slots[BILINEAR] = _unpenalised(table_nkh)
        self._penalised_squares = 0.0
        self.measure()

    def measure(self) -> None:
        """Take the norm of the parameters anew, after they were set from outside."""
        self._penalised_squares = sum(
            # numpy adds in one order whatever the number of threads; torch does not.
            slot.penalty**2 * float(np.square(_stored(slot).cpu().numpy()).sum(dtype=np.float64))
            for slot in self._slots.values()
            if slot.penalty > 0
        )

    @property
    def is_finite(self) -> bool:
        """Whether the parameters are still numbers after the last step."""
        return math.isfinite(self._penalised_squares)

    def tensors(self) -> dict[str, Tensor]:
        """The moments by name, as a checkpoint lists them."""
        return {
            f"{name}.{kind}": tensor
            for name, slot in self._slots.items()
            for kind, tensor in (("mean", slot.mean_nkh), ("square", slot.square_nkh))
        }

    def state(self) -> dict[str, float]:
        """What a checkpoint needs beside the moments. The norm is kept rather than taken anew,
        because a sum in another order differs in its last bits."""
        return {"steps": self.steps, "penalised_squares": self._penalised_squares}

    def restore(self, state: dict[str, float]) -> None:
        """Go on from a checkpoint whose tensors are already in place."""
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
            indices = side.group_of_row
            all_rows = np.zeros(1, np.int32)
            for key, grad_gkh, group_of_row in (
                ("encoder_nkh", side.encoder_nkh, _identity(len(indices))),
                ("encoder_bias_h", side.encoder_bias_h[None, None, :], all_rows),
                ("decoder_nkh", side.decoder_gkh, indices),
                ("decoder_bias_nk", side.decoder_bias_gk[:, :, None], indices),
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


def _unpenalised(table_nkh: Tensor) -> _Slot:
    mean_nkh, square_nkh = runtime.zeros_like(table_nkh), runtime.zeros_like(table_nkh)
    return _Slot(table_nkh, mean_nkh, square_nkh, share=False, penalty=0.0)


def _stored(slot: _Slot) -> Tensor:
    return reference.differences(slot.table_nkh) if slot.share else slot.table_nkh


def _identity(indices: int) -> np.ndarray:
    return np.arange(indices, dtype=np.int32)


STRIDE = 10  # minibatches between two updates, which then cost a few per cent of the time


class MovingAverage:
    """average = (1 - a) average + a parameters after minibatch t, where a = 1 / (span t) up to 1.

    So it spans about the newest `span` of all minibatches, however many there will be, and nothing
    of the initial values remains. Minibatches between two updates count as if they had ended like
    the second.
    """

    def __init__(self, model: Network, span: float) -> None:
        self.model = deepcopy(model)
        """The average; it may be set from outside."""
        self.seen = 0
        self._span = span

    def update(self, model: Network, step: int) -> None:
        """Let the parameters after `step` minibatches in."""
        steps = range(self.seen + 1, step + 1)
        kept_units = math.prod(1 - min(1.0, 1 / (self._span * each)) for each in steps)
        newest = model.tensors()
        for name, tensor in self.model.tensors().items():
            tensor.lerp_(newest[name], 1 - kept_units)
        self.seen = step
