"""Exact counterfactuals of one rating prediction: its value without parts of its context.

An interaction of the user enters a prediction through the user's sum alone (IIC), one of another
user through the item's sum alone (UUC). Removing it subtracts its row of W, applies f and decodes;
the other side stays as it is. The result is what the model would predict had it never observed the
interaction. It holds *given the parameters*, which were learned with the interaction, and it is not
causal. Changes do not add up, because f is not linear.

Other users are never shown one by one: `fold` joins neighbouring labels until each group has at
least `FEWEST_RATERS` raters.

Shape suffixes: n interactions, g groups of labels, q sums with something removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from cfuica.live.context_sums import hidden_vectors
from cfuica.model.calibration import expected_rating
from cfuica.model.pairs import SIDES, Pairs
from cfuica.ops import running_sums
from cfuica.ops.runtime import run_rows

if TYPE_CHECKING:
    from torch import Tensor

    from cfuica.live.events import UserProfile
    from cfuica.live.rating_state import RatingState
    from cfuica.model.pairs import SideName
    from cfuica.model.side import Side
# A smaller group of users is not shown, so that no single user's rating can be inferred.
FEWEST_RATERS = 5


def fold(counts_k: NDArray[np.integer]) -> list[int]:
    """The first label of each group of neighbouring labels, ascending; the first is label 0.

    `counts_k` (K) are the raters of each label. Every group has at least `FEWEST_RATERS` of them,
    or there is one group only. The smallest group is folded first, into the smaller one of its
    neighbours; of equal ones, the one with lower labels.
    """
    starts = list(range(len(counts_k)))
    counts = [int(count) for count in counts_k]
    while len(counts) > 1 and min(counts) < FEWEST_RATERS:
        at = counts.index(min(counts))
        neighbours = [place for place in (at - 1, at + 1) if 0 <= place < len(counts)]
        into = min(neighbours, key=lambda place: counts[place])
        lower, upper = min(at, into), max(at, into)
        counts[lower] += counts.pop(upper)
        starts.pop(upper)
    return starts


def may_be_shown(users: int) -> bool:
    """Whether the effect of so many other users may be shown: of none, or of enough."""
    return not 0 < users < FEWEST_RATERS


@dataclass(frozen=True)
class Contribution:
    """What one side contributes: the prediction without all of its interactions (h = f(c))."""

    interactions: int
    expected_without: float


@dataclass(frozen=True)
class LabelGroup:
    """The other users who gave the item one of the labels `first` to `last`, removed together."""

    first: int
    last: int
    raters: int  # At least `FEWEST_RATERS`, unless this is the group of all labels.
    expected_without: float


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """One prediction, and what it would be without parts of its context."""

    logits_k: NDArray[np.float32]  # (K,) of the prediction.
    expected: float  # The expected rating with the whole context.
    # (n,) the history that the items side reads, ascending; empty where the model has none.
    items: NDArray[np.int32]
    labels: NDArray[np.uint8]  # (n,)
    # (n,) the expected rating without each interaction of the history.
    expected_without: NDArray[np.float64]
    contributions: dict[SideName, Contribution]  # Of the sides that the model has.
    # The other users' ratings of the item by label; none where the model has no users side.
    groups: list[LabelGroup]


def counterfactuals(
    state: RatingState, profile: UserProfile, item: int, values_k: NDArray[np.floating]
) -> Counterfactuals:
    """The counterfactuals of one pair; `values_k` (ascending) are the ratings of the labels.

    An interaction of the pair itself is removed first, from the history and from the raters.
    """
    network = state.network
    others = profile.items != item
    items, labels = profile.items[others], profile.labels[others]
    users, given = state.history("items", item)
    others = users != (-1 if profile.user is None else profile.user)
    users, given = users[others], given[others]
    counts_k = np.bincount(given, minlength=network.n_labels)
    bounds = [*fold(counts_k), network.n_labels]

    hidden: dict[SideName, Tensor] = {}
    if "users" in network.sides:
        hidden["users"] = _without_groups(state, users, given, bounds)
    else:
        bounds = []
    if "items" in network.sides:
        hidden["items"] = _without_each(state, profile, item, items, labels)
    else:  # the model does not read the history
        items, labels = items[:0], labels[:0]
    logits = _logits(state, profile, item, hidden)
    _add_own_biases(state, profile, item, logits)

    # In float64, so that differences of these numbers are not rounded once more.
    expected = {
        name: expected_rating(own_qk[None], values_k)[0].astype(np.float64)
        for name, own_qk in logits.items()
    }
    interactions: dict[SideName, int] = {"users": users.size, "items": items.size}
    return Counterfactuals(
        logits_k=logits["users"][0],
        expected=float(expected["users"][0]),
        items=items,
        labels=labels,
        expected_without=expected["items"][1:-1],
        contributions={
            name: Contribution(interactions[name], float(expected[name][-1])) for name in hidden
        },
        groups=[
            LabelGroup(first, end - 1, int(counts_k[first:end].sum()), value)
            for (first, end), value in zip(
                pairwise(bounds), expected["users"][1:-1].tolist(), strict=True
            )
        ],
    )


def _without_each(
    state: RatingState,
    profile: UserProfile,
    item: int,
    items: NDArray[np.int32],
    labels: NDArray[np.uint8],
) -> Tensor:
    """Hidden vectors of the user (n + 2, H): with all, without each interaction, without any."""
    side, rows = state.network.sides["items"], state.rows("items")
    n_labels = state.network.n_labels
    sums_h = profile.sums_h.copy()
    for own_label in profile.labels[profile.items == item]:
        running_sums.shift(
            _encoder_rows(side), sums_h, int(rows[item]) * n_labels + int(own_label), -1
        )
    sums_qh = np.stack(
        (sums_h, _sums(side, rows, items[:0], labels[:0], np.zeros(1, np.int64))[-1])
    )
    places, left_out = np.zeros(items.size + 2, np.int64), np.full(items.size + 2, -1)
    places[-1] = 1
    left_out[1:-1] = rows[items].astype(np.int64) * n_labels + labels
    sizes = np.full(items.size + 2, items.size - 1)
    sizes[0], sizes[-1] = items.size, 0
    return torch.from_numpy(hidden_vectors(side, sums_qh, places, left_out, sizes))


def _without_groups(
    state: RatingState, users: NDArray[np.int32], labels: NDArray[np.uint8], bounds: list[int]
) -> Tensor:
    """Hidden vectors of the item (G + 2, H): with all, without each group, without any."""
    side = state.network.sides["users"]
    order = np.argsort(labels, kind="stable")
    users, labels = users[order], labels[order]
    # Label by label, and the last bound is beyond all labels.
    offsets = labels.searchsorted(bounds)
    filled_gh = _sums(side, state.rows("users"), users, labels, offsets)
    bias_h = filled_gh[-1]
    taken_gh = filled_gh[:-1] - bias_h
    sums_h = bias_h + taken_gh.sum(0)
    sums_qh = np.vstack((sums_h, sums_h - taken_gh, bias_h))
    counts_g = np.diff(offsets)
    sizes = np.concatenate(([users.size], users.size - counts_g, [0]))
    everywhere, nothing = np.arange(len(sums_qh)), np.full(len(sums_qh), -1)
    return torch.from_numpy(hidden_vectors(side, sums_qh, everywhere, nothing, sizes))


def _sums(
    side: Side,
    rows: NDArray[np.integer],
    indices: NDArray[np.int32],
    labels: NDArray[np.uint8],
    offsets: NDArray[np.integer],
) -> NDArray[np.float64]:
    """(G + 1, H) sums of Eqns. (3), (4) of compressed rows of interactions; the last one is c."""
    sums_gh = np.empty((len(offsets), len(side.encoder_bias_h)))
    every = np.arange(len(offsets))
    run_rows(
        running_sums.fill,
        len(offsets),
        _encoder_rows(side),
        side.encoder_bias_h.numpy(),
        offsets,
        np.append(np.diff(offsets), 0),
        indices,
        labels,
        rows,
        side.encoder_nkh.shape[1],
        every,
        every,
        sums_gh,
    )
    return sums_gh


def _logits(
    state: RatingState, profile: UserProfile, item: int, hidden: dict[SideName, Tensor]
) -> dict[SideName, NDArray[np.float32]]:
    """For each side the logits (Q, K) of its hidden vectors (Q, H) in turn.

    The other side's vector is its first one, with all its interactions. A side that the model does
    not have leaves one row, that of the whole context.
    """
    items_q, users_q = (
        np.arange(len(hidden[name]) if name in hidden else 1, dtype=np.int32) for name in SIDES
    )
    pairs = Pairs.between(
        np.full(users_q.size, profile.row, np.int32),
        np.full(items_q.size, state.rows("items")[item], np.int32),
        np.concatenate((np.zeros_like(items_q), users_q)),
        np.concatenate((items_q, np.zeros_like(users_q))),
    )
    logits_pk = state.network.logits(pairs, hidden).numpy()
    return {"users": logits_pk[: items_q.size], "items": logits_pk[items_q.size :]}


def _add_own_biases(
    state: RatingState, profile: UserProfile, item: int, logits: dict[SideName, NDArray[np.float32]]
) -> None:
    """Add a cold-start user's own bias in place, each from the history without the interaction."""
    if "items" not in state.network.sides:
        return
    profile = state.without(profile, item)
    removed = np.arange(-1, len(profile.items))
    bias_qk = state.own_bias(profile, removed)
    nothing = np.zeros((1, state.network.n_labels), np.float32)  # without any interaction
    logits["items"] += np.concatenate((bias_qk, nothing))
    logits["users"] += bias_qk[:1]


def _encoder_rows(side: Side) -> NDArray[np.float32]:
    """W as n * K rows."""
    rows_rh: NDArray[np.float32] = side.encoder_nkh.flatten(0, 1).numpy()
    return rows_rh
