"""The kernels that train a rating model: one block, once through."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from cfuica.doctor.differences import Differences, Steps, difference, unequal, worst
from cfuica.doctor.problem import ITEMS, LABELS, USERS, Problem
from cfuica.kernels import definition, draw
from cfuica.learning.autograd import autograd_cost_and_gradients
from cfuica.learning.gradients import GradientBuffers, Gradients, block_cost_and_gradients
from cfuica.learning.optimiser import Adam
from cfuica.model.activation import activate
from cfuica.model.bridge import Bridge
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.pairs import SideName
from cfuica.settings import Settings


def _draw(problem: Problem) -> Differences:
    """The pairs and contexts of the block, against masks over all behaviours."""
    user, item, label = problem.matrix.triplets()
    user_in, item_in = np.isin(user, problem.users), np.isin(item, problem.items)
    inside = user_in & item_in
    expected = {tuple(row) for row in np.stack([user, item, label], 1)[inside].tolist()}
    pairs = problem.block.pairs
    found = zip(
        pairs.users.member_of_pair.tolist(),
        pairs.items.member_of_pair.tolist(),
        problem.block.labels.tolist(),
        strict=True,
    )
    wrong = dict.fromkeys(("draw.contexts", "draw.transpose", "draw.group"), 0.0)
    contexts: dict[SideName, tuple[np.ndarray, np.ndarray]] = {
        "users": (user, item_in & ~user_in),
        "items": (item, user_in & ~item_in),
    }
    for side, (members, is_context) in contexts.items():
        context, grouping = problem.block.contexts[side], pairs.seen_by(side).by_query
        entries = members[is_context].astype(np.int64) * LABELS + label[is_context]
        wrong["draw.contexts"] += unequal((np.sort(context.bag.entries), np.sort(entries)))
        queries = np.repeat(np.arange(context.bag.size), np.diff(context.bag.offsets))
        by_entry = np.argsort(context.bag.entries, kind="stable")
        wrong["draw.transpose"] += unequal((context.queries_of_entry.order, queries[by_entry]))
        by_query = np.argsort(pairs.seen_by(side).query_of_pair, kind="stable")
        wrong["draw.group"] += unequal((grouping.order, by_query))
    return {"draw.observed_pairs": float(len(expected.symmetric_difference(found))), **wrong}


def _whole(problem: Problem) -> Differences:
    """All of every user but one behaviour, and which pairs there are."""
    rows, label_ui = problem.matrix.by_user, problem.label_ui
    everyone, without = np.arange(USERS, dtype=np.int32), rows.members[rows.offsets[:-1]]
    offsets, entries = draw.whole_contexts(
        rows.offsets, rows.members, rows.labels, everyone, without, LABELS
    )
    is_left_ui = (label_ui >= 0) & (np.arange(ITEMS) != without[:, None])
    user, item = np.nonzero(is_left_ui)
    users_p, items_p = (each.astype(np.int32).ravel() for each in np.indices(label_ui.shape))
    found = draw.is_observed(rows.offsets, rows.members, users_p, items_p)
    return {
        "draw.whole_contexts": unequal(
            (np.diff(offsets), is_left_ui.sum(1)),
            (entries, item * LABELS + label_ui[user, item]),
        ),
        "draw.is_observed": unequal((found, label_ui.ravel() >= 0)),
    }


def _encode(problem: Problem) -> Differences:
    sides, contexts = problem.model.sides, problem.block.contexts
    return {
        "encode.encode": worst(
            difference(side.encode(contexts[name].bag).values_qh, _hidden(problem, name))
            for name, side in sides.items()
        )
    }


def _decode(problem: Problem) -> Differences:
    model, block = problem.model, problem.block
    hidden = {name: _hidden(problem, name) for name in model.sides}
    expected = torch.zeros(block.pairs.size, LABELS)
    for name, side in model.sides.items():
        pairs = block.pairs.seen_by(name)
        expected += definition.decode(
            side.decoder_nkh,
            side.decoder_bias_nk,
            torch.from_numpy(pairs.member_of_pair).long(),
            hidden[name][torch.from_numpy(pairs.query_of_pair).long()],
        )
    # Any table will do for a bridge.
    table_hku = model.sides["users"].decoder_nkh[: hidden["items"].shape[1]].contiguous()
    asked_qku = Bridge(table_hku).asked(hidden["items"])
    return {
        "decode.decode": difference(model.activations(block.pairs, hidden), expected),
        "bridge.bridge": difference(asked_qku, definition.bridge(hidden["items"], table_hku)),
    }


def _gradients(problem: Problem) -> Differences:
    """Forward and backward: each tensor's gradient is the work of one kernel."""
    model, block = problem.model, problem.block
    cost, ours = block_cost_and_gradients(
        model, block, factor=1.0, ordinal_weight=0.5, share=True, buffers=GradientBuffers()
    )
    expected_cost, theirs = autograd_cost_and_gradients(
        model, block, factor=1.0, ordinal_weight=0.5, share=True
    )
    by_kernel = {
        "cost.cost": [difference(cost, expected_cost)],
        "decode.decode_backward_members": [],
        "decode.decode_backward_queries": [],
        "encode.encode_backward": [],
    }
    for name in model.sides:
        mine, other = ours[name], theirs[name]
        # The kernels keep the rows of the block's members only; the others are zero.
        rows = torch.from_numpy(np.flatnonzero(mine.group_of_member >= 0))
        for grad, expected in (
            (mine.decoder_gkh, other.decoder_gkh),
            (mine.decoder_bias_gk, other.decoder_bias_gk),
        ):
            groups = torch.from_numpy(mine.group_of_member).long()[rows]
            by_kernel["decode.decode_backward_members"].append(
                difference(grad[groups], expected[rows])
            )
        by_kernel["decode.decode_backward_queries"].append(
            difference(mine.encoder_bias_h, other.encoder_bias_h)
        )
        by_kernel["encode.encode_backward"].append(difference(mine.encoder_nkh, other.encoder_nkh))
    return {kernel: worst(differences) for kernel, differences in by_kernel.items()}


def _adam(problem: Problem) -> Differences:
    """One step with autograd's gradients, so that no other kernel can be to blame."""
    settings = Settings(max_norm=None, max_entry=None, l2=1e-3)
    _, gradients = autograd_cost_and_gradients(
        problem.model, problem.block, factor=1.0, ordinal_weight=1.0, share=settings.share_labels
    )
    model = copy.deepcopy(problem.model)
    rate = 0.1
    Adam(model, settings).step(gradients, rate)
    after = model.tensors()
    return {
        "adam.adam": worst(
            difference(after[name], expected)
            for name, expected in _by_definition(problem.model, gradients, settings, rate)
        )
    }


def _by_definition(
    model: CoAutoregressive, gradients: Gradients, settings: Settings, rate: float
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor after the first step of Adam."""
    rate *= (1 - settings.beta2) ** 0.5 / (1 - settings.beta1)
    for side, its in gradients.items():
        for key, grad, shared, penalty in (
            ("encoder_nkh", its.encoder_nkh, True, settings.l2),
            ("encoder_bias_h", its.encoder_bias_h, False, 0.0),
            ("decoder_nkh", its.decoder_gkh, True, settings.l2),
            ("decoder_bias_nk", its.decoder_bias_gk, True, 0.0),
        ):
            used = model.tensors()[f"{side}.{key}"]
            shared = shared and settings.share_labels
            stored = definition.differences(used) if shared else used
            stored = definition.adam(
                stored,
                torch.zeros_like(stored),
                torch.zeros_like(stored),
                grad + 2 * penalty * stored,
                rate=rate,
                beta1=settings.beta1,
                beta2=settings.beta2,
                epsilon=settings.epsilon,
            )
            yield f"{side}.{key}", definition.accumulate(stored) if shared else stored


def _hidden(problem: Problem, name: SideName) -> Tensor:
    """(Q, H) of the block's queries, by definition."""
    side = problem.model.sides[name]
    return activate(side.sums(problem.block.contexts[name].bag), side.activation)


STEPS: Steps = {
    ("draw.observed_pairs", "draw.contexts", "draw.transpose", "draw.group"): _draw,
    ("draw.whole_contexts", "draw.is_observed"): _whole,
    ("encode.encode",): _encode,
    ("decode.decode", "bridge.bridge"): _decode,
    (
        "cost.cost",
        "decode.decode_backward_members",
        "decode.decode_backward_queries",
        "encode.encode_backward",
    ): _gradients,
    ("adam.adam",): _adam,
}
