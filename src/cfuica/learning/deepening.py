"""The extra layer in training: forwards and backwards over some moments at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfuica.model.side import LAYER, Side


@dataclass(frozen=True)
class Deepening:
    """A side's layer (see `Side.deepened`) and which of its units (Q, U) dropout keeps."""

    into_hu: np.ndarray
    bias_u: np.ndarray
    back_uh: np.ndarray
    keep_qu: np.ndarray | None

    @classmethod
    def of(cls, side: Side | None, keep_qu: np.ndarray | None) -> Deepening | None:
        """None where there is no such layer."""
        if side is None or side.extra_layer is None:
            return None
        into_hu, bias_u, back_uh = (tensor.numpy() for tensor in side.extra_layer)
        return cls(into_hu, bias_u, back_uh, keep_qu)

    def zeros(self) -> dict[str, np.ndarray]:
        """Gradients to add to, by the names of the tensors."""
        return {name: np.zeros_like(getattr(self, name)) for name in LAYER}

    def forwards(self, hidden_qh: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        """What is decoded of hidden vectors, the first of which is that of moment `start`, and the
        units of the layer, which the way back needs."""
        inner_qu = hidden_qh @ self.into_hu
        inner_qu += self.bias_u
        np.maximum(inner_qu, 0, out=inner_qu)
        if self.keep_qu is not None:
            inner_qu *= self.keep_qu[start : start + len(inner_qu)]
        return hidden_qh + inner_qu @ self.back_uh, inner_qu

    def backwards(
        self,
        hidden_qh: np.ndarray,
        inner_qu: np.ndarray,
        slope_qh: np.ndarray,
        start: int,
        gradients: dict[str, np.ndarray],
    ) -> None:
        """Turn slopes by what is decoded into those by the hidden vectors, in place; adds to the
        gradients."""
        slope_qu = slope_qh @ self.back_uh.T
        slope_qu *= inner_qu > 0
        if self.keep_qu is not None:
            slope_qu *= self.keep_qu[start : start + len(slope_qu)]
        gradients["back_uh"] += inner_qu.T @ slope_qh
        gradients["into_hu"] += hidden_qh.T @ slope_qu
        gradients["bias_u"] += slope_qu.sum(0)
        slope_qh += slope_qu @ self.into_hu.T
