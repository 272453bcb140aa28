"""Backwards through the encoders: from slopes by the sums to the gradient of W."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cfuica.kernels import encode, scan
from cfuica.kernels.threads import run_rows
from cfuica.learning.block import Context
from cfuica.model.histories import Histories
from cfuica.model.memory import log_times_gradient
from cfuica.model.side import Side


@dataclass(frozen=True)
class EncoderGradients:
    """The squared norm of the gradient of W, which was written where it belongs, and the gradient
    of the log times where they are learned."""

    squares: float
    more: dict[str, Tensor] = field(default_factory=dict)

    @property
    def squares_of_more(self) -> float:
        """The squared norm of the latter."""
        parts = (np.square(each.numpy(), dtype=np.float64).sum() for each in self.more.values())
        return float(sum(parts))


def encode_backward(
    side: Side, context: Context, slope_qh: np.ndarray, share: bool, grad_nkh: Tensor
) -> EncoderGradients:
    """Write the gradient of the stored columns of W; slopes (Q, H) are by the sums."""
    if isinstance(context.bag, Histories):
        slope_bh, more = _unfollow(side, context.bag, slope_qh)
        return EncoderGradients(_gather(context, slope_bh, share, grad_nkh), more)
    gain_q = side.gain.of(np.diff(context.bag.offsets))
    return EncoderGradients(_gather(context, slope_qh * gain_q[:, None], share, grad_nkh))


def _gather(context: Context, slope_qh: np.ndarray, share: bool, grad_nkh: Tensor) -> float:
    transpose = context.queries_of_entry
    members, labels, _ = grad_nkh.shape
    squares_n = np.empty(members)
    run_rows(
        encode.encode_backward,
        members,
        slope_qh,
        transpose.offsets,
        transpose.order,
        share,
        grad_nkh.numpy(),
        squares_n,
        work=transpose.offsets[::labels],
    )
    return float(squares_n.sum())


def _unfollow(
    side: Side, histories: Histories, slope_qh: np.ndarray
) -> tuple[np.ndarray, dict[str, Tensor]]:
    """Slopes (B, H) by the rows of the behaviours, and the gradient of the log times by name."""
    n_histories, hidden = len(histories.offsets) - 1, slope_qh.shape[1]
    decay_h, scale_h = side.decay_and_scale()
    slope_bh = np.empty((len(histories.entries), hidden), np.float32)
    by_decay_uh, by_scale_uh = np.empty((2, n_histories, hidden), np.float32)
    run_rows(
        scan.scan_backward,
        n_histories,
        side.encoder_nkh.flatten(0, 1).numpy(),
        histories.offsets,
        histories.entries,
        histories.moments,
        histories.moment_offsets,
        decay_h.numpy(),
        scale_h.numpy(),
        slope_qh,
        slope_bh,
        by_decay_uh,
        by_scale_uh,
        work=histories.offsets,
    )
    if side.log_times_h is None:
        return slope_bh, {}
    by_decay_h, by_scale_h = (torch.from_numpy(by.sum(0)) for by in (by_decay_uh, by_scale_uh))
    gradient_h = log_times_gradient(side.log_times_h, by_decay_h, by_scale_h)
    return slope_bh, {"log_times_h": gradient_h}
