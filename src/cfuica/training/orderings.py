"""Minibatches of the ranking model, in the paper's Section "Orderings in Different Tasks".

`UserBlocks` draws a block of users. Each of their interactions is predicted from an IIC context,
which holds the user's interactions that the ordering places before it:

- chronological: the strictly earlier interactions of the user; at test time, all of them.
- inverse: the strictly later ones; the last interaction has none, so at test time all are read too.
- uniform: a random subset of the user's other interactions; at test time, all of them.
- masked: the interactions with the items of other blocks, thinned; at test time, all of them.
- global-time: as chronological, and the UUC context holds only earlier interactions too.

Interactions of weight 0 are context only: they are read as all others, and never predicted.

The UUC context of an item holds the interactions of a random subset of the users outside the block.
In global time a block is a stretch of time, and the context holds the interactions of a random
subset of all users before it. At test time it holds all interactions, which after a split by date
are all earlier ones.

A block may have a group of the items only (B_I): targets, candidates and UUC contexts are of these.
Every block of users is then drawn with every group; IIC contexts are whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cfuica.data.matrix import LabelledCsr, Timeline
from cfuica.ops import sampling
from cfuica.ops.loss import CatalogueTargets
from cfuica.ops.tables import Bags, Grouping, Histories, Pairs, SideName, SidePairs
from cfuica.settings import RankingSettings
from cfuica.training.batches import Block

# Keys that separate the draws of an epoch from those of a step, and from each other.
_EPOCH = 0xE90C
_MEETINGS = 0x4EE7
_GROUPS = 0x6209
# The share of a history that is left out where negatives are predicted (the authors' experiments).
NEGATIVES_DROP = 0.2
# Uniform: the largest share of a history that is context, so that something is left to predict.
LARGEST_CONTEXT = 0.95
# The largest chance to be left out that is drawn (the authors' experiments).
LARGEST_DROP = 0.8


@dataclass(frozen=True)
class _Positives:
    """P target interactions: their histories, and of each the user's place in the block, the
    position in the history that predicts it, and the item."""

    histories: Histories
    user_p: np.ndarray
    position_p: np.ndarray
    item_p: np.ndarray
    place_p: np.ndarray  # Their places in the timeline.
    seen_item: np.ndarray  # The items of the histories, in their order.
    seen_position: np.ndarray  # Their positions, ascending: at later positions they are seen.

    def only(self, mask_p: np.ndarray) -> _Positives:
        """The targets of a mask; the histories are as they were."""
        return replace(
            self,
            user_p=self.user_p[mask_p],
            position_p=self.position_p[mask_p],
            item_p=self.item_p[mask_p],
            place_p=self.place_p[mask_p],
        )


@dataclass(frozen=True)
class UserBlocks:
    """Draws block number `step`; an epoch has every block of users with every group of items."""

    timeline: Timeline
    by_item: LabelledCsr
    settings: RankingSettings

    def draw(self, step: int) -> Block:
        """A function of the settings' seed and the step."""
        settings = self.settings
        rng = np.random.Generator(np.random.PCG64([settings.seed, step]))
        epoch, number, group = self._meeting(step)
        before = None
        items = self._group(epoch, group)
        if settings.ordering == "global-time":
            users, places, before = self._stretch(epoch, number)
            found = self._prefixes(users, rng)
            found = found.only(np.isin(found.place_p, places, assume_unique=True))
        else:
            users = self._users(epoch, number)
            if settings.ordering == "uniform":
                found = self._random_contexts(users, rng)
            elif settings.ordering == "masked":
                found = self._without(items, users, rng)
            else:
                found = self._prefixes(users, rng)
        weights = self._weights
        if weights is not None:
            found = found.only(weights[found.place_p] > 0)
        if len(items) < self.timeline.n_items:
            found = found.only(self._columns(items)[found.item_p] >= 0)
        labels = np.ones(len(found.item_p), np.uint8)
        weights_p = None if weights is None else weights[found.place_p]
        correction_m = None
        if settings.loss == "bernoulli":
            found = self._with_negatives(users, found, items, rng)
            negatives = len(found.item_p) - len(labels)
            labels = np.append(labels, np.zeros(negatives, np.uint8))
            if weights_p is not None:
                weights_p = np.append(weights_p, np.ones(negatives, np.float32))
        elif settings.loss == "sampled-softmax" and settings.softmax_candidates < len(items):
            items, correction_m = self._sample(found.item_p, rng)
        column_p = self._columns(items)[found.item_p]
        if settings.loss != "bernoulli":
            found, seen, seen_start, seen_stop = self._with_seen(found, items)
        by_user = Grouping(*sampling.group(found.user_p, len(users)))
        by_item = Grouping(*sampling.group(column_p, len(items)))
        by_position = Grouping(*sampling.group(found.position_p, found.histories.n_rows))
        contexts: dict[SideName, Bags | Histories] = {"items": self._own_past(found.histories)}
        if settings.sides != "items":
            contexts["users"] = self._other_users(users, items, rng, before)
        pairs = Pairs(
            users=SidePairs(users, column_p, users[found.user_p], by_user, by_item),
            items=SidePairs(items, found.position_p, found.item_p, by_item, by_position),
        )
        targets = None
        if settings.loss != "bernoulli":
            targets = CatalogueTargets(
                found.histories.position_offsets,
                column_p,
                by_position,
                seen,
                seen_start,
                seen_stop,
                correction_m,
                weights_p,
            )
        return Block(pairs, labels, contexts, scale=1.0, targets=targets, weights=weights_p)

    @cached_property
    def _weights(self) -> np.ndarray | None:
        """(n,) the weights of the targets, whose mean is 1."""
        weights = self.timeline.weights
        if weights is None:
            return None
        scaled: np.ndarray = weights / np.float32(weights[weights > 0].mean(dtype=np.float64))
        return scaled

    def _sample(
        self, item_p: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sampled softmax: the candidates of the block, and the correction of their logits.

        Each item is drawn, or not, for all targets of the block at once. An item that is drawn
        with probability p, and is not the target, stands for 1 / p items like it, so that the
        expectation is the sum of the whole softmax.
        """
        drawn = np.flatnonzero(rng.random(self.timeline.n_items) < self._candidate_probability_m)
        items = np.union1d(drawn, item_p).astype(np.int32)
        correction_m = np.full(len(items), -np.inf, np.float32)
        correction_m[np.searchsorted(items, drawn)] = -np.log(self._candidate_probability_m[drawn])
        return items, correction_m

    @cached_property
    def _candidate_probability_m(self) -> np.ndarray:
        """(M,) the probability that an item is a candidate of a block: in proportion to the root of
        its number of interactions and one, at most 1, and `softmax_candidates` in sum."""
        counts_m = np.bincount(self.timeline.items, minlength=self.timeline.n_items)
        weight_m = np.sqrt(counts_m + 1.0)
        is_sure_m = np.zeros(len(weight_m), np.bool_)
        while True:
            left = self.settings.softmax_candidates - np.count_nonzero(is_sure_m)
            share_m = left * weight_m / weight_m[~is_sure_m].sum()
            if share_m[~is_sure_m].max() <= 1:
                return np.where(is_sure_m, 1.0, share_m)
            is_sure_m |= share_m > 1

    def _columns(self, items: np.ndarray) -> np.ndarray:
        """(M,) the column of each item among these, or -1."""
        column_of_item = np.full(self.timeline.n_items, -1, np.int32)
        column_of_item[items] = np.arange(len(items), dtype=np.int32)
        return column_of_item

    def _with_seen(
        self, found: _Positives, items: np.ndarray
    ) -> tuple[_Positives, np.ndarray, np.ndarray, np.ndarray]:
        """The targets, the columns masked in the softmax, and the first and last of each
        position's."""
        columns = self._columns(items)[found.seen_item]
        positions = found.seen_position[columns >= 0]
        first_positions = found.histories.position_offsets
        start_u = np.searchsorted(positions, first_positions[:-1])
        start_q = np.repeat(start_u, np.diff(first_positions))
        stop_q = np.searchsorted(positions, np.arange(found.histories.n_rows))
        if self._weights is not None:
            # Most positions of a history of views may have no target.
            listed = np.unique(found.position_p)
            start_q, stop_q = start_q[listed], stop_q[listed]
            histories, position_p = found.histories.only(found.position_p)
            found = replace(found, histories=histories, position_p=position_p)
        return found, columns[columns >= 0], start_q, stop_q

    def _meeting(self, step: int) -> tuple[int, int, int]:
        """The epoch of a step, and its block of users and group of items, in a random order."""
        groups = _item_groups(self.timeline, self.settings)
        meetings = blocks_per_epoch(self.timeline, self.settings)
        epoch, number = divmod(step, meetings)
        if groups > 1:  # one group: the blocks themselves are random
            number = int(self._rng(epoch, _MEETINGS).permutation(meetings)[number])
        return epoch, *divmod(number, groups)

    def _group(self, epoch: int, group: int) -> np.ndarray:
        """The items of a group, ascending; groups have about one size and are new in each epoch."""
        n_items = self.timeline.n_items
        groups = _item_groups(self.timeline, self.settings)
        if groups == 1:
            return np.arange(n_items, dtype=np.int32)
        order = self._rng(epoch, _GROUPS).permutation(n_items)
        return np.sort(order[group::groups]).astype(np.int32)

    def _rng(self, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.settings.seed, epoch, purpose]))

    def _users(self, epoch: int, number: int) -> np.ndarray:
        size = self.settings.batch_users
        order = self._rng(epoch, _EPOCH).permutation(_with_interactions(self.timeline))
        return order[number * size :][:size]

    def _stretch(self, epoch: int, number: int) -> tuple[np.ndarray, np.ndarray, int]:
        """The users with an interaction in a stretch of time, the places of these interactions,
        ascending, and the time at which it begins.

        An epoch has every stretch once, in a random order. All have about as many interactions, and
        interactions of the same second are in the same stretch.
        """
        timeline = self.timeline
        stretches = _user_blocks(timeline, self.settings)
        number = int(self._rng(epoch, _EPOCH).permutation(stretches)[number])
        times = timeline.times[self._in_time]
        edges = np.linspace(0, len(times), stretches + 1).astype(np.int64)
        begin, end = (
            len(times) if edge == len(times) else int(np.searchsorted(times, times[edge]))
            for edge in edges[number : number + 2]
        )
        places = np.sort(self._in_time[begin:end])
        users = np.unique(np.searchsorted(timeline.offsets, places, side="right") - 1)
        before = int(times[begin]) if begin < len(times) else 0
        return users.astype(np.int32), places, before

    @cached_property
    def _in_time(self) -> np.ndarray:
        """(n,) the places of all interactions, the earliest first."""
        return np.argsort(self.timeline.times, kind="stable")

    @cached_property
    def _by_item_in_time(self) -> tuple[LabelledCsr, np.ndarray]:
        """The interactions with every item, the earliest first, and their times."""
        timeline = self.timeline
        order = self._in_time[np.argsort(timeline.items[self._in_time], kind="stable")]
        rows = self.by_item
        return LabelledCsr(rows.offsets, timeline.users[order], rows.labels), timeline.times[order]

    def _prefixes(self, users: np.ndarray, rng: np.random.Generator) -> _Positives:
        histories, places = read_histories(
            self.timeline,
            users,
            np.full(len(users), self._drop(self.settings.drop_interactions, rng)),
            _key(rng),
            together=self.settings.ties == "together",
            backwards=self.settings.ordering == "inverse",
        )
        user_p = _owners(histories.offsets)
        position_p = (histories.position_offsets[user_p] + histories.positions).astype(np.int32)
        items = self.timeline.items[places]
        return _Positives(histories, user_p, position_p, items, places, items, position_p)

    def _random_contexts(self, users: np.ndarray, rng: np.random.Generator) -> _Positives:
        """A share t of each history is the context of the rest, which are targets.

        In a uniform ordering every t is as likely for every interaction. An interaction is a target
        with the chance 1 - t, so t must be drawn with a density of 1 / (1 - t).
        """
        rest_u = np.exp(rng.random(len(users)) * math.log(1 - LARGEST_CONTEXT))
        histories, places = at_once(self.timeline, users, rest_u, _key(rng))
        return self._predicted(histories, places, histories.entries < 0)

    def _without(
        self, items: np.ndarray, users: np.ndarray, rng: np.random.Generator
    ) -> _Positives:
        """The interactions with these items are targets, and the others of each user the context.

        Of the context some are left out, with one chance for the block.
        """
        drop_u = np.full(len(users), self._drop(self.settings.drop_interactions, rng))
        histories, places = at_once(self.timeline, users, drop_u, _key(rng))
        is_predicted = self._columns(items)[self.timeline.items[places]] >= 0
        entries = np.where(is_predicted, np.int32(-1), histories.entries)
        return self._predicted(replace(histories, entries=entries), places, is_predicted)

    def _predicted(
        self, histories: Histories, places: np.ndarray, is_predicted: np.ndarray
    ) -> _Positives:
        """These interactions of histories that are read at once, predicted from what is read."""
        owners, items = _owners(histories.offsets), self.timeline.items[places]
        user_p = owners[is_predicted]
        return _Positives(
            histories,
            user_p,
            position_p=histories.last_positions[user_p].astype(np.int32),
            item_p=items[is_predicted],
            place_p=places[is_predicted],
            seen_item=items[~is_predicted],
            seen_position=histories.position_offsets[owners[~is_predicted]],
        )

    def _with_negatives(
        self, users: np.ndarray, found: _Positives, items: np.ndarray, rng: np.random.Generator
    ) -> _Positives:
        """Adds negatives among these items, predicted from whole histories less a fifth, or where
        the items are masked from the context of the positives."""
        masked = self.settings.ordering == "masked"
        histories = found.histories
        if not masked:
            drop_u = np.full(len(users), NEGATIVES_DROP)
            histories = _joined(histories, at_once(self.timeline, users, drop_u, _key(rng))[0])
        counts = self.settings.negatives * np.bincount(found.user_p, minlength=len(users))
        timeline = self.timeline
        user_n, item_n = sampling.unobserved_items(
            timeline.offsets, timeline.items, users, counts, items, timeline.n_items, _key(rng)
        )
        position_n = histories.last_positions[-len(users) :][user_n].astype(np.int32)
        # With a group of the items, most positions have no target.
        histories, position_p = histories.only(np.append(found.position_p, position_n))
        return replace(
            found,
            histories=histories,
            user_p=np.append(found.user_p, user_n),
            position_p=position_p,
            item_p=np.append(found.item_p, item_n),
        )

    def _drop(self, chance: float | None, rng: np.random.Generator) -> float:
        """The chance to be left out; None: drawn as in the authors' experiments."""
        if chance is not None:
            return chance
        if self.settings.ordering == "masked":
            return LARGEST_DROP * float(rng.random())
        return float(min(max(1 - 2 * rng.random(), 0.0), LARGEST_DROP))

    def _own_past(self, histories: Histories) -> Histories:
        rows = self.timeline.n_items + 1
        # Interactions that are left out sort after all rows, and are cut off.
        entries = np.where(histories.entries < 0, rows, histories.entries)
        offsets, order = sampling.group(entries, rows + 1)
        return replace(histories, readers=Grouping(offsets[:-1], order))

    def _other_users(
        self,
        users: np.ndarray,
        items: np.ndarray,
        rng: np.random.Generator,
        before: int | None,
    ) -> Bags:
        n_users = self.timeline.n_users
        is_open = rng.random(n_users) >= self._drop(self.settings.drop_users, rng)
        if before is not None:
            rows, times = self._by_item_in_time
            offsets, entries = sampling.earlier_contexts(
                rows.offsets, rows.indices, times, items, is_open, before
            )
        else:
            is_open[users] = False
            offsets, entries = sampling.contexts(
                self.by_item.offsets,
                self.by_item.indices,
                self.by_item.labels,
                items,
                is_open,
                np.ones(len(items)),
                np.uint64(0),
                1,
            )
        return Bags(offsets, entries, Grouping(*sampling.transpose(offsets, entries, n_users + 1)))


def read_histories(
    timeline: Timeline,
    users: np.ndarray,
    drop_u: np.ndarray,
    key: np.uint64,
    *,
    together: bool,
    backwards: bool = False,
) -> tuple[Histories, np.ndarray]:
    """The histories of these users, and the place of each interaction in the timeline.

    An interaction of user u is left out with the chance `drop_u[u]`.
    """
    offsets, items, times = timeline.offsets, timeline.items, timeline.times
    *arrays, places = sampling.histories(
        offsets, items, times, users, drop_u, key, together, backwards
    )
    return Histories(*arrays), places


def at_once(
    timeline: Timeline,
    users: np.ndarray,
    drop_u: np.ndarray,
    key: np.uint64,
) -> tuple[Histories, np.ndarray]:
    """The same with all interactions of a history at one position: only the one after is used."""
    histories, places = read_histories(timeline, users, drop_u, key, together=False)
    some = np.diff(histories.offsets) > 0
    position_offsets = np.append(0, np.cumsum(1 + some)).astype(np.int64)
    positions = np.zeros_like(histories.positions)
    return replace(histories, positions=positions, position_offsets=position_offsets), places


def whole_histories(timeline: Timeline, users: np.ndarray) -> Histories:
    """The whole histories of these users, to predict their next interactions."""
    return at_once(timeline, users, np.zeros(len(users)), np.uint64(0))[0]


def blocks_per_epoch(timeline: Timeline, settings: RankingSettings) -> int:
    """The number of blocks that have every user once with every item."""
    return _user_blocks(timeline, settings) * _item_groups(timeline, settings)


def _user_blocks(timeline: Timeline, settings: RankingSettings) -> int:
    return max(1, math.ceil(len(_with_interactions(timeline)) / settings.batch_users))


def _item_groups(timeline: Timeline, settings: RankingSettings) -> int:
    if settings.batch_items is None:
        return 1
    return max(1, math.ceil(timeline.n_items / settings.batch_items))


def _with_interactions(timeline: Timeline) -> np.ndarray:
    return np.flatnonzero(np.diff(timeline.offsets)).astype(np.int32)


def _owners(offsets: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))


def _key(rng: np.random.Generator) -> np.uint64:
    return np.uint64(rng.integers(0, 2**63))


def _joined(first: Histories, second: Histories) -> Histories:
    return Histories(
        np.append(first.offsets, first.offsets[-1] + second.offsets[1:]),
        np.append(first.entries, second.entries),
        np.append(first.positions, second.positions),
        np.append(first.position_offsets, first.position_offsets[-1] + second.position_offsets[1:]),
    )
