"""Costs of a predicted distribution over K labels, given the activations of Eqn. (7)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Added to every probability inside the ordinal cost, as in the published experiments.
ORDINAL_FLOOR = 1e-4


def softmax_cost(activation_pk: Tensor, label_p: Tensor) -> Tensor:
    """-log p of each pair's label under the softmax of Eqn. (7). Returns (P)."""
    log_pk = torch.log_softmax(activation_pk, dim=1)
    return -log_pk.gather(1, label_p[:, None]).squeeze(1)


def ordinal_cost(activation_pk: Tensor, label_p: Tensor) -> Tensor:
    """The ordinal cost of the published experiments (NOTES). Returns (P).

    For the true label k it asks that every label beats all lower ones on the way up to k and all
    higher ones on the way down to k:
    -( sum over l <= k of log p_l / (p_1 + .. + p_l)
       + sum over l >= k of log p_l / (p_l + .. + p_K) ), with p = softmax + floor.
    """
    p_pk = torch.softmax(activation_pk, dim=1) + ORDINAL_FLOOR
    log_pk = p_pk.log()
    upward_pk = (log_pk - p_pk.cumsum(1).log()).cumsum(1)
    downward_pk = _reverse_cumsum(log_pk - _reverse_cumsum(p_pk).log())
    return -(upward_pk + downward_pk).gather(1, label_p[:, None]).squeeze(1)


def mixed_cost(activation_pk: Tensor, label_p: Tensor, ordinal_weight: float) -> Tensor:
    """(1 - w) * softmax cost + w * ordinal cost of each pair. Returns (P)."""
    if ordinal_weight == 0:
        return softmax_cost(activation_pk, label_p)
    if ordinal_weight == 1:
        return ordinal_cost(activation_pk, label_p)
    softmax_p = softmax_cost(activation_pk, label_p)
    return torch.lerp(softmax_p, ordinal_cost(activation_pk, label_p), ordinal_weight)


def bernoulli_cost(activation_p1: Tensor, happened_p: Tensor) -> Tensor:
    """-log p of what happened, where the one activation of a pair is the logit that it did. (P)"""
    return functional.binary_cross_entropy_with_logits(
        activation_p1[:, 0], happened_p.to(activation_p1.dtype), reduction="none"
    )


def _reverse_cumsum(x_pk: Tensor) -> Tensor:
    return x_pk.flip(1).cumsum(1).flip(1)
