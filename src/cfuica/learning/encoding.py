"""Backwards through the encoders: from slopes by the sums to the gradient of W."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from cfuica.kernels import encode, scan
from cfuica.kernels.threads import run_rows
from cfuica.learning.block import Context
from cfuica.model.histories import Histories
from cfuica.model.memory import log_times_gradient
from cfuica.model.pairs import Grouping
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
    transpose = context.queries_of_entry
    if not isinstance(context.bag, Histories):
        gain_q = side.gain.of(np.diff(context.bag.offsets))
        slope_qh = slope_qh * gain_q[:, None]
        return EncoderGradients(_gather(transpose, slope_qh, share, grad_nkh))
    if side.log_times_h is None:
        later_rh, row_b = _later(context.bag, slope_qh)
        transpose = replace(transpose, order=row_b[transpose.order])
        return EncoderGradients(_gather(transpose, later_rh, share, grad_nkh))
    slope_bh, log_times_h = _unfollow(side, side.log_times_h, context.bag, slope_qh)
    squares = _gather(transpose, slope_bh, share, grad_nkh)
    return EncoderGradients(squares, {"log_times_h": log_times_h})


def _gather(transpose: Grouping, slope_qh: np.ndarray, share: bool, grad_nkh: Tensor) -> float:
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


def _later(histories: Histories, slope_qh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes (R, H) by whatever happened between two moments, where no unit forgets, and between
    which of them each behaviour did, (B,)."""
    n_histories = len(histories.offsets) - 1
    later_rh = np.empty((histories.size + n_histories, slope_qh.shape[1]), np.float32)
    run_rows(
        scan.later_sums,
        n_histories,
        slope_qh,
        histories.moment_offsets,
        later_rh,
        work=histories.moment_offsets,
    )
    first_u = histories.moment_offsets[:-1] + np.arange(n_histories) + 1
    row_b = np.repeat(first_u, np.diff(histories.offsets)) + histories.moments
    return later_rh, row_b.astype(np.int32)


def _unfollow(
    side: Side, log_times_h: Tensor, histories: Histories, slope_qh: np.ndarray
) -> tuple[np.ndarray, Tensor]:
    """Slopes (B, H) by the rows of the behaviours, and the gradient of the log times."""
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
    by_decay_h, by_scale_h = (torch.from_numpy(by.sum(0)) for by in (by_decay_uh, by_scale_uh))
    return slope_bh, log_times_gradient(log_times_h, by_decay_h, by_scale_h)
