"""The gradient of the bridge, and what it adds to the slopes of both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfuica.kernels import decode
from cfuica.kernels.threads import run_rows
from cfuica.model.activation import ACTIVATION_CODES, slope_of
from cfuica.model.bridge import Bridge
from cfuica.model.pairs import Pairs, SideName
from cfuica.model.side import Hidden, Side


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
