"""How far a kernel is from its definition.

What the kernels are tried on: a small world, with random parameters for each task.

The kernels that train a rating model: one block, once through.

The kernels that train a ranking model: histories in time order, once there and back.

The kernels that serve a model in use: sums and states that live, distributions and scores.

The kernels that measure a ranking: which items are tested, among which, and their ranks.

The compiled kernels against their definitions, on this machine: each once, on a small problem.

`tests/doctor` sees to it that every kernel that the rest of the house calls is looked at here.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import BehaviourMatrix, ItemRows, Timeline
from cfuica.doctor.installation import Check
from cfuica.inference.recommend import best
from cfuica.inference.scores import worst_rating
from cfuica.live.context_sums import RunningSums, hidden_vectors
from cfuica.live.live_rows import GrowingArray, LiveRows
from cfuica.model.calibration import Calibration
from cfuica.model.layers import ACTIVATION_CODES, NO_GAIN, Bridge, Gain, activate
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import SideName
from cfuica.model.prediction import expected_rating
from cfuica.model.side import Side
from cfuica.ops import encode, introsort, reference, running_sums, sampling, topk
from cfuica.ops.runtime import run_rows
from cfuica.settings import RankingSettings, Settings
from cfuica.training.autograd import autograd_catalogue, autograd_cost_and_gradients
from cfuica.training.batches import Block, cut_block
from cfuica.training.catalogue_softmax import catalogue_cost_and_gradients
from cfuica.training.gradients import GradientBuffers, Gradients, block_cost_and_gradients
from cfuica.training.optimizer import Adam
from cfuica.training.orderings import UserBlocks, follow

USERS, ITEMS, LABELS, BEHAVIOURS = 60, 50, 5, 900
SECONDS = 300
"""In which everything happens: some behaviours of a user have the same time."""


@dataclass(frozen=True)
class Problem:
    """Behaviours as a matrix and in time order, a rating model and a ranking model of them."""

    matrix: BehaviourMatrix
    timeline: Timeline
    model: CoAutoregressive
    ranking_model: CoAutoregressive
    users: np.ndarray
    """Of the block of the matrix; the others are open."""
    items: np.ndarray

    @classmethod
    def make(cls) -> Problem:
        """Always the same, and without a kernel."""
        rng = np.random.default_rng(0)
        cells = rng.permutation(USERS * ITEMS)[:BEHAVIOURS]
        users, items = (cells // ITEMS).astype(np.int32), (cells % ITEMS).astype(np.int32)
        labels = rng.integers(0, LABELS, BEHAVIOURS).astype(np.uint8)
        matrix = BehaviourMatrix.from_triplets(
            users, items, labels, n_users=USERS, n_items=ITEMS, n_labels=LABELS
        )
        halves = [rng.permutation(size).astype(np.int32)[: size // 2] for size in (USERS, ITEMS)]
        model = CoAutoregressive.initial(
            n_users=USERS,
            n_items=ITEMS,
            n_labels=LABELS,
            hidden={"users": 17, "items": 8},
            gains={"users": Gain(0.5, 15.0)},
        )
        ranking_model = CoAutoregressive.initial(
            n_users=USERS,
            n_items=ITEMS,
            n_labels=1,
            hidden={"users": 8, "items": 17},
            share=False,
            remembers=True,
        )
        for each in (model, ranking_model):
            for tensor in each.tensors().values():
                tensor.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(tensor.shape))))
        times = rng.integers(0, SECONDS, BEHAVIOURS)
        timeline = Timeline.of(users, items, times, n_users=USERS, n_items=ITEMS)
        return cls(matrix, timeline, model, ranking_model, *halves)

    @cached_property
    def block(self) -> Block:
        """The behaviours between `users` and `items`, and all those of each with the others."""
        return cut_block(
            self.matrix,
            self.users,
            self.items,
            sides=("users", "items"),
            open_users=~np.isin(np.arange(USERS), self.users),
            open_items=~np.isin(np.arange(ITEMS), self.items),
            keep_users=1.0,
            keep_items=1.0,
            key=0,
            scale=1.0,
        )

    @cached_property
    def label_ui(self) -> np.ndarray:
        """(N, M) the label of every pair, -1 where there is none."""
        label_ui = np.full((USERS, ITEMS), -1)
        user, item, label = self.matrix.triplets()
        label_ui[user, item] = label
        return label_ui


Differences = dict[str, float]
"""What a step finds: of each kernel, `module.function`, the largest difference from its definition;
of one that computes whole numbers, how much is wrong."""
Steps = dict[tuple[str, ...], "Callable[[Problem], Differences]"]
"""The kernels that are looked at in one pass, and the pass."""


def difference(found: Tensor | np.ndarray | float, expected: Tensor | np.ndarray | float) -> float:
    """The largest difference, as a share of the largest number expected."""
    one, other = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return float(np.abs(one - other).max() / np.abs(other).max())


def worst(differences: Iterable[float]) -> float:
    """The largest; not a number where any of them is none, which Python's max may pass over."""
    return float(np.max(list(differences)))


def unequal(*pairs: tuple[Any, Any]) -> float:
    """How many of the pairs of arrays are not the same."""
    return float(sum(not np.array_equal(found, expected) for found, expected in pairs))


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
    wrong = dict.fromkeys(("sampling.contexts", "sampling.transpose", "sampling.group"), 0.0)
    contexts: dict[SideName, tuple[np.ndarray, np.ndarray]] = {
        "users": (user, item_in & ~user_in),
        "items": (item, user_in & ~item_in),
    }
    for side, (members, is_context) in contexts.items():
        context, grouping = problem.block.contexts[side], pairs.seen_by(side).by_query
        entries = members[is_context].astype(np.int64) * LABELS + label[is_context]
        wrong["sampling.contexts"] += unequal((np.sort(context.bag.entries), np.sort(entries)))
        queries = np.repeat(np.arange(context.bag.size), np.diff(context.bag.offsets))
        by_entry = np.argsort(context.bag.entries, kind="stable")
        wrong["sampling.transpose"] += unequal((context.queries_of_entry.order, queries[by_entry]))
        by_query = np.argsort(pairs.seen_by(side).query_of_pair, kind="stable")
        wrong["sampling.group"] += unequal((grouping.order, by_query))
    return {"sampling.observed_pairs": float(len(expected.symmetric_difference(found))), **wrong}


def _whole(problem: Problem) -> Differences:
    """All of every user but one behaviour, and which pairs there are."""
    rows, label_ui = problem.matrix.by_user, problem.label_ui
    everyone, without = np.arange(USERS, dtype=np.int32), rows.members[rows.offsets[:-1]]
    offsets, entries = sampling.whole_contexts(
        rows.offsets, rows.members, rows.labels, everyone, without, LABELS
    )
    is_left_ui = (label_ui >= 0) & (np.arange(ITEMS) != without[:, None])
    user, item = np.nonzero(is_left_ui)
    users_p, items_p = (each.astype(np.int32).ravel() for each in np.indices(label_ui.shape))
    found = sampling.is_observed(rows.offsets, rows.members, users_p, items_p)
    return {
        "sampling.whole_contexts": unequal(
            (np.diff(offsets), is_left_ui.sum(1)),
            (entries, item * LABELS + label_ui[user, item]),
        ),
        "sampling.is_observed": unequal((found, label_ui.ravel() >= 0)),
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
        expected += reference.decode(
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
        "bridge.bridge": difference(asked_qku, reference.bridge(hidden["items"], table_hku)),
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
            stored = reference.differences(used) if shared else used
            stored = reference.adam(
                stored,
                torch.zeros_like(stored),
                torch.zeros_like(stored),
                grad + 2 * penalty * stored,
                rate=rate,
                beta1=settings.beta1,
                beta2=settings.beta2,
                epsilon=settings.epsilon,
            )
            yield f"{side}.{key}", reference.accumulate(stored) if shared else stored


def _hidden(problem: Problem, name: SideName) -> Tensor:
    """(Q, H) of the block's queries, by definition."""
    side = problem.model.sides[name]
    return activate(side.sums(problem.block.contexts[name].bag), side.activation)


RATING_STEPS: Steps = {
    ("sampling.observed_pairs", "sampling.contexts", "sampling.transpose", "sampling.group"): _draw,
    ("sampling.whole_contexts", "sampling.is_observed"): _whole,
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


SETTINGS = RankingSettings(
    memory=True,
    cost="sampled-softmax",
    choices=20,
    drop_behaviours=0.2,
    drop_users=0.5,
    batch_users=20,
)


def _histories(problem: Problem) -> Differences:
    """Backwards and forwards, against arrays of each user; all of every other user is left out."""
    timeline, wrong = problem.timeline, 0.0
    users = np.arange(USERS, dtype=np.int32)[::-1].copy()
    drop_u = (users % 2).astype(np.float64)
    for backwards in (False, True):
        together = not backwards
        found, places = follow(
            timeline, users, drop_u, np.uint64(7), together=together, backwards=backwards
        )
        of_users = [np.arange(*timeline.offsets[user : user + 2]) for user in users]
        in_order = [own[::-1] if backwards else own for own in of_users]
        moments = [_moments(timeline.times[own], together) for own in in_order]
        expected = np.concatenate(in_order)
        is_left_out = np.repeat(drop_u, [len(own) for own in in_order]) > 0
        wrong += unequal(
            (places, expected),
            (found.entries, np.where(is_left_out, -1, timeline.items[expected])),
            (found.moments, np.concatenate(moments)),
            (np.diff(found.offsets), [len(own) for own in in_order]),
            (np.diff(found.moment_offsets), [own[-1] + 2 for own in moments]),
        )
    return {"sampling.histories": wrong}


def _moments(times: np.ndarray, together: bool) -> np.ndarray:
    begins = np.append(True, (not together) | (times[1:] != times[:-1]))
    return np.cumsum(begins) - 1


def _others(problem: Problem) -> Differences:
    """What users never did, and what was done on items before a time."""
    timeline = problem.timeline
    users, counts = np.arange(USERS, dtype=np.int32), np.arange(USERS) % 5
    odd = np.arange(1, ITEMS, 2, dtype=np.int32)
    user_n, item_n = sampling.never_done(
        timeline.offsets, timeline.items, users, counts, odd, ITEMS, np.uint64(3)
    )
    in_time = np.lexsort((timeline.times, timeline.items))
    done = timeline.by_item()
    members, times = timeline.users[in_time], timeline.times[in_time]
    is_open, half = users % 3 > 0, SECONDS // 2
    offsets, entries = sampling.earlier_contexts(
        done.offsets, members, times, np.arange(ITEMS, dtype=np.int32), is_open, half
    )
    is_context = (times < half) & is_open[members]
    sizes = np.bincount(timeline.items[in_time][is_context], minlength=ITEMS)
    return {
        "sampling.never_done": unequal((user_n, np.repeat(users, counts)))
        + float(np.count_nonzero((problem.label_ui[user_n, item_n] >= 0) | (item_n % 2 == 0))),
        "sampling.earlier_contexts": unequal(
            (np.diff(offsets), sizes), (entries, members[is_context])
        ),
    }


def _scan(problem: Problem) -> Differences:
    side = problem.ranking_model.sides["items"]
    histories = _block(problem, SETTINGS).contexts["items"].bag
    expected_qh = side.sums(histories)
    found = side.encode(histories)
    return {
        "scan.scan": worst(
            (
                difference(found.sums_qh, expected_qh),
                difference(found.values_qh, activate(expected_qh, side.activation)),
            )
        )
    }


def _layer(problem: Problem) -> Differences:
    """Any hidden vectors and any layer will do."""
    rng = np.random.default_rng(5)
    hidden_qh, into_hu, bias_u, back_uh = (
        torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
        for shape in ((20, 6), (6, 9), (9,), (9, 6))
    )
    side = replace(
        problem.ranking_model.sides["items"], into_hu=into_hu, bias_u=bias_u, back_uh=back_uh
    )
    expected_qh = reference.deepen(hidden_qh, into_hu, bias_u, back_uh)
    return {"layer.deepen": difference(side.deepened(hidden_qh), expected_qh)}


def _catalogue(problem: Problem) -> Differences:
    """A choice among some items, forward and backward."""
    model, block = problem.ranking_model, _block(problem, SETTINGS)
    cost, ours = catalogue_cost_and_gradients(model, block, factor=1.0, buffers=GradientBuffers())
    expected_cost, theirs = autograd_catalogue(model, block, factor=1.0)
    mine, other = ours["items"], theirs["items"]
    rows = np.flatnonzero(mine.group_of_member >= 0)
    groups = mine.group_of_member[rows]
    return {
        "softmax.softmax_slopes": worst(
            (
                difference(cost, expected_cost),
                difference(mine.decoder_gkh[groups], other.decoder_gkh[rows]),
                difference(mine.decoder_bias_gk[groups], other.decoder_bias_gk[rows]),
            )
        ),
        "scan.scan_backward": worst(
            (
                difference(mine.encoder_nkh, other.encoder_nkh),
                difference(mine.more["log_times_h"], other.more["log_times_h"]),
            )
        ),
    }


def _bernoulli(problem: Problem) -> Differences:
    """Pairs beside pairs that did not happen, of half of the items, from units that forget nothing:
    the cost, its slopes, which b adds up, and those that W has from the moments after."""
    block = _block(problem, SETTINGS.replaced(cost="bernoulli", batch_items=ITEMS // 2))
    sides = problem.ranking_model.sides
    model = CoAutoregressive({**sides, "items": replace(sides["items"], log_times_h=None)})
    cost, ours = block_cost_and_gradients(
        model, block, factor=1.0, ordinal_weight=None, share=False, buffers=GradientBuffers()
    )
    expected_cost, theirs = autograd_cost_and_gradients(
        model, block, factor=1.0, ordinal_weight=None, share=False
    )
    mine, other = ours["items"], theirs["items"]
    rows = np.flatnonzero(mine.group_of_member >= 0)
    bias = mine.decoder_bias_gk[mine.group_of_member[rows]]
    return {
        "cost.bernoulli": worst(
            (difference(cost, expected_cost), difference(bias, other.decoder_bias_gk[rows]))
        ),
        "scan.later_sums": difference(mine.encoder_nkh, other.encoder_nkh),
    }


def _block(problem: Problem, settings: RankingSettings) -> Block:
    return UserBlocks(problem.timeline, problem.timeline.by_item(), settings).draw(0)


RANKING_STEPS: Steps = {
    ("sampling.histories",): _histories,
    ("sampling.never_done", "sampling.earlier_contexts"): _others,
    ("scan.scan",): _scan,
    ("layer.deepen",): _layer,
    ("softmax.softmax_slopes", "scan.scan_backward"): _catalogue,
    ("cost.bernoulli", "scan.later_sums"): _bernoulli,
}


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
        "running_sums.repack": unequal(
            (packed.offsets, rows.offsets),
            (packed.members, rows.members),
            (packed.labels, rows.labels),
        ),
        "running_sums.find": unequal(
            (LiveRows.of(rows).find(users_p, items_p), problem.label_ui.ravel())
        ),
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
        return reference.encode(
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
    running_sums.shift(rows_rh.numpy(), shifted_h, int(entries[0]), 1)
    moved_h = sums_by_definition[0] - rows_rh[entries[0]] + rows_rh[1]
    return {
        "running_sums.fill": difference(sums_qh, sums_by_definition),
        "running_sums.hidden_vectors": difference(hidden_qh, activate(remaining, side.activation)),
        "running_sums.shift": difference(shifted_h, moved_h),
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
        running_sums.residuals,
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
        "running_sums.residuals": difference(
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
        encode.advance, PEOPLE, rows_rh, offsets, entries, decay_h.numpy(), states_uh, work=offsets
    )
    expected_uh = _after(side, offsets, entries)
    states_bh = np.empty((n, len(decay_h)), np.float32)
    run_rows(encode.without_each, PEOPLE, rows_rh, offsets, entries, decay_h.numpy(), states_bh)
    # Behaviour e is left out (-1) of the e-th of n copies.
    user_b = np.repeat(np.arange(PEOPLE), np.diff(offsets))
    copies = [np.where(np.arange(n) == e, -1, entries)[user_b == user_b[e]] for e in range(n)]
    ends = np.append(0, np.cumsum([len(copy) for copy in copies]))
    hidden_uh = np.empty_like(states_uh)
    run_rows(
        encode.read,
        PEOPLE,
        expected_uh.numpy(),
        scale_h.numpy(),
        side.encoder_bias_h.numpy(),
        ACTIVATION_CODES[side.activation],
        hidden_uh,
    )
    read_uh = activate(side.encoder_bias_h + scale_h * expected_uh, side.activation)
    return {
        "encode.advance": difference(states_uh, expected_uh),
        "encode.read": difference(hidden_uh, read_uh),
        "encode.without_each": difference(states_bh, _after(side, ends, np.concatenate(copies))),
    }


def _after(side: Side, offsets: np.ndarray, entries: np.ndarray) -> Tensor:
    """(U, H) the states after histories, none of them empty, by definition."""
    decay_h, _ = side.decay_and_scale()
    two_moments = 2 * torch.arange(len(offsets))
    states_qh = reference.scan(
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
    run_rows(running_sums.products, ITEMS, vectors_mh, asked_bh, out_mb)
    run_rows(running_sums.paired, PEOPLE, vectors_mh[:PEOPLE], asked_bh, out_p)
    members_bc = np.arange(2 * PEOPLE, dtype=np.int32).reshape(PEOPLE, 2)
    out_bc = np.empty((PEOPLE, 2), np.float32)
    run_rows(running_sums.chosen, PEOPLE, vectors_mh, members_bc, asked_bh, out_bc)
    chosen_bc = expected_mb[members_bc, np.arange(PEOPLE)[:, None]]
    return {
        "running_sums.products": difference(out_mb, expected_mb),
        "running_sums.paired": difference(out_p, np.diagonal(expected_mb)),
        "running_sums.chosen": difference(out_bc, chosen_bc),
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
    calibrated_pk = reference.calibrate(
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


LIVE_STEPS: Steps = {
    ("running_sums.repack", "running_sums.find"): _rows,
    ("running_sums.fill", "running_sums.hidden_vectors", "running_sums.shift"): _sums,
    ("running_sums.residuals",): _own_bias,
    ("encode.advance", "encode.read", "encode.without_each"): _states,
    ("running_sums.products", "running_sums.paired", "running_sums.chosen"): _products,
    ("calibrate.calibrate", "score.expected", "score.worst", "select.best"): _scores,
}


DRAWS, WANTED, RELEVANT = 2, ITEMS // 2, 2


def _ranks(problem: Problem) -> Differences:
    """Whole numbers as scores, so that many tie: irrelevant items stand above relevant ones."""
    scores_bm = np.random.default_rng(2).integers(0, 9, (USERS, ITEMS)).astype(np.float32)
    relevant_bt = np.argsort(problem.label_ui, 1)[:, :RELEVANT].astype(np.int32)  # not done
    offsets = np.arange(USERS + 1, dtype=np.int64) * RELEVANT
    seen, allowed_m = problem.matrix.by_user, np.arange(ITEMS) % 5 > 0
    ranks_t, candidates_b = np.empty((2, USERS * RELEVANT), np.int64)
    candidates_b = candidates_b[:USERS]
    run_rows(
        topk.among_all,
        USERS,
        scores_bm,
        allowed_m,
        seen.offsets,
        seen.members,
        offsets,
        relevant_bt.ravel(),
        ranks_t,
        candidates_b,
    )
    is_other_bm = (problem.label_ui < 0) & allowed_m
    is_other_bm[np.arange(USERS)[:, None], relevant_bt] = False
    others = [row[is_other] for row, is_other in zip(scores_bm, is_other_bm, strict=True)]
    own_bt = np.take_along_axis(scores_bm, relevant_bt, 1)
    expected = [_by_sorting(*each) for each in zip(own_bt, others, strict=True)]

    scores_bdc = scores_bm.reshape(USERS, DRAWS, -1)
    count_bd = 3 + np.arange(USERS * DRAWS).reshape(USERS, DRAWS) % 20
    ranks_dt = np.empty((DRAWS, USERS * RELEVANT), np.int64)
    run_rows(topk.among_candidates, USERS, scores_bdc, count_bd, offsets, ranks_dt)
    drawn = [
        [
            _by_sorting(score_c[:RELEVANT], score_c[RELEVANT:count])
            for score_c, count in zip(scores_bdc[:, d], count_bd[:, d], strict=True)
        ]
        for d in range(DRAWS)
    ]
    return {
        "topk.among_all": unequal(
            (ranks_t, np.ravel(expected)), (candidates_b, is_other_bm.sum(1) + RELEVANT)
        ),
        "topk.among_candidates": unequal((ranks_dt, np.reshape(drawn, (DRAWS, -1)))),
    }


def _by_sorting(relevant: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Ranks, ascending: scores downwards, irrelevant ones first among equals."""
    is_relevant = np.repeat([True, False], [len(relevant), len(others)])
    order = np.lexsort((is_relevant, -np.append(relevant, others)))
    return np.flatnonzero(is_relevant[order]) + 1


def _absent(problem: Problem) -> Differences:
    """Distinct items that a user has not done; all of them where they are too few."""
    done = ItemRows(problem.matrix.by_user.offsets, problem.matrix.by_user.members)
    nearly_all = ItemRows.of_pairs(np.zeros(ITEMS - 3), np.arange(ITEMS - 3), USERS)
    done = done.union(nearly_all)
    keys_bd = np.arange(USERS * DRAWS, dtype=np.uint64).reshape(USERS, DRAWS)
    out_bdc = np.empty((USERS, DRAWS, WANTED), np.int32)
    run_rows(sampling.draw, USERS, done.offsets, done.members, ITEMS, keys_bd, out_bdc)
    wrong = 0
    for b, drawn_dc in enumerate(out_bdc):
        own = set(done.members[done.offsets[b] : done.offsets[b + 1]].tolist())
        for drawn in drawn_dc:
            found = drawn[drawn >= 0].tolist()
            wrong += len(found) != min(WANTED, ITEMS - len(own))
            wrong += len(set(found) - own) != len(found) or max(found) >= ITEMS
    return {"sampling.draw": float(wrong)}


def _last(problem: Problem) -> Differences:
    """A short row's last of equal times is the later one; in a long one all times differ here."""
    rng = np.random.default_rng(3)
    short, long = rng.integers(0, 3, (USERS, introsort.SMALL)), rng.permutation(1000)
    times = np.append(short, long)
    offsets = np.append(np.arange(USERS + 1) * introsort.SMALL, len(times))
    last = np.empty(USERS + 1, np.int64)
    run_rows(introsort.last_of_each, USERS + 1, offsets, times, last)
    expected = [np.flatnonzero(row == row.max())[-1] for row in (*short, long)]
    return {"introsort.last_of_each": unequal((last, offsets[:-1] + expected))}


EVALUATION_STEPS: Steps = {
    ("topk.among_all", "topk.among_candidates"): _ranks,
    ("sampling.draw",): _absent,
    ("introsort.last_of_each",): _last,
}


TOLERANCE = 1e-4
"""Largest difference, as a share of the largest number: float32 sums in another order."""
ADVICE = (
    "Results of this machine cannot be trusted: delete the folder of numba's cache, "
    "run cfuica doctor again, and if it persists report it with the output of cfuica doctor --json."
)
# What a step makes use of stands before it, so that the first wrong one is to blame.
STEPS: Steps = {
    **RATING_STEPS,
    **RANKING_STEPS,
    **LIVE_STEPS,
    **EVALUATION_STEPS,
}


def check_kernels() -> list[Check]:
    """A verdict per kernel; where several run in one pass, its time stands with the first.

    Times include compiling where numba's cache is empty.
    """
    checks: list[Check] = []
    problem = Problem.make()
    for names, step in STEPS.items():
        start = time.perf_counter()
        try:
            differences = step(problem)
        except Exception as error:  # whatever it is, it is what the doctor was called for
            checks.extend(_failed(name, error) for name in names)
        else:
            times = (time.perf_counter() - start, *[None] * len(names))
            checks.extend(
                _verdict(name, differences[name], seconds)
                for name, seconds in zip(names, times, strict=False)
            )
    return checks


def _verdict(name: str, difference: float, seconds: float | None) -> Check:
    ok = difference <= TOLERANCE  # not a number is not ok
    found = f"within {difference:.0e} of its definition"
    return Check(f"kernel {name}", ok, found, "" if ok else ADVICE, seconds)


def _failed(name: str, error: Exception) -> Check:
    first_line = (str(error).splitlines() or [""])[0]
    return Check(f"kernel {name}", False, f"{type(error).__name__}: {first_line}", ADVICE)
