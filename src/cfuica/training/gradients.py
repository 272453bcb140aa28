"""The cost of a block and its gradients: written out for the CPU kernels, by autograd elsewhere.

Gradients are those of the *stored* columns (see `Side`). The two forms are equal within float
tolerance; a test holds them to it.

Backwards through the encoders: from slopes by the sums to the gradient of W.

The gradient of the bridge, and what it adds to the slopes of both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from cfuica.model.layers import ACTIVATION_CODES, Bridge, log_times_gradient, slope_of
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import Grouping, Histories, Pairs, SideName, SidePairs
from cfuica.model.side import Hidden, Side
from cfuica.ops import decode, encode, loss, runtime
from cfuica.ops.reference import ORDINAL_FLOOR
from cfuica.ops.runtime import run_rows
from cfuica.training.batches import Block, Context


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
        encode.later_sums,
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
        encode.scan_backward,
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


@dataclass(frozen=True)
class BridgeBackward:
    """The gradient of A, and for each side the slopes (Q, H) by its sums and <dW, W> of them."""

    grad_hku: Tensor
    slopes: dict[SideName, np.ndarray]
    inner: dict[SideName, float]

    @property
    def squares(self) -> float:
        """The squared norm of the gradient of A."""
        return float(np.square(self.grad_hku.numpy(), dtype=np.float64).sum())


def bridge_backward(
    bridge: Bridge,
    sides: dict[SideName, Side],
    pairs: Pairs,
    slope_pk: np.ndarray,
    hidden: dict[SideName, Hidden],
    decoded: dict[SideName, Tensor],
    keeps: dict[SideName, np.ndarray],
    asked_qku: Tensor,
) -> BridgeBackward:
    """From the slopes (P, K) by the activations; `asked_qku` is what `cross_into` used."""
    queries, labels, _ = asked_qku.shape
    grad_qku = np.empty(asked_qku.shape, np.float32)
    run_rows(
        decode.decode_backward_members,
        queries,
        slope_pk,
        decoded["users"].numpy(),
        pairs.items.by_query.offsets,
        pairs.items.by_query.order,
        pairs.users.query_of_pair,
        False,
        grad_qku,
        np.empty((queries, labels), np.float32),
        np.empty(queries),
        work=pairs.items.by_query.offsets,
    )

    users = sides["users"]
    slope_users_qh = np.empty(hidden["users"].values_qh.shape, np.float32)
    inner_q = np.empty(len(slope_users_qh))
    run_rows(
        decode.decode_backward_queries,
        len(slope_users_qh),
        slope_pk,
        asked_qku.numpy(),
        pairs.users.by_query.offsets,
        pairs.users.by_query.order,
        pairs.items.query_of_pair,
        hidden["users"].sums_qh.numpy(),
        hidden["users"].values_qh.numpy(),
        keeps.get("users", np.empty((0, 0), np.float32)),
        users.encoder_bias_h.numpy(),
        ACTIVATION_CODES[users.activation],
        slope_users_qh,
        inner_q,
        work=pairs.users.by_query.offsets,
    )

    own_qr = torch.from_numpy(grad_qku).flatten(1)
    slope_items_qh = (own_qr @ bridge.table_hku.flatten(1).T).numpy()
    items = hidden["items"]
    if "items" in keeps:
        slope_items_qh *= keeps["items"]
    slope_items_qh *= slope_of(items.values_qh, sides["items"].activation).numpy()

    # The kernel also counts dh . h, which is <dG, G> here and no parameter's.
    crossing = np.einsum("qku,qku->", grad_qku, asked_qku.numpy(), dtype=np.float64)
    own_qh = items.sums_qh.numpy() - sides["items"].encoder_bias_h.numpy()
    return BridgeBackward(
        (decoded["items"].T @ own_qr).view_as(bridge.table_hku),
        {"users": slope_users_qh, "items": slope_items_qh},
        {
            "users": float(inner_q.sum()) - float(crossing),
            "items": float(np.einsum("qh,qh->", slope_items_qh, own_qh, dtype=np.float64)),
        },
    )


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
            self._encoder[name] = runtime.zeros_like(like)
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
        from cfuica.training.autograd import autograd_cost_and_gradients

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
            loss.bernoulli,
            len(cost_p),
            activation_pk.numpy(),
            labels_p,
            np.float32(factor),
            cost_p,
            slope_pk,
        )
        return float(cost_p.sum(dtype=np.float64)) * factor, slope_pk
    run_rows(
        loss.cost,
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
    grad_gkh = runtime.empty(groups, labels, units)
    grad_gk = runtime.empty(groups, labels)
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
