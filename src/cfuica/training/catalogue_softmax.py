"""The softmax over a catalogue: cost and gradients of a block whose pairs are what was done next.

The logits of a moment are those of its hidden vector, one for each item of the catalogue, and
those of its user, which are the same at all moments. So both are matrix products, and nothing is
computed pair by pair.

The extra layer in training: forwards and backwards over some moments at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from cfuica.model.layers import slope_of
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import Histories, SideName
from cfuica.model.side import LAYER, Hidden, Side
from cfuica.ops.loss import softmax_slopes
from cfuica.ops.runtime import one_blas_thread, run_lanes
from cfuica.training.autograd import autograd_catalogue
from cfuica.training.batches import Block
from cfuica.training.gradients import (
    GradientBuffers,
    Gradients,
    SideGradients,
    encode_backward,
    kept,
)


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


# Moments whose logits are in memory at a time, per lane. The lanes are as many whatever the number
# of threads: each adds up gradients of its own, and the order of additions must not change.
CHUNK, LANES = 256, 4


def catalogue_cost_and_gradients(
    model: CoAutoregressive, block: Block, *, factor: float, buffers: GradientBuffers
) -> tuple[float, Gradients]:
    """`factor` times the sum of -log softmax of the block's pairs, and its gradients.

    The choice is among the block's items, which are the queries of the users side; those of the
    items side are moments of histories.
    """
    if model.device.type != "cpu":
        return autograd_catalogue(model, block, factor=factor)
    with one_blas_thread():
        return _by_lanes(model, block, factor, buffers)


def _by_lanes(
    model: CoAutoregressive, block: Block, factor: float, buffers: GradientBuffers
) -> tuple[float, Gradients]:
    hidden = {name: side.encode(block.contexts[name].bag) for name, side in model.sides.items()}
    decoded = {name: kept(h.values_qh, block.keeps.get(name)).numpy() for name, h in hidden.items()}
    histories = block.contexts["items"].bag
    assert isinstance(histories, Histories)
    members, choice = block.pairs.users.members, block.pairs.items.members
    # Without a side nothing is read of its kind: no units, and nothing to learn.
    hidden_items_qh = decoded.get("items", np.empty((histories.size, 0), np.float32))
    table_mh = np.empty((len(choice), 0), np.float32)
    of_user_um = np.zeros((len(members), len(choice)), np.float32)
    if "items" in model.sides:
        items = model.sides["items"]
        table_mh = items.decoder_nkh[choice, 0].numpy()
        of_user_um += items.decoder_bias_nk[choice, 0].numpy()
    if "users" in model.sides:
        own_uh = model.sides["users"].decoder_nkh[members, 0].numpy()
        of_user_um += own_uh @ decoded["users"].T

    pairs = block.pairs.items
    columns = block.pairs.users.query_of_pair[pairs.by_query.order]
    correction_m = np.empty(0, np.float32) if block.correction_m is None else block.correction_m
    done = block.done
    assert done is not None
    moments = histories.moment_offsets
    user_of_moment = np.repeat(np.arange(len(members), dtype=np.int32), np.diff(moments))
    slope_um = np.zeros_like(of_user_um)
    slope_qh = np.empty_like(hidden_items_qh)

    layer = Deepening.of(model.sides.get("items"), block.keep_layer_qu)

    def lane(first: int, stop: int) -> tuple[float, np.ndarray, dict[str, np.ndarray]]:
        """The moments of some users."""
        layers = layer.zeros() if layer else {}
        logits_qm = np.empty((CHUNK, len(choice)), np.float32)
        grad_mh = np.zeros_like(table_mh)
        cost = 0.0
        for start in range(first, stop, CHUNK):
            end = min(start + CHUNK, stop)
            hidden_qh, rows_qm = hidden_items_qh[start:end], logits_qm[: end - start]
            deep_qh, inner_qu = layer.forwards(hidden_qh, start) if layer else (hidden_qh, None)
            np.matmul(deep_qh, table_mh.T, out=rows_qm)
            cost += softmax_slopes(
                rows_qm,
                of_user_um,
                user_of_moment,
                pairs.by_query.offsets,
                columns,
                done.columns,
                done.start_q,
                done.stop_q,
                correction_m,
                factor,
                slope_um,
                start,
                end,
            )
            np.matmul(rows_qm, table_mh, out=slope_qh[start:end])
            grad_mh += rows_qm.T @ deep_qh
            if layer and inner_qu is not None:
                layer.backwards(hidden_qh, inner_qu, slope_qh[start:end], start, layers)
        return cost, grad_mh, layers

    # Between users: the slopes of one are added up by one lane.
    wanted = np.linspace(0, moments[-1], LANES + 1)
    bounds = moments[np.searchsorted(moments, wanted)]
    results = run_lanes(lane, [(int(a), int(b)) for a, b in pairwise(bounds)])
    grad_mh = sum(grad for _, grad, _ in results)
    more: dict[SideName, dict[str, Tensor]] = {}
    if layer:
        more["items"] = {
            name: torch.from_numpy(sum(each[name] for _, _, each in results)) for name in LAYER
        }

    gradients: Gradients = {}
    slopes: dict[SideName, np.ndarray] = {"items": slope_qh}
    decoders: dict[SideName, tuple[np.ndarray, np.ndarray, np.ndarray]] = {
        "items": (choice, grad_mh, slope_um.sum(0)),
    }
    if "users" in model.sides:
        slopes["users"] = slope_um.T @ own_uh
        zeros_u = np.zeros(len(members), np.float32)
        decoders["users"] = (members, slope_um @ decoded["users"], zeros_u)
    for name, side in model.sides.items():
        slope_qh = _by_sums(side, hidden[name], slopes[name], block.keeps.get(name))
        gradients[name] = _gradients(
            side, block, name, slope_qh, decoders[name], more.get(name, {}), buffers
        )
    return sum(cost for cost, _, _ in results), gradients


def _by_sums(
    side: Side, hidden: Hidden, slope_qh: np.ndarray, keep_qh: np.ndarray | None
) -> np.ndarray:
    """Slopes by the sums, from those by what was decoded."""
    slope_qh *= slope_of(hidden.values_qh, side.activation).numpy()
    return slope_qh if keep_qh is None else slope_qh * keep_qh


def _gradients(
    side: Side,
    block: Block,
    name: SideName,
    slope_qh: np.ndarray,
    decoder: tuple[np.ndarray, np.ndarray, np.ndarray],
    layer: dict[str, Tensor],
    buffers: GradientBuffers,
) -> SideGradients:
    members, grad_gh, grad_g = decoder
    encoder_nkh = buffers.encoder(name, side.encoder_nkh)
    encoder = encode_backward(side, block.contexts[name], slope_qh, False, encoder_nkh)
    bias_h = slope_qh.sum(0)
    group_of_member = np.full(len(side.encoder_nkh), -1, np.int32)
    group_of_member[members] = np.arange(len(members), dtype=np.int32)
    inner = _inner(encoder_nkh.numpy(), side.encoder_nkh.numpy())
    inner += _inner(grad_gh, side.decoder_nkh[members, 0].numpy())
    return SideGradients(
        encoder_nkh,
        torch.from_numpy(bias_h),
        torch.from_numpy(grad_gh)[:, None],
        torch.from_numpy(grad_g)[:, None],
        group_of_member,
        encoder.squares
        + sum(_inner(each, each) for each in (bias_h, grad_gh, grad_g))
        + encoder.squares_of_more
        + sum(_inner(each.numpy(), each.numpy()) for each in layer.values()),
        inner,
        more=encoder.more | layer,
    )


def _inner(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.einsum("i,i->", a.ravel(), b.ravel(), dtype=np.float64))
