"""The definitions of the operations and losses, in plain torch for any device.

The compiled CPU kernels of the other files are tested against these. Gradients come from autograd.
Shapes as in `runtime.py`; losses are of P pairs with logits over K labels, Eqn. (7).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def bag_sums(table_nkh: Tensor, offsets: Tensor, entries: Tensor, norm_q: Tensor) -> Tensor:
    """Eqns. (3) and (4) without c and f: for each query, norm * the sum of its rows of W, (Q, H).

    `offsets` (Q + 1) and `entries` (row * K + label) are compressed rows. `norm_q` (Q) is the
    length normalisation, 1 in the paper."""
    rows_rh = table_nkh.flatten(0, 1)
    sums_qh = functional.embedding_bag(
        entries, rows_rh, offsets, mode="sum", include_last_offset=True
    )
    return norm_q[:, None] * sums_qh


def activate(total_qh: Tensor, activation: str) -> Tensor:
    """f of Eqns. (3) and (4), elementwise. (Q, H)"""
    functions = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}
    return functions[activation](total_qh)


def scan(
    table_nkh: Tensor,
    offsets: Tensor,
    entries: Tensor,
    positions: Tensor,
    position_offsets: Tensor,
    decay_h: Tensor,
    scale_h: Tensor,
) -> Tensor:
    """scale * the state before each position of each history, (Q, H); see `Histories`.

    The state is a diagonal linear recurrence: state <- decay * state + W[interaction].
    """
    rows_rh = table_nkh.flatten(0, 1)
    lengths = offsets.diff()
    histories, longest = len(lengths), int(lengths.max()) if len(lengths) else 0
    device = table_nkh.device
    state_uh = table_nkh.new_zeros(histories, len(decay_h))
    states = [state_uh]
    for t in range(longest):
        goes_on = t < lengths
        entry = entries[torch.where(goes_on, offsets[:-1] + t, 0)]
        happened = goes_on & (entry >= 0)
        moved_uh = decay_h * state_uh + rows_rh[entry.clamp_min(0)]
        state_uh = torch.where(happened[:, None], moved_uh, state_uh)
        states.append(state_uh)
    # A position reads the state before its first interaction, the last position that after all.
    history_b = torch.repeat_interleave(torch.arange(histories, device=device), lengths)
    place_b = torch.arange(len(entries), device=device) - offsets[history_b]
    place_q = torch.repeat_interleave(lengths, position_offsets.diff())
    has_position = positions >= 0  # an interaction before all listed positions belongs to none
    position_b = (position_offsets[history_b] + positions)[has_position]
    place_q.scatter_reduce_(0, position_b, place_b[has_position], "amin")
    history_q = torch.repeat_interleave(
        torch.arange(histories, device=device), position_offsets.diff()
    )
    return scale_h * torch.stack(states)[place_q, history_q]


def decode(rows_gkh: Tensor, row_of_pair: Tensor, hidden_ph: Tensor) -> Tensor:
    """Eqns. (5) and (6) without b: V[row, k] . h for each pair. Returns (P, K)."""
    return torch.einsum("pkh,ph->pk", rows_gkh[row_of_pair], hidden_ph)


def weighted_sums(
    rows_gkh: Tensor, row_of_pair: Tensor, weights_pk: Tensor, query_of_pair: Tensor, n_queries: int
) -> Tensor:
    """The transpose of `decode`: for each query the sum over its pairs, and over k, of
    weights[p, k] * rows[row, k]. Returns (Q, H)."""
    addends_ph = torch.einsum("pk,pkh->ph", weights_pk, rows_gkh[row_of_pair])
    sums_qh = rows_gkh.new_zeros(n_queries, rows_gkh.shape[2])
    return sums_qh.index_add(0, query_of_pair, addends_ph)


def accumulate(stored_nk: Tensor) -> Tensor:
    """Label sharing: the column in use for label k is the sum of the stored columns 1..k."""
    return stored_nk.cumsum(1)


def differences(used_nk: Tensor) -> Tensor:
    """The inverse of `accumulate`: stored columns from columns in use (labels on axis 1)."""
    return torch.cat((used_nk[:, :1], used_nk[:, 1:] - used_nk[:, :-1]), dim=1)


def stored_gradient(grad_used_nk: Tensor) -> Tensor:
    """Gradient by the stored columns from the gradient by the columns in use."""
    return grad_used_nk.flip(1).cumsum(1).flip(1)


def adam(
    parameter: Tensor,
    mean: Tensor,
    square: Tensor,
    grad: Tensor,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> Tensor:
    """One Adam step; updates the moments in place and returns the new parameter.

    The form of the published experiments: epsilon is not scaled by the bias correction, which
    is part of `rate` = lr * sqrt(1 - beta2^t) / (1 - beta1^t).
    """
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return parameter - rate * mean / (square.sqrt() + epsilon)


def calibrate(
    logits_pk: Tensor, inverse_temperature: float, bias_k: Tensor, place_k: Tensor
) -> Tensor:
    """softmax(logits * inverse_temperature + bias + tilt * place), (P, K) float64.

    The tilt of each pair, found by bisection, keeps the mean of `place` (from -1 to 1) that it has
    under softmax(logits).
    """
    logits_pk = logits_pk.double()
    mean_p = torch.softmax(logits_pk, dim=1) @ place_k
    exponent_pk = logits_pk * inverse_temperature + bias_k
    high_p = torch.full_like(mean_p, 1e6)
    low_p = -high_p
    for _ in range(100):
        tilt_p = (low_p + high_p) / 2
        tilted_pk = torch.softmax(exponent_pk + tilt_p[:, None] * place_k, dim=1)
        too_low_p = tilted_pk @ place_k < mean_p
        low_p = torch.where(too_low_p, tilt_p, low_p)
        high_p = torch.where(too_low_p, high_p, tilt_p)
    return tilted_pk


# Added to every probability inside the ordinal loss, as in the published experiments.
ORDINAL_FLOOR = 1e-4


def softmax_loss(logits_pk: Tensor, label_p: Tensor) -> Tensor:
    """-log p of each pair's label under the softmax of Eqn. (7). Returns (P)."""
    log_pk = torch.log_softmax(logits_pk, dim=1)
    return -log_pk.gather(1, label_p[:, None]).squeeze(1)


def ordinal_loss(logits_pk: Tensor, label_p: Tensor) -> Tensor:
    """The ordinal loss of the published experiments (NOTES). Returns (P).

    For the true label k, every label up to k should beat all lower ones, and every label from k on
    should beat all higher ones:
    -( sum over l <= k of log p_l / (p_1 + .. + p_l)
       + sum over l >= k of log p_l / (p_l + .. + p_K) ), with p = softmax + floor.
    """
    p_pk = torch.softmax(logits_pk, dim=1) + ORDINAL_FLOOR
    log_pk = p_pk.log()
    upward_pk = (log_pk - p_pk.cumsum(1).log()).cumsum(1)
    downward_pk = _reverse_cumsum(log_pk - _reverse_cumsum(p_pk).log())
    return -(upward_pk + downward_pk).gather(1, label_p[:, None]).squeeze(1)


def mixed_loss(logits_pk: Tensor, label_p: Tensor, ordinal_weight: float) -> Tensor:
    """(1 - w) * softmax loss + w * ordinal loss of each pair. Returns (P)."""
    if ordinal_weight == 0:
        return softmax_loss(logits_pk, label_p)
    if ordinal_weight == 1:
        return ordinal_loss(logits_pk, label_p)
    softmax_p = softmax_loss(logits_pk, label_p)
    return torch.lerp(softmax_p, ordinal_loss(logits_pk, label_p), ordinal_weight)


def bernoulli_loss(logits_p1: Tensor, happened_p: Tensor) -> Tensor:
    """-log p of whether each pair is an interaction, with one logit a pair. Returns (P)."""
    return functional.binary_cross_entropy_with_logits(
        logits_p1[:, 0], happened_p.to(logits_p1.dtype), reduction="none"
    )


def catalogue_softmax(
    logits_qm: Tensor, correction_m: Tensor, masked_qm: Tensor, weights_qm: Tensor
) -> Tensor:
    """The weighted sum of -log softmax of all targets, each over the M items of its position's row.

    The targets have a positive weight. `masked_qm` (boolean) are items that do not compete,
    `correction_m` is added to the logit of each item; neither applies to the targets of a row.
    """
    targets_qm = weights_qm > 0
    others_qm = (logits_qm + correction_m).masked_fill(masked_qm, -torch.inf)
    # A row without a target counts nothing; all of its items masked, it would be NaN.
    as_they_are_qm = targets_qm | ~targets_qm.any(1, keepdim=True)
    log_qm = torch.log_softmax(torch.where(as_they_are_qm, logits_qm, others_qm), dim=1)
    return -(weights_qm[targets_qm] * log_qm[targets_qm]).double().sum()


def _reverse_cumsum(x_pk: Tensor) -> Tensor:
    return x_pk.flip(1).cumsum(1).flip(1)
