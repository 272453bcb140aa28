"""The cost of a block and its gradients: written out for the CPU kernels, by autograd elsewhere.

Gradients are those of the *stored* columns (see `Side`). The two forms are equal within float
tolerance; a test holds them to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cfuica.kernels import cost, decode, memory
from cfuica.kernels.threads import run_rows
from cfuica.learning.block import Block
from cfuica.learning.bridging import bridge_backward
from cfuica.learning.encoding import encode_backward
from cfuica.model.activation import ACTIVATION_CODES
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.likelihood import ORDINAL_FLOOR
from cfuica.model.pairs import SideName, SidePairs
from cfuica.model.side import Hidden, Side


@dataclass
class SideGradients:
    """Gradients of one side's stored parameters.

    Those of V and b are kept for the block's G members only: `group_of_member` (n) int32 names
    each member's row, or -1. `squares` is the squared norm of all of them, `inner` the inner
    product of the penalised ones with their parameters, <dW, W> + <dV, V>.
    """

    encoder_nkh: Tensor
    encoder_bias_h: Tensor
    decoder_gkh: Tensor
    decoder_bias_gk: Tensor
    group_of_member: np.ndarray
    squares: float
    inner: float
    bridge_hku: Tensor | None = None
    """Of the bridge, which starts from the hidden vectors of the items side."""
    more: dict[str, Tensor] = field(default_factory=dict)
    """Of what the paper has not, by name: how long the units remember, the extra layer."""


Gradients = dict[SideName, SideGradients]


class GradientBuffers:
    """Memory for the large gradients, kept between steps: fresh pages cost more than the sums."""

    def __init__(self) -> None:
        self._encoder: dict[SideName, Tensor] = {}

    def encoder(self, name: SideName, like: Tensor) -> Tensor:
        if name not in self._encoder:
            self._encoder[name] = memory.zeros_like(like)
        return self._encoder[name]


def block_cost_and_gradients(
    model: CoAutoregressive,
    block: Block,
    *,
    factor: float,
    ordinal_weight: float | None,
    share: bool,
    buffers: GradientBuffers,
) -> tuple[float, Gradients]:
    """`factor` times the sum of the block's costs, and its gradients (without the penalty).

    Without an ordinal weight the labels say whether a pair happened, and K is 1.
    """
    if model.device.type != "cpu":
        from cfuica.learning.autograd import autograd_cost_and_gradients  # which imports this

        return autograd_cost_and_gradients(
            model, block, factor=factor, ordinal_weight=ordinal_weight, share=share
        )
    hidden = {name: side.encode(block.contexts[name].bag) for name, side in model.sides.items()}
    # What is decoded: f of the sums, less the units that dropout leaves out.
    decoded = {name: kept(h.values_qh, block.keeps.get(name)) for name, h in hidden.items()}
    asked_qku = model.bridge.asked(decoded["items"]) if model.bridge else None
    activation_pk = model.activations(block.pairs, decoded, asked_qku)
    total, slope_pk = _cost(activation_pk, block.labels, ordinal_weight, factor)
    crossed = None
    if model.bridge is not None and asked_qku is not None:
        crossed = bridge_backward(
            model.bridge,
            model.sides,
            block.pairs,
            slope_pk,
            hidden,
            decoded,
            block.keeps,
            asked_qku,
        )

    gradients: Gradients = {}
    for name, side in model.sides.items():
        pairs = block.pairs.seen_by(name)
        decoder = _decode_backward_members(side, pairs, slope_pk, decoded[name], share)
        slope_qh, inner = _decode_backward_queries(
            side, pairs, slope_pk, hidden[name], block.keeps.get(name, _ALL)
        )
        if crossed is not None:
            slope_qh += crossed.slopes[name]
            inner += crossed.inner[name]
        encoder_nkh = buffers.encoder(name, side.encoder_nkh)
        encoder = encode_backward(side, block.contexts[name], slope_qh, share, encoder_nkh)
        bias_h = slope_qh.sum(0)
        group_of_member = np.full(side.encoder_nkh.shape[0], -1, np.int32)
        group_of_member[pairs.members] = np.arange(len(pairs.members), dtype=np.int32)
        gradients[name] = SideGradients(
            encoder_nkh,
            torch.from_numpy(bias_h),
            decoder[0],
            decoder[1],
            group_of_member,
            encoder.squares
            + encoder.squares_of_more
            + decoder[2]
            + float(np.square(bias_h, dtype=np.float64).sum()),
            inner,
            more=encoder.more,
        )
    if crossed is not None:
        gradients["items"].bridge_hku = crossed.grad_hku
        gradients["items"].squares += crossed.squares
    return total, gradients


_ALL = np.empty((0, 0), np.float32)


def kept(values_qh: Tensor, keep_qh: np.ndarray | None) -> Tensor:
    """What is decoded: the values less the units that dropout leaves out."""
    if keep_qh is None:
        return values_qh
    return values_qh * torch.from_numpy(keep_qh).to(values_qh.device)


def _cost(
    activation_pk: Tensor, labels_p: np.ndarray, ordinal_weight: float | None, factor: float
) -> tuple[float, np.ndarray]:
    slope_pk = np.empty(activation_pk.shape, np.float32)
    cost_p = np.empty(len(slope_pk), np.float32)
    if ordinal_weight is None:
        run_rows(
            cost.bernoulli,
            len(cost_p),
            activation_pk.numpy(),
            labels_p,
            np.float32(factor),
            cost_p,
            slope_pk,
        )
        return float(cost_p.sum(dtype=np.float64)) * factor, slope_pk
    run_rows(
        cost.cost,
        len(cost_p),
        activation_pk.numpy(),
        labels_p,
        np.float32(ordinal_weight),
        np.float32(ORDINAL_FLOOR),
        np.float32(factor),
        cost_p,
        slope_pk,
    )
    return float(cost_p.sum(dtype=np.float64)) * factor, slope_pk


def _decode_backward_members(
    side: Side, pairs: SidePairs, slope_pk: np.ndarray, hidden_qh: Tensor, share: bool
) -> tuple[Tensor, Tensor, float]:
    groups = len(pairs.members)
    _, labels, units = side.decoder_nkh.shape
    grad_gkh = memory.empty(groups, labels, units)
    grad_gk = memory.empty(groups, labels)
    squares_g = np.empty(groups)
    run_rows(
        decode.decode_backward_members,
        groups,
        slope_pk,
        hidden_qh.numpy(),
        pairs.by_member.offsets,
        pairs.by_member.order,
        pairs.query_of_pair,
        share,
        grad_gkh.numpy(),
        grad_gk.numpy(),
        squares_g,
        work=pairs.by_member.offsets,
    )
    return grad_gkh, grad_gk, float(squares_g.sum())


def _decode_backward_queries(
    side: Side,
    pairs: SidePairs,
    slope_pk: np.ndarray,
    hidden: Hidden,
    keep_qh: np.ndarray,
) -> tuple[np.ndarray, float]:
    grad_qh = np.empty(hidden.values_qh.shape, np.float32)
    inner_q = np.empty(len(grad_qh))
    run_rows(
        decode.decode_backward_queries,
        len(grad_qh),
        slope_pk,
        side.decoder_nkh.numpy(),
        pairs.by_query.offsets,
        pairs.by_query.order,
        pairs.member_of_pair,
        hidden.sums_qh.numpy(),
        hidden.values_qh.numpy(),
        keep_qh,
        side.encoder_bias_h.numpy(),
        ACTIVATION_CODES[side.activation],
        grad_qh,
        inner_q,
        work=pairs.by_query.offsets,
    )
    return grad_qh, float(inner_q.sum())
