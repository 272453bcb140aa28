"""The kernels that serve a model in use: sums and states that live, distributions and scores."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cfuica.doctor.differences import Differences, Steps, difference, unequal
from cfuica.doctor.problem import ITEMS, LABELS, USERS, Problem
from cfuica.kernels import definition, live, own_bias, products, scan
from cfuica.kernels.threads import run_rows
from cfuica.live.growing import GrowingArray
from cfuica.live.rows import LiveRows
from cfuica.live.sums import RunningSums, hidden_vectors
from cfuica.model.activation import ACTIVATION_CODES, activate
from cfuica.model.calibration import Calibration
from cfuica.model.gain import NO_GAIN, Gain
from cfuica.model.prediction import expected_rating
from cfuica.model.side import Side
from cfuica.recommending.best import best
from cfuica.recommending.scores import worst_rating

PEOPLE = 2
"""Who items are ranked for."""


def _rows(problem: Problem) -> Differences:
    """Rows that were packed anew for a change are what they were when it is undone."""
    rows = problem.matrix.by_user
    kept = LiveRows.of(rows)
    item = int(rows.members[0])
    label = kept.take(0, item)
    assert label is not None
    kept.put(0, item, label)
    packed = kept.compressed()
    users_p, items_p = (each.astype(np.int32).ravel() for each in np.indices((USERS, ITEMS)))
    return {
        "live.repack": unequal(
            (packed.offsets, rows.offsets),
            (packed.members, rows.members),
            (packed.labels, rows.labels),
        ),
        "live.find": unequal((LiveRows.of(rows).find(users_p, items_p), problem.label_ui.ravel())),
    }


def _sums(problem: Problem) -> Differences:
    """The running sums of all items, and hidden vectors with and without one of their users."""
    side, rows = problem.model.sides["users"], problem.matrix.by_item
    everyone, sizes = np.arange(ITEMS), np.diff(rows.offsets)
    users = GrowingArray.of(np.arange(USERS, dtype=np.int32))
    sums_qh = RunningSums.of(side, LiveRows.of(rows), users).sums(everyone)
    entries = rows.members.astype(np.int64) * LABELS + rows.labels
    table_nkh, bias_h = side.encoder_nkh.double(), side.encoder_bias_h.double()

    def defined(offsets: np.ndarray, entries: np.ndarray, gain: Gain) -> Tensor:
        gain_q = torch.from_numpy(gain.of(np.diff(offsets)))
        return definition.encode(
            table_nkh, bias_h, torch.from_numpy(offsets), torch.from_numpy(entries), gain_q
        )

    # Every other item without the first of its users.
    is_without = (everyone % 2 == 0) & (sizes > 0)
    first = rows.offsets[:-1][is_without]
    left_out = np.full(ITEMS, -1)
    left_out[is_without] = entries[first]
    offsets = np.concatenate(([0], np.cumsum(sizes - is_without)))
    sums_by_definition = defined(rows.offsets, entries, NO_GAIN)
    remaining = defined(offsets, np.delete(entries, first), side.gain)
    hidden_qh = hidden_vectors(
        side, sums_by_definition.numpy(), everyone, left_out, sizes - is_without
    )
    rows_rh = side.encoder_nkh.flatten(0, 1)
    shifted_h = sums_by_definition[0].numpy().copy()
    live.shift(rows_rh.numpy(), shifted_h, int(entries[0]), 1)
    moved_h = sums_by_definition[0] - rows_rh[entries[0]] + rows_rh[1]
    return {
        "live.fill": difference(sums_qh, sums_by_definition),
        "live.hidden_vectors": difference(hidden_qh, activate(remaining, side.activation)),
        "live.shift": difference(shifted_h, moved_h),
    }


def _own_bias(problem: Problem) -> Differences:
    """The history of one user, whole and without its first behaviour."""
    side, matrix = problem.model.sides["items"], problem.matrix.by_user
    n = int(matrix.offsets[1])
    items, labels = matrix.members[:n], matrix.labels[:n]
    entries = items.astype(np.int64) * LABELS + labels
    rows_nh, bias_h = side.encoder_nkh.flatten(0, 1)[entries].double(), side.encoder_bias_h.double()
    removed_r, gain_r = np.array([-1, 0]), np.array([0.9, 1.1], np.float32)
    is_there_rn = torch.from_numpy(removed_r[:, None] != np.arange(n))
    sums_rh = bias_h + is_there_rn.double() @ rows_nh
    decoder_nkh, base_nk = side.decoder_nkh[items], side.decoder_bias_nk[items]
    place_k = torch.linspace(-1, 1, LABELS)
    surplus_r, variance_r = np.empty((2, 2))
    run_rows(
        own_bias.residuals,
        2,
        side.encoder_nkh.flatten(0, 1).numpy(),
        side.encoder_bias_h.numpy(),
        sums_rh.numpy(),
        removed_r,
        gain_r,
        entries,
        labels,
        decoder_nkh.numpy(),
        base_nk.numpy(),
        place_k.numpy(),
        ACTIVATION_CODES[side.activation],
        surplus_r,
        variance_r,
    )
    rest_rnh = sums_rh[:, None] - rows_nh - bias_h
    hidden_rnh = activate(
        bias_h + torch.from_numpy(gain_r)[:, None, None] * rest_rnh, side.activation
    )
    activation_rnk = torch.einsum("nkh,rnh->rnk", decoder_nkh.double(), hidden_rnh) + base_nk
    chance_rnk, place_k = torch.softmax(activation_rnk, 2), place_k.double()
    mean_rn = chance_rnk @ place_k
    variance_rn = chance_rnk @ place_k.square() - mean_rn.square()
    expected = torch.stack((place_k[labels.astype(np.int64)] - mean_rn, variance_rn))
    return {
        "own_bias.residuals": difference(
            np.stack((surplus_r, variance_r)), (expected * is_there_rn).sum(2)
        )
    }


def _states(problem: Problem) -> Differences:
    """States after histories, what is read of them, and states without each behaviour."""
    side, timeline = problem.ranking_model.sides["items"], problem.timeline
    offsets = timeline.offsets[: PEOPLE + 1]
    n = int(offsets[-1])
    entries = timeline.items[:n].astype(np.int64)
    rows_rh = side.encoder_nkh.flatten(0, 1).numpy()
    decay_h, scale_h = side.decay_and_scale()
    states_uh = np.zeros((PEOPLE, len(decay_h)), np.float32)
    run_rows(
        scan.advance, PEOPLE, rows_rh, offsets, entries, decay_h.numpy(), states_uh, work=offsets
    )
    expected_uh = _after(side, offsets, entries)
    states_bh = np.empty((n, len(decay_h)), np.float32)
    run_rows(scan.without_each, PEOPLE, rows_rh, offsets, entries, decay_h.numpy(), states_bh)
    # Behaviour e is left out (-1) of the e-th of n copies.
    user_b = np.repeat(np.arange(PEOPLE), np.diff(offsets))
    copies = [np.where(np.arange(n) == e, -1, entries)[user_b == user_b[e]] for e in range(n)]
    ends = np.append(0, np.cumsum([len(copy) for copy in copies]))
    hidden_uh = np.empty_like(states_uh)
    run_rows(
        scan.read,
        PEOPLE,
        expected_uh.numpy(),
        scale_h.numpy(),
        side.encoder_bias_h.numpy(),
        ACTIVATION_CODES[side.activation],
        hidden_uh,
    )
    read_uh = activate(side.encoder_bias_h + scale_h * expected_uh, side.activation)
    return {
        "scan.advance": difference(states_uh, expected_uh),
        "scan.read": difference(hidden_uh, read_uh),
        "scan.without_each": difference(states_bh, _after(side, ends, np.concatenate(copies))),
    }


def _after(side: Side, offsets: np.ndarray, entries: np.ndarray) -> Tensor:
    """(U, H) the states after histories, none of them empty, by definition."""
    decay_h, _ = side.decay_and_scale()
    two_moments = 2 * torch.arange(len(offsets))
    states_qh = definition.scan(
        side.encoder_nkh,
        torch.zeros_like(decay_h),
        torch.from_numpy(offsets),
        torch.from_numpy(entries),
        torch.zeros(len(entries), dtype=torch.int64),
        two_moments,
        decay_h,
        torch.ones_like(decay_h),
    )
    return states_qh[1::2].contiguous()


def _products(problem: Problem) -> Differences:
    """Vectors of items with those of people."""
    vectors_mh = problem.ranking_model.sides["items"].decoder_nkh[:ITEMS, 0].numpy()
    asked_bh = vectors_mh[:PEOPLE][::-1].copy()
    expected_mb = vectors_mh.astype(np.float64) @ asked_bh.T.astype(np.float64)
    out_mb, out_p = np.empty((ITEMS, PEOPLE), np.float32), np.empty(PEOPLE, np.float32)
    run_rows(products.products, ITEMS, vectors_mh, asked_bh, out_mb)
    run_rows(products.paired, PEOPLE, vectors_mh[:PEOPLE], asked_bh, out_p)
    members_bc = np.arange(2 * PEOPLE, dtype=np.int32).reshape(PEOPLE, 2)
    out_bc = np.empty((PEOPLE, 2), np.float32)
    run_rows(products.chosen, PEOPLE, vectors_mh, members_bc, asked_bh, out_bc)
    chosen_bc = expected_mb[members_bc, np.arange(PEOPLE)[:, None]]
    return {
        "products.products": difference(out_mb, expected_mb),
        "products.paired": difference(out_p, np.diagonal(expected_mb)),
        "products.chosen": difference(out_bc, chosen_bc),
    }


def _scores(_: Problem) -> Differences:
    """Distributions of activations, scores of them and the best scores."""
    rng = np.random.default_rng(1)
    activation_bmk = rng.normal(0, 2, (PEOPLE, ITEMS, LABELS)).astype(np.float32)
    activation_pk = activation_bmk.reshape(-1, LABELS)
    values_k = np.arange(1, LABELS + 1, dtype=np.float32)
    softmax_pk = torch.softmax(torch.from_numpy(activation_pk).double(), 1)

    calibration = Calibration(temperature=1.5, widening=0.3)
    place_k = torch.linspace(-1, 1, LABELS, dtype=torch.float64)
    calibrated_pk = definition.calibrate(
        torch.from_numpy(activation_pk), 1 / 1.5, 0.3 * place_k**2, place_k
    )
    # The lowest tenth of each distribution, label by label.
    below_pk = softmax_pk.cumsum(1).clamp(max=0.1)
    lowest_pk = torch.diff(below_pk, dim=1, prepend=torch.zeros(len(below_pk), 1).double())
    values = torch.from_numpy(values_k).double()
    worst_bm = worst_rating(
        activation_bmk, values_k, lambda *_: softmax_pk.float().numpy(), share=0.1
    )
    expected_bm = expected_rating(activation_bmk, values_k)
    scores_bm = (softmax_pk @ values).view(PEOPLE, ITEMS).float().numpy()
    ranked = best(scores_bm, 10).items.reshape(PEOPLE, 10)
    wrong = np.count_nonzero(ranked != np.argsort(-scores_bm, 1, kind="stable")[:, :10])
    return {
        "calibrate.calibrate": difference(
            calibration.distributions(activation_pk, values_k), calibrated_pk
        ),
        "score.expected": difference(expected_bm.ravel(), softmax_pk @ values),
        "score.worst": difference(worst_bm.ravel(), lowest_pk @ values / 0.1),
        "select.best": float(wrong),
    }


STEPS: Steps = {
    ("live.repack", "live.find"): _rows,
    ("live.fill", "live.hidden_vectors", "live.shift"): _sums,
    ("own_bias.residuals",): _own_bias,
    ("scan.advance", "scan.read", "scan.without_each"): _states,
    ("products.products", "products.paired", "products.chosen"): _products,
    ("calibrate.calibrate", "score.expected", "score.worst", "select.best"): _scores,
}
