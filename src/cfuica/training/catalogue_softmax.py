"""The softmax over a catalogue: loss and gradients of a block whose targets are the next items.

The logits of a position are those of its hidden vector, one for each item of the catalogue, plus
those of its user, which are the same at all positions. Both are matrix products. The residual layer
runs forwards and backwards over a chunk of positions at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from cfuica.model.layers import derivative_of
from cfuica.model.network import Network
from cfuica.model.pairs import Histories, SideName
from cfuica.model.side import LAYER, Hidden, Side
from cfuica.ops.loss import softmax_gradients
from cfuica.ops.runtime import one_blas_thread, run_lanes
from cfuica.training.autograd import autograd_catalogue
from cfuica.training.batches import Block
from cfuica.training.gradients import (
    GradientBuffers,
    Gradients,
    SideGradients,
    apply_dropout,
    encode_backward,
)


@dataclass(frozen=True)
class ResidualLayerPass:
    """The residual layer of a side, and which of its units (Q, U) dropout keeps."""

    into_hu: np.ndarray
    bias_u: np.ndarray
    back_uh: np.ndarray
    keep_qu: np.ndarray | None

    @classmethod
    def of(cls, side: Side | None, keep_qu: np.ndarray | None) -> ResidualLayerPass | None:
        """None where there is no such layer."""
        if side is None or side.residual_tensors is None:
            return None
        into_hu, bias_u, back_uh = (tensor.numpy() for tensor in side.residual_tensors)
        return cls(into_hu, bias_u, back_uh, keep_qu)

    def zeros(self) -> dict[str, np.ndarray]:
        """Gradients to add to, by the names of the tensors."""
        return {name: np.zeros_like(getattr(self, name)) for name in LAYER}

    def forwards(self, hidden_qh: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        """The input of the decoder from hidden vectors, the first of which is that of position
        `start`, and the units of the layer, for the backward pass."""
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
        grad_qh: np.ndarray,
        start: int,
        gradients: dict[str, np.ndarray],
    ) -> None:
        """Turn gradients by the decoder's input into those by the hidden vectors, in place; adds to
        the layer's `gradients`."""
        grad_qu = grad_qh @ self.back_uh.T
        grad_qu *= inner_qu > 0
        if self.keep_qu is not None:
            grad_qu *= self.keep_qu[start : start + len(grad_qu)]
        gradients["back_uh"] += inner_qu.T @ grad_qh
        gradients["into_hu"] += hidden_qh.T @ grad_qu
        gradients["bias_u"] += grad_qu.sum(0)
        grad_qh += grad_qu @ self.into_hu.T


# Positions whose logits are in memory at a time, per lane. The number of lanes does not depend on
# the threads: each lane sums its own gradients, and the order of additions must not change.
CHUNK, LANES = 256, 4


def catalogue_loss_and_gradients(
    model: Network, block: Block, *, factor: float, buffers: GradientBuffers
) -> tuple[float, Gradients]:
    """`factor` times the sum of -log softmax of the block's pairs, and its gradients.

    The softmax is over the block's items, which are the queries of the users side. The queries of
    the items side are positions of histories.
    """
    if model.device.type != "cpu":
        return autograd_catalogue(model, block, factor=factor)
    with one_blas_thread():
        return _by_lanes(model, block, factor, buffers)


def _by_lanes(
    model: Network, block: Block, factor: float, buffers: GradientBuffers
) -> tuple[float, Gradients]:
    hidden = {name: side.encode(block.contexts[name].bag) for name, side in model.sides.items()}
    decoded = {
        name: apply_dropout(h.values_qh, block.keeps.get(name)).numpy()
        for name, h in hidden.items()
    }
    histories = block.contexts["items"].bag
    assert isinstance(histories, Histories)
    indices, choice = block.pairs.users.indices, block.pairs.items.indices
    # A network without the items side has hidden vectors of no units there.
    hidden_items_qh = decoded.get("items", np.empty((histories.n_rows, 0), np.float32))
    table_mh = np.empty((len(choice), 0), np.float32)
    of_user_um = np.zeros((len(indices), len(choice)), np.float32)
    if "items" in model.sides:
        items = model.sides["items"]
        table_mh = items.decoder_nkh[choice, 0].numpy()
        of_user_um += items.decoder_bias_nk[choice, 0].numpy()
    if "users" in model.sides:
        own_uh = model.sides["users"].decoder_nkh[indices, 0].numpy()
        of_user_um += own_uh @ decoded["users"].T

    pairs = block.pairs.items
    columns = block.pairs.users.query_of_pair[pairs.by_query.indices]
    correction_m = np.empty(0, np.float32) if block.correction_m is None else block.correction_m
    seen = block.seen
    assert seen is not None
    positions = histories.position_offsets
    user_of_position = np.repeat(np.arange(len(indices), dtype=np.int32), np.diff(positions))
    grad_um = np.zeros_like(of_user_um)
    grad_qh = np.empty_like(hidden_items_qh)

    layer = ResidualLayerPass.of(model.sides.get("items"), block.keep_layer_qu)

    def lane(first: int, stop: int) -> tuple[float, np.ndarray, dict[str, np.ndarray]]:
        """The positions of some users."""
        layers = layer.zeros() if layer else {}
        logits_qm = np.empty((CHUNK, len(choice)), np.float32)
        grad_mh = np.zeros_like(table_mh)
        loss = 0.0
        for start in range(first, stop, CHUNK):
            end = min(start + CHUNK, stop)
            hidden_qh, rows_qm = hidden_items_qh[start:end], logits_qm[: end - start]
            deep_qh, inner_qu = layer.forwards(hidden_qh, start) if layer else (hidden_qh, None)
            np.matmul(deep_qh, table_mh.T, out=rows_qm)
            loss += softmax_gradients(
                rows_qm,
                of_user_um,
                user_of_position,
                pairs.by_query.offsets,
                columns,
                seen.columns,
                seen.start_q,
                seen.stop_q,
                correction_m,
                factor,
                grad_um,
                start,
                end,
            )
            np.matmul(rows_qm, table_mh, out=grad_qh[start:end])
            grad_mh += rows_qm.T @ deep_qh
            if layer and inner_qu is not None:
                layer.backwards(hidden_qh, inner_qu, grad_qh[start:end], start, layers)
        return loss, grad_mh, layers

    # Lanes end between users: the gradients of one user are summed by one lane.
    wanted = np.linspace(0, positions[-1], LANES + 1)
    bounds = positions[np.searchsorted(positions, wanted)]
    results = run_lanes(lane, [(int(a), int(b)) for a, b in pairwise(bounds)])
    grad_mh = sum(grad for _, grad, _ in results)
    more: dict[SideName, dict[str, Tensor]] = {}
    if layer:
        more["items"] = {
            name: torch.from_numpy(sum(each[name] for _, _, each in results)) for name in LAYER
        }

    gradients: Gradients = {}
    grads: dict[SideName, np.ndarray] = {"items": grad_qh}
    decoders: dict[SideName, tuple[np.ndarray, np.ndarray, np.ndarray]] = {
        "items": (choice, grad_mh, grad_um.sum(0)),
    }
    if "users" in model.sides:
        grads["users"] = grad_um.T @ own_uh
        zeros_u = np.zeros(len(indices), np.float32)
        decoders["users"] = (indices, grad_um @ decoded["users"], zeros_u)
    for name, side in model.sides.items():
        grad_qh = _by_sums(side, hidden[name], grads[name], block.keeps.get(name))
        gradients[name] = _gradients(
            side, block, name, grad_qh, decoders[name], more.get(name, {}), buffers
        )
    return sum(loss for loss, _, _ in results), gradients


def _by_sums(
    side: Side, hidden: Hidden, grad_qh: np.ndarray, keep_qh: np.ndarray | None
) -> np.ndarray:
    """Gradients by the input of f, from those by the hidden vectors after dropout."""
    grad_qh *= derivative_of(hidden.values_qh, side.activation).numpy()
    return grad_qh if keep_qh is None else grad_qh * keep_qh


def _gradients(
    side: Side,
    block: Block,
    name: SideName,
    grad_qh: np.ndarray,
    decoder: tuple[np.ndarray, np.ndarray, np.ndarray],
    layer: dict[str, Tensor],
    buffers: GradientBuffers,
) -> SideGradients:
    indices, grad_gh, grad_g = decoder
    encoder_nkh = buffers.encoder(name, side.encoder_nkh)
    encoder = encode_backward(side, block.contexts[name], grad_qh, False, encoder_nkh)
    bias_h = grad_qh.sum(0)
    group_of_row = np.full(len(side.encoder_nkh), -1, np.int32)
    group_of_row[indices] = np.arange(len(indices), dtype=np.int32)
    inner = _inner(encoder_nkh.numpy(), side.encoder_nkh.numpy())
    inner += _inner(grad_gh, side.decoder_nkh[indices, 0].numpy())
    return SideGradients(
        encoder_nkh,
        torch.from_numpy(bias_h),
        torch.from_numpy(grad_gh)[:, None],
        torch.from_numpy(grad_g)[:, None],
        group_of_row,
        encoder.squares
        + sum(_inner(each, each) for each in (bias_h, grad_gh, grad_g))
        + encoder.squares_of_more
        + sum(_inner(each.numpy(), each.numpy()) for each in layer.values()),
        inner,
        more=encoder.more | layer,
    )


def _inner(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.einsum("i,i->", a.ravel(), b.ravel(), dtype=np.float64))
