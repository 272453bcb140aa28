"""The kernels that train a ranking model: histories in time order, once there and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from cfuica.doctor.differences import Differences, Steps, difference, unequal, worst
from cfuica.doctor.problem import ITEMS, SECONDS, USERS, Problem
from cfuica.kernels import definition, draw
from cfuica.learning.autograd import autograd_catalogue, autograd_cost_and_gradients
from cfuica.learning.block import Block
from cfuica.learning.catalogue import catalogue_cost_and_gradients
from cfuica.learning.gradients import GradientBuffers, block_cost_and_gradients
from cfuica.learning.orderings import UserBlocks, follow
from cfuica.model.activation import activate
from cfuica.model.conditional import CoAutoregressive
from cfuica.settings import RankingSettings

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
    return {"draw.histories": wrong}


def _moments(times: np.ndarray, together: bool) -> np.ndarray:
    begins = np.append(True, (not together) | (times[1:] != times[:-1]))
    return np.cumsum(begins) - 1


def _others(problem: Problem) -> Differences:
    """What users never did, and what was done on items before a time."""
    timeline = problem.timeline
    users, counts = np.arange(USERS, dtype=np.int32), np.arange(USERS) % 5
    odd = np.arange(1, ITEMS, 2, dtype=np.int32)
    user_n, item_n = draw.never_done(
        timeline.offsets, timeline.items, users, counts, odd, ITEMS, np.uint64(3)
    )
    in_time = np.lexsort((timeline.times, timeline.items))
    done = timeline.by_item()
    members, times = timeline.users[in_time], timeline.times[in_time]
    is_open, half = users % 3 > 0, SECONDS // 2
    offsets, entries = draw.earlier_contexts(
        done.offsets, members, times, np.arange(ITEMS, dtype=np.int32), is_open, half
    )
    is_context = (times < half) & is_open[members]
    sizes = np.bincount(timeline.items[in_time][is_context], minlength=ITEMS)
    return {
        "draw.never_done": unequal((user_n, np.repeat(users, counts)))
        + float(np.count_nonzero((problem.label_ui[user_n, item_n] >= 0) | (item_n % 2 == 0))),
        "draw.earlier_contexts": unequal((np.diff(offsets), sizes), (entries, members[is_context])),
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
    expected_qh = definition.deepen(hidden_qh, into_hu, bias_u, back_uh)
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


STEPS: Steps = {
    ("draw.histories",): _histories,
    ("draw.never_done", "draw.earlier_contexts"): _others,
    ("scan.scan",): _scan,
    ("layer.deepen",): _layer,
    ("softmax.softmax_slopes", "scan.scan_backward"): _catalogue,
    ("cost.bernoulli", "scan.later_sums"): _bernoulli,
}
