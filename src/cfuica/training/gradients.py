"""The loss of a block and its gradients: by CPU kernels here, by autograd on other devices.

`block_loss_and_gradients` is one forward and backward pass: encoders, decoders, the bilinear
interaction. Gradients are those of the *stored* columns (see `Side`). A test compares both forms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import Csr
from cfuica.model.layers import (
    ACTIVATION_CODES,
    BilinearInteraction,
    derivative_of,
    log_time_constants_gradient,
)
from cfuica.model.network import Network
from cfuica.model.pairs import Histories, Pairs, SideName, SidePairs
from cfuica.model.side import Hidden, Side
from cfuica.ops import decode, encode, runtime
from cfuica.ops import loss as loss_ops
from cfuica.ops.reference import ORDINAL_FLOOR
from cfuica.ops.runtime import run_rows
from cfuica.training.batches import Block, Context


@dataclass(frozen=True)
class EncoderGradients:
    """The squared norm of the gradient of W, which is in its buffer, and the gradient of the
    learned decay's log time constants, if any."""

    squares: float
    more: dict[str, Tensor] = field(default_factory=dict)

    @property
    def squares_of_more(self) -> float:
        """The squared norm of the latter."""
        parts = (np.square(each.numpy(), dtype=np.float64).sum() for each in self.more.values())
        return float(sum(parts))


def encode_backward(
    side: Side, context: Context, grad_qh: np.ndarray, share: bool, grad_nkh: Tensor
) -> EncoderGradients:
    """Write the gradient of the stored columns of W; gradients (Q, H) are by the sums."""
    transpose = context.queries_of_entry
    if not isinstance(context.bag, Histories):
        length_norm_q = side.length_norm.of(np.diff(context.bag.offsets))
        grad_qh = grad_qh * length_norm_q[:, None]
        return EncoderGradients(_gather(transpose, grad_qh, share, grad_nkh))
    if side.log_time_constants_h is None:
        later_rh, row_b = _later(context.bag, grad_qh)
        transpose = replace(transpose, indices=row_b[transpose.indices])
        return EncoderGradients(_gather(transpose, later_rh, share, grad_nkh))
    grad_bh, log_time_constants_h = _scan_backward(
        side, side.log_time_constants_h, context.bag, grad_qh
    )
    squares = _gather(transpose, grad_bh, share, grad_nkh)
    return EncoderGradients(squares, {"log_time_constants_h": log_time_constants_h})


def _gather(transpose: Csr, grad_qh: np.ndarray, share: bool, grad_nkh: Tensor) -> float:
    indices, labels, _ = grad_nkh.shape
    squares_n = np.empty(indices)
    run_rows(
        encode.encode_backward,
        indices,
        grad_qh,
        transpose.offsets,
        transpose.indices,
        share,
        grad_nkh.numpy(),
        squares_n,
        work=transpose.offsets[::labels],
    )
    return float(squares_n.sum())


def _later(histories: Histories, grad_qh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without decay: the gradients (R, H) by the interactions between two positions, and the row of
    each interaction among them, (B,)."""
    n_histories = len(histories.offsets) - 1
    later_rh = np.empty((histories.n_rows + n_histories, grad_qh.shape[1]), np.float32)
    run_rows(
        encode.later_sums,
        n_histories,
        grad_qh,
        histories.position_offsets,
        later_rh,
        work=histories.position_offsets,
    )
    first_u = histories.position_offsets[:-1] + np.arange(n_histories) + 1
    row_b = np.repeat(first_u, np.diff(histories.offsets)) + histories.positions
    return later_rh, row_b.astype(np.int32)


def _scan_backward(
    side: Side, log_time_constants_h: Tensor, histories: Histories, grad_qh: np.ndarray
) -> tuple[np.ndarray, Tensor]:
    """With learned decay: the gradients (B, H) by the interactions' rows of W, and that of the log
    time constants."""
    n_histories, hidden = len(histories.offsets) - 1, grad_qh.shape[1]
    decay_h, scale_h = side.decay_and_scale()
    grad_bh = np.empty((len(histories.indices), hidden), np.float32)
    by_decay_uh, by_scale_uh = np.empty((2, n_histories, hidden), np.float32)
    run_rows(
        encode.scan_backward,
        n_histories,
        side.encoder_nkh.flatten(0, 1).numpy(),
        histories.offsets,
        histories.indices,
        histories.positions,
        histories.position_offsets,
        decay_h.numpy(),
        scale_h.numpy(),
        grad_qh,
        grad_bh,
        by_decay_uh,
        by_scale_uh,
        work=histories.offsets,
    )
    by_decay_h, by_scale_h = (torch.from_numpy(by.sum(0)) for by in (by_decay_uh, by_scale_uh))
    return grad_bh, log_time_constants_gradient(log_time_constants_h, by_decay_h, by_scale_h)


@dataclass(frozen=True)
class BilinearBackward:
    """The gradient of A, and for each side the gradients (Q, H) by its sums and <dW, W> of them."""

    grad_hku: Tensor
    grads: dict[SideName, np.ndarray]
    inner: dict[SideName, float]

    @property
    def squares(self) -> float:
        """The squared norm of the gradient of A."""
        return float(np.square(self.grad_hku.numpy(), dtype=np.float64).sum())


def bilinear_backward(
    bilinear: BilinearInteraction,
    sides: dict[SideName, Side],
    pairs: Pairs,
    grad_pk: np.ndarray,
    hidden: dict[SideName, Hidden],
    decoded: dict[SideName, Tensor],
    keeps: dict[SideName, np.ndarray],
    bilinear_qku: Tensor,
) -> BilinearBackward:
    """From the gradients (P, K) by the logits; `bilinear_qku` is what `cross_into` used."""
    queries, labels, _ = bilinear_qku.shape
    grad_qku = np.empty(bilinear_qku.shape, np.float32)
    run_rows(
        decode.decode_backward_rows,
        queries,
        grad_pk,
        decoded["users"].numpy(),
        pairs.items.by_query.offsets,
        pairs.items.by_query.indices,
        pairs.users.query_of_pair,
        False,
        grad_qku,
        np.empty((queries, labels), np.float32),
        np.empty(queries),
        work=pairs.items.by_query.offsets,
    )

    users = sides["users"]
    grad_users_qh = np.empty(hidden["users"].values_qh.shape, np.float32)
    inner_q = np.empty(len(grad_users_qh))
    run_rows(
        decode.decode_backward_queries,
        len(grad_users_qh),
        grad_pk,
        bilinear_qku.numpy(),
        pairs.users.by_query.offsets,
        pairs.users.by_query.indices,
        pairs.items.query_of_pair,
        hidden["users"].sums_qh.numpy(),
        hidden["users"].values_qh.numpy(),
        keeps.get("users", np.empty((0, 0), np.float32)),
        users.encoder_bias_h.numpy(),
        ACTIVATION_CODES[users.activation],
        grad_users_qh,
        inner_q,
        work=pairs.users.by_query.offsets,
    )

    own_qr = torch.from_numpy(grad_qku).flatten(1)
    grad_items_qh = (own_qr @ bilinear.table_hku.flatten(1).T).numpy()
    items = hidden["items"]
    if "items" in keeps:
        grad_items_qh *= keeps["items"]
    grad_items_qh *= derivative_of(items.values_qh, sides["items"].activation).numpy()

    # The kernel also counts dh . h, which is <dG, G> here and no parameter's.
    crossing = np.einsum("qku,qku->", grad_qku, bilinear_qku.numpy(), dtype=np.float64)
    own_qh = items.sums_qh.numpy() - sides["items"].encoder_bias_h.numpy()
    return BilinearBackward(
        (decoded["items"].T @ own_qr).view_as(bilinear.table_hku),
        {"users": grad_users_qh, "items": grad_items_qh},
        {
            "users": float(inner_q.sum()) - float(crossing),
            "items": float(np.einsum("qh,qh->", grad_items_qh, own_qh, dtype=np.float64)),
        },
    )


@dataclass
class SideGradients:
    """Gradients of one side's stored parameters.

    Those of V and b are of the block's G table rows only: `group_of_row` (n) int32 is each table
    row's place among them, or -1. `squares` is the squared norm of all of them, `inner` the inner
    product of the penalised ones with their parameters, <dW, W> + <dV, V>.
    """

    encoder_nkh: Tensor
    encoder_bias_h: Tensor
    decoder_gkh: Tensor
    decoder_bias_gk: Tensor
    group_of_row: np.ndarray
    squares: float
    inner: float
    # Of the bilinear interaction, which starts from the hidden vectors of the items side.
    bilinear_hku: Tensor | None = None
    # By name, of what is not in the paper: the learned decay, the residual layer.
    more: dict[str, Tensor] = field(default_factory=dict)


Gradients = dict[SideName, SideGradients]


class GradientBuffers:
    """Memory of the large gradients, reused between steps: fresh pages take longer than sums."""

    def __init__(self) -> None:
        self._encoder: dict[SideName, Tensor] = {}

    def encoder(self, name: SideName, like: Tensor) -> Tensor:
        if name not in self._encoder:
            self._encoder[name] = runtime.zeros_like(like)
        return self._encoder[name]


def block_loss_and_gradients(
    model: Network,
    block: Block,
    *,
    factor: float,
    ordinal_weight: float | None,
    share: bool,
    buffers: GradientBuffers,
) -> tuple[float, Gradients]:
    """`factor` times the sum of the block's losses, and its gradients (without the penalty).

    Without an ordinal weight the loss is Bernoulli, the labels are 0 or 1, and K is 1.
    """
    if model.device.type != "cpu":
        from cfuica.training.autograd import autograd_loss_and_gradients

        return autograd_loss_and_gradients(
            model, block, factor=factor, ordinal_weight=ordinal_weight, share=share
        )
    hidden = {name: side.encode(block.contexts[name].bag) for name, side in model.sides.items()}
    # The input of the decoders: hidden vectors after dropout.
    decoded = {
        name: apply_dropout(h.values_qh, block.keeps.get(name)) for name, h in hidden.items()
    }
    bilinear_qku = model.bilinear.query_rows(decoded["items"]) if model.bilinear else None
    logits_pk = model.logits(block.pairs, decoded, bilinear_qku)
    total, grad_pk = _loss(logits_pk, block.labels, ordinal_weight, factor)
    crossed = None
    if model.bilinear is not None and bilinear_qku is not None:
        crossed = bilinear_backward(
            model.bilinear,
            model.sides,
            block.pairs,
            grad_pk,
            hidden,
            decoded,
            block.keeps,
            bilinear_qku,
        )

    gradients: Gradients = {}
    for name, side in model.sides.items():
        pairs = block.pairs.seen_by(name)
        decoder = _decode_backward_rows(side, pairs, grad_pk, decoded[name], share)
        grad_qh, inner = _decode_backward_queries(
            side, pairs, grad_pk, hidden[name], block.keeps.get(name, _ALL)
        )
        if crossed is not None:
            grad_qh += crossed.grads[name]
            inner += crossed.inner[name]
        encoder_nkh = buffers.encoder(name, side.encoder_nkh)
        encoder = encode_backward(side, block.contexts[name], grad_qh, share, encoder_nkh)
        bias_h = grad_qh.sum(0)
        group_of_row = np.full(side.encoder_nkh.shape[0], -1, np.int32)
        group_of_row[pairs.indices] = np.arange(len(pairs.indices), dtype=np.int32)
        gradients[name] = SideGradients(
            encoder_nkh,
            torch.from_numpy(bias_h),
            decoder[0],
            decoder[1],
            group_of_row,
            encoder.squares
            + encoder.squares_of_more
            + decoder[2]
            + float(np.square(bias_h, dtype=np.float64).sum()),
            inner,
            more=encoder.more,
        )
    if crossed is not None:
        gradients["items"].bilinear_hku = crossed.grad_hku
        gradients["items"].squares += crossed.squares
    return total, gradients


_ALL = np.empty((0, 0), np.float32)


def apply_dropout(values_qh: Tensor, keep_qh: np.ndarray | None) -> Tensor:
    """Hidden values after dropout, (Q, H)."""
    if keep_qh is None:
        return values_qh
    return values_qh * torch.from_numpy(keep_qh).to(values_qh.device)


def _loss(
    logits_pk: Tensor, labels_p: np.ndarray, ordinal_weight: float | None, factor: float
) -> tuple[float, np.ndarray]:
    grad_pk = np.empty(logits_pk.shape, np.float32)
    loss_p = np.empty(len(grad_pk), np.float32)
    if ordinal_weight is None:
        run_rows(
            loss_ops.bernoulli,
            len(loss_p),
            logits_pk.numpy(),
            labels_p,
            np.float32(factor),
            loss_p,
            grad_pk,
        )
        return float(loss_p.sum(dtype=np.float64)) * factor, grad_pk
    run_rows(
        loss_ops.rating_loss,
        len(loss_p),
        logits_pk.numpy(),
        labels_p,
        np.float32(ordinal_weight),
        np.float32(ORDINAL_FLOOR),
        np.float32(factor),
        loss_p,
        grad_pk,
    )
    return float(loss_p.sum(dtype=np.float64)) * factor, grad_pk


def _decode_backward_rows(
    side: Side, pairs: SidePairs, grad_pk: np.ndarray, hidden_qh: Tensor, share: bool
) -> tuple[Tensor, Tensor, float]:
    groups = len(pairs.indices)
    _, labels, units = side.decoder_nkh.shape
    grad_gkh = runtime.empty(groups, labels, units)
    grad_gk = runtime.empty(groups, labels)
    squares_g = np.empty(groups)
    run_rows(
        decode.decode_backward_rows,
        groups,
        grad_pk,
        hidden_qh.numpy(),
        pairs.by_row.offsets,
        pairs.by_row.indices,
        pairs.query_of_pair,
        share,
        grad_gkh.numpy(),
        grad_gk.numpy(),
        squares_g,
        work=pairs.by_row.offsets,
    )
    return grad_gkh, grad_gk, float(squares_g.sum())


def _decode_backward_queries(
    side: Side,
    pairs: SidePairs,
    grad_pk: np.ndarray,
    hidden: Hidden,
    keep_qh: np.ndarray,
) -> tuple[np.ndarray, float]:
    grad_qh = np.empty(hidden.values_qh.shape, np.float32)
    inner_q = np.empty(len(grad_qh))
    run_rows(
        decode.decode_backward_queries,
        len(grad_qh),
        grad_pk,
        side.decoder_nkh.numpy(),
        pairs.by_query.offsets,
        pairs.by_query.indices,
        pairs.row_of_pair,
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
