"""The scores that items are ranked by, of a rating model and of a ranking model.

A ranking model scores items by their logits. A rating model turns the predicted distribution and
the support of an item into one number, in one of three ways:

    expected   the mean of the predicted distribution: the rating that `predict` gives.
    lower      the mean of the worst tenth of the calibrated distribution: a pessimistic rating,
               lower the less certain the model is.
    blend      the expected rating and support: 2.5% of the rating scale (0.1 of 1 to 5 stars) more
               for each doubling of the users who rated the item, less for each halving. An item
               with as many ratings as the average item has keeps its expected rating; a popular
               one may have a score above the end of the scale.

`lower` is a mean over the tail and not mean - z * deviation, because that leaves the scale, and
can rank an item lower for being certainly better. `blend` grows with the logarithm of support:
shrinking items of little support towards a mean gave less coverage at the same accuracy, and would
pull up the items of a strict user. `benchmarks/recommending.py` compares them and chose the
constants and the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfuica.errors import SettingsError
from cfuica.live.events import History
from cfuica.model.calibration import expected_rating
from cfuica.ops import topk
from cfuica.ops.runtime import run_rows

if TYPE_CHECKING:
    from cfuica.inference.recommend import Target
    from cfuica.live.live_model import LiveRatingModel, ServingNetwork
    from cfuica.live.ranking_state import RankingState
By = Literal["expected", "lower", "blend"]
DEFAULT_BY: By = "blend"

# The share of the distribution that counts as turning out badly.
WORST_SHARE = 0.1
# What a doubling of its support is worth to an item, as a share of the rating scale.
DOUBLING = 0.025

# (P, K) logits and (K,) rating values to (P, K) float32 calibrated distributions.
Distributions: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]


def check_by(by: str) -> None:
    """An error unless `by` is one of the three."""
    if by not in get_args(By):
        names = ", ".join(repr(name) for name in get_args(By))
        raise SettingsError(f"by is {by!r}, but items are recommended by one of {names}.")


def scores(
    logits_bmk: NDArray[np.float32],
    values_k: NDArray[np.float32],
    bonus_m: NDArray[np.float32],
    distributions: Distributions,
    by: By = DEFAULT_BY,
) -> NDArray[np.float32]:
    """The scores (B, M) of a block of users and M items.

    `values_k` (ascending) are the ratings that the labels stand for; `bonus_m` is the items'
    `support_bonus`, which only `blend` adds. Only `lower` uses `distributions`
    (`Calibration.distributions`): calibration keeps the mean of every distribution.
    """
    if by == "lower":
        return worst_rating(logits_bmk, values_k, distributions)
    expected_bm = expected_rating(logits_bmk, values_k)
    if by == "blend":
        expected_bm += bonus_m
    return expected_bm


def worst_rating(
    logits_bmk: NDArray[np.float32],
    values_k: NDArray[np.float32],
    distributions: Distributions,
    share: float = WORST_SHARE,
) -> NDArray[np.float32]:
    """The mean rating (B, M) over the lowest `share` of each calibrated distribution."""
    flat_pk = logits_bmk.reshape(-1, logits_bmk.shape[2])
    probability_bmk = distributions(flat_pk, values_k).reshape(logits_bmk.shape)
    out_bm = np.empty(logits_bmk.shape[:2], np.float32)
    run_rows(topk.worst, len(out_bm), probability_bmk, values_k, np.float32(share), out_bm)
    return out_bm


def support_bonus(
    support_m: NDArray[np.integer], values_k: NDArray[np.float32], doubling: float = DOUBLING
) -> NDArray[np.float32]:
    """What `blend` adds to the expected rating of each item, (M,).

    doubling * (v_K - v_1) * log2((n + 1) / (n' + 1)) for n ratings, where n' is the mean support
    of the items that have any.
    """
    average = support_m.sum() / max(np.count_nonzero(support_m), 1)
    doublings_m = np.log2((support_m + 1.0) / (average + 1.0))
    scale = float(values_k[-1] - values_k[0])
    return np.asarray(doubling * scale * doublings_m, dtype=np.float32)


@dataclass(frozen=True)
class RatingScorer:
    """Scores of all items for users or an anonymous user, each by the network of the pair."""

    live: LiveRatingModel
    by: By
    bonus_m: np.ndarray

    @classmethod
    def of(cls, live: LiveRatingModel, by: By) -> RatingScorer:
        """The scorer of a model as it is now."""
        check_by(by)
        return cls(live, by, support_bonus(live.state.support("items"), live.scale.values_array()))

    @property
    def numbers_per_item(self) -> int:
        """A predicted distribution."""
        return self.live.scale.size

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) scores, of which those of these `items` are valid; and the seen items of each."""
        if isinstance(target, History):
            seen = [target.items]
            score_bm = self.of_anonymous(target, seen_too=seen_too)
        else:
            seen = [self.live.state.history("users", user)[0] for user in target.tolist()]
            score_bm = self.of_users(target, items)
            if seen_too:
                rows_p = np.repeat(np.arange(len(target)), [len(own) for own in seen])
                self.correct(score_bm, target, rows_p, np.concatenate(seen))
        return score_bm, seen

    def of_users(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(B, M) scores of all items for users, of which those of these `items` are valid.

        The interactions with seen items are not left out of their own scores.
        """
        live = self.live
        is_cold_b = live.is_cold("users")[users]
        score_bm = np.empty((len(users), live.state.size("items")), np.float32)
        for one, is_own_b in ((live.warm, ~is_cold_b), (live.cold_start, is_cold_b)):
            own = np.flatnonzero(is_own_b)
            if len(own):
                logits_bmk = one.state.item_logits(one.state.profiles(users[own]))
                score_bm[own] = self._scores(one, logits_bmk)
        cold = items[live.is_cold("items")[items]]
        warm = np.flatnonzero(~is_cold_b)
        if live.cold_start is not live.warm and len(cold) and len(warm):
            state = live.cold_start.state
            logits_bmk = state.item_logits(state.profiles(users[warm]), cold)
            found_bm = self._scores(live.cold_start, logits_bmk, cold)
            score_bm[np.ix_(warm, cold)] = found_bm
        return score_bm

    def correct(
        self, score_bm: np.ndarray, users: np.ndarray, rows_p: np.ndarray, items_p: np.ndarray
    ) -> None:
        """Write the scores of some pairs, by row and item, each without its own interaction."""
        for one, own, logits_pk in self.live.pair_logits(users[rows_p], items_p):
            scores_p = self._scores(one, logits_pk[None], items_p[own])[0]
            score_bm[rows_p[own], items_p[own]] = scores_p

    def of_anonymous(self, history: History, *, seen_too: bool) -> np.ndarray:
        """(1, M) scores of all items for an anonymous user; with `seen_too`, each item of the
        history without its own interaction."""
        live = self.live
        score_bm = np.empty((1, live.state.size("items")), np.float32)
        is_cold_m = live.is_cold("items")
        if live.is_cold("users")[live.ids["users"].unknown_index]:
            is_cold_m[:] = True
        for one, is_own_m in ((live.warm, ~is_cold_m), (live.cold_start, is_cold_m)):
            if is_own_m.any():
                anonymous = one.state.anonymous(history.items, history.labels)
                logits_bmk = one.state.item_logits([anonymous])
                if seen_too:
                    logits_bmk[0, anonymous.items] = one.state.history_logits(anonymous)
                score_bm[:, is_own_m] = self._scores(one, logits_bmk)[:, is_own_m]
        return score_bm

    def _scores(
        self, one: ServingNetwork, logits_bmk: np.ndarray, items: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, M) scores of all items, or of those given."""
        bonus_m = self.bonus_m if items is None else self.bonus_m[items]
        values_k, distributions = self.live.scale.values_array(), one.calibration.distributions
        return scores(logits_bmk, values_k, bonus_m, distributions, self.by)


# Interactions that are left out at a time: bounds the memory of the vectors without them.
PAIRS_PER_PASS = 8192


@dataclass(frozen=True)
class RankingScorer:
    """Scores of all items for users or an anonymous user.

    A seen item is scored without its own interaction, which is left out of the user's history and
    of the item's sum.
    """

    state: RankingState

    @property
    def numbers_per_item(self) -> int:
        """A score."""
        return 1

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) scores of all items, and the seen items of each, oldest first."""
        state = self.state
        if isinstance(target, History):
            users, seen = None, [target.items]
            score_bm = state.scores(state.vectors_after(target.items))
        else:
            users, seen = target, [state.histories.of_user(user).items for user in target.tolist()]
            score_bm = state.scores(state.user_vectors(target))
        if seen_too:
            offsets = np.cumsum([0, *map(len, seen)])
            # A history is not divided.
            passes = np.searchsorted(offsets, np.arange(0, offsets[-1], PAIRS_PER_PASS))
            for first, end in pairwise(np.unique([*passes, len(seen)]).tolist()):
                some = slice(first, end)
                some_users = None if users is None else users[some]
                self._leave_out(score_bm[some], some_users, seen[some])
        return score_bm, seen

    def _leave_out(
        self, score_bm: np.ndarray, users: np.ndarray | None, seen: list[np.ndarray]
    ) -> None:
        """Write the scores of seen items, each without its own interaction."""
        state, items_p = self.state, np.concatenate(seen)
        offsets = np.cumsum([0, *map(len, seen)])
        rows_p = np.repeat(np.arange(len(seen)), np.diff(offsets))
        users_ph = state.vectors_without_each(offsets, items_p, users)
        if users is None:  # the items' sums do not have an anonymous user's interactions
            items_ph = state.item_vectors()[items_p]
        else:
            items_ph = state.item_vectors_without(items_p, users[rows_p])
        score_bm[rows_p, items_p] = state.pair_scores(users_ph, items_ph, items_p)
