"""Recommendations: the top k of all items for users or an anonymous user.

`recommend` scores all items in blocks of users, filters them and takes the top k of each user. The
scores of many users are near ones at first (`block_scores.py`): matrix products say which items may
be among the top k, and these are scored exactly.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.columns import rows_of
from cfuica.errors import SettingsError
from cfuica.inference.block_scores import EXP_ERROR, FEWEST_USERS, UserBlock
from cfuica.live.interactions import History, places
from cfuica.model.network import expected_rating
from cfuica.ops import topk
from cfuica.ops.runtime import run_rows

if TYPE_CHECKING:
    from cfuica.inference.filters import Groups, Where
    from cfuica.live.live_model import Catalogue, LiveModel
# Indices of users, or the ad-hoc history of an anonymous user.
Target: TypeAlias = np.ndarray | History
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
    bonus_m: NDArray[np.float32] | None,
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


class ItemScorer(Protocol):
    """What items are ranked by."""

    @property
    def numbers_per_item(self) -> int:
        """How many 32-bit numbers an item takes while it is scored, for each user."""
        ...

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) float32 scores, of which those of these `items` are valid; and the seen items of
        each.

        Scores of seen items need to be valid only with `seen_too`.
        """
        ...


class LiveScorer:
    """Scores of all items for users or an anonymous user, each pair by its network.

    A seen item is scored without its own interaction, which is left out of both contexts.
    """

    def __init__(self, live: LiveModel, by: By | None = None) -> None:
        """Of a model as it is now; `by` is of a rating model."""
        self.live, self.by = live, by or DEFAULT_BY
        self.bonus_m: np.ndarray | None = None
        check_by(self.by)
        if live.scale is not None and self.by == "blend":
            self.bonus_m = support_bonus(live.support("items"), live.scale.values_array())

    @property
    def numbers_per_item(self) -> int:
        """The logits of a pair."""
        return self.live.state.n_labels

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) scores, of which those of these `items` are valid; and the seen items of each."""
        if isinstance(target, History):
            return self._of_anonymous(target, seen_too=seen_too), [target.items]
        seen = self.seen(target)
        score_bm = self._of_users(target, items)
        if seen_too:
            rows_p, items_p = _flat(seen)
            score_bm[rows_p, items_p] = self.exact(target[rows_p], items_p)
        return score_bm, seen

    def seen(self, users: np.ndarray) -> list[np.ndarray]:
        """The items of each user's history."""
        return [self.live.state.history("users", user)[0] for user in users.tolist()]

    def exact(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) scores of pairs; of a seen item without its own interaction."""
        score_p = np.empty(len(users_p), np.float32)
        user_rows_p = self.live.state.rows("users")[users_p]
        for name, own, logits_pk in self.live.pair_logits(users_p, items_p):
            found = self._scores(name, logits_pk[None], user_rows_p[None, own], items_p[own])
            score_p[own] = found[0]
        return score_p

    def near(self, users: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(B, M) scores of these items, and by how much those of each user (B,) may differ from
        `exact`; seen items are scored with their own interaction."""
        live = self.live
        score_bm = np.empty((len(users), len(items)), np.float32)
        error_b = np.zeros(len(users))
        is_cold_b = live.state.is_cold("users", users)
        for name, own in live.by_network(is_cold_b):
            score_bm[own], error_b[own] = self._near(name, users[own], items)
        cold = np.flatnonzero(live.state.is_cold("items", items))
        warm = np.flatnonzero(~is_cold_b)
        if len(live.states) > 1 and len(cold) and len(warm):
            score, error = self._near("cold_start", users[warm], items[cold])
            score_bm[np.ix_(warm, cold)], error_b[warm] = score, np.maximum(error, error_b[warm])
        return score_bm, error_b

    def _near(
        self, name: str, users: np.ndarray, items: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same by one network."""
        live, block = self.live, UserBlock.of(self.live.states[name], users)
        if live.scale is not None and self.by != "lower":
            values_k = live.scale.values_array()
            score_bm, error_b = block.expected(items, values_k)
            if self.bonus_m is not None:
                score_bm += self.bonus_m[items]
        else:
            logits_bmk, error_b = block.logits(items)
            rows_b1 = live.states[name].rows("users")[users][:, None]
            score_bm = self._scores(name, logits_bmk, rows_b1, items)
        if live.scale is None:
            return score_bm, error_b
        # What the error of a logit may be worth to the mean, or to that of a tenth.
        values_k, share = live.scale.values_array(), WORST_SHARE if self.by == "lower" else 1.0
        return score_bm, (error_b + EXP_ERROR) * float(values_k[-1] - values_k[0]) / share

    def of_types(
        self, target: Target, seen: Sequence[np.ndarray], types: np.ndarray
    ) -> list[np.ndarray]:
        """Of the seen items of each user, those of these types; an ad-hoc history is of the
        strongest."""
        if isinstance(target, History):
            return [own if len(self.live.artifact.types) - 1 in types else own[:0] for own in seen]
        kinds = (self.live.state.types(user) for user in target.tolist())
        return [own[np.isin(kind, types)] for own, kind in zip(seen, kinds, strict=True)]

    def _of_users(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(B, M) scores of all items for users, of which those of these `items` are valid.

        The interactions with seen items are not left out of their own scores.
        """
        live = self.live
        if len(live.states) == 1:
            return self._item_scores("warm", users)
        is_cold_b = live.state.is_cold("users", users)
        score_bm = np.empty((len(users), live.state.size("items")), np.float32)
        for name, own in live.by_network(is_cold_b):
            score_bm[own] = self._item_scores(name, users[own])
        cold, warm = items[live.state.is_cold("items", items)], np.flatnonzero(~is_cold_b)
        if len(cold) and len(warm):
            score_bm[np.ix_(warm, cold)] = self._item_scores("cold_start", users[warm], cold)
        return score_bm

    def _item_scores(
        self, name: str, users: np.ndarray, items: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, M) scores of all items, or of these, by one network."""
        profiles = self.live.states[name].profiles(users)
        rows_b1 = np.array([[profile.row] for profile in profiles])
        logits_bmk = self.live.states[name].item_logits(profiles, items)
        return self._scores(name, logits_bmk, rows_b1, items)

    def _of_anonymous(self, history: History, *, seen_too: bool) -> np.ndarray:
        """(1, M) scores of all items for an anonymous user; with `seen_too`, each item of the
        history without its own interaction."""
        live = self.live
        score_bm = np.empty((1, live.state.size("items")), np.float32)
        is_cold_m = live.state.is_cold("items")
        if live.state.is_cold("users", live.ids["users"].unknown_index):
            is_cold_m[:] = True
        for name, own in live.by_network(is_cold_m):
            state = live.states[name]
            anonymous = state.anonymous(history.items, history.labels)
            logits_bmk = state.item_logits([anonymous])
            if seen_too:
                logits_bmk[0, anonymous.items] = state.history_logits(anonymous)
            score_bm[:, own] = self._scores(name, logits_bmk, np.array([[anonymous.row]]))[:, own]
        return score_bm

    def _scores(
        self,
        name: str,
        logits_bmk: np.ndarray,
        user_rows: np.ndarray,
        items: np.ndarray | None = None,
    ) -> np.ndarray:
        """(B, M) scores of all items, or of those given, from logits; `user_rows` (B, 1) or (1, M)
        are the users' table rows."""
        live = self.live
        if live.scale is None:
            return live.states[name].scores(logits_bmk, user_rows)
        bonus_m = self.bonus_m if self.bonus_m is None or items is None else self.bonus_m[items]
        distributions = live.artifact.calibration(name).distributions
        return scores(logits_bmk, live.scale.values_array(), bonus_m, distributions, self.by)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranked lists, row after row and best first; each field is (L,) for L items."""

    rows: NDArray[np.int64]  # The row of the block.
    ranks: NDArray[np.int32]  # From 1 upwards within the row.
    items: NDArray[np.int32]
    scores: NDArray[np.float32]


def top_k(
    scores_bm: NDArray[np.float32],
    n: int,
    *,
    allowed_m: NDArray[np.bool_] | None = None,
    seen_offsets: NDArray[np.int64] | None = None,
    seen_items: NDArray[np.int32] | None = None,
    groups: Groups | None = None,
) -> Ranking:
    """The top n of each row among the allowed items that it has not seen; ties by item index.

    `seen_offsets` (B + 1) and `seen_items` are compressed rows. With `groups` an item whose group
    is full is skipped. A row with fewer such items than n gets fewer; NaN is never among them.
    """
    n_rows, n_items = scores_bm.shape
    candidates = np.arange(n_items) if allowed_m is None else np.flatnonzero(allowed_m)
    no_groups = (np.zeros(n_items + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    if seen_offsets is None or seen_items is None:
        seen_offsets, seen_items = np.zeros(n_rows + 1, np.int64), np.empty(0, np.int32)
    items_bn = np.empty((n_rows, min(n, len(candidates))), np.int32)
    count_b = np.empty(n_rows, np.int64)
    run_rows(
        topk.top_k,
        n_rows,
        scores_bm,
        candidates.astype(np.int32),
        seen_offsets,
        seen_items,
        *((groups.offsets, groups.indices, groups.limits_g) if groups else no_groups),
        items_bn,
        count_b,
    )
    rows, places = np.nonzero(np.arange(items_bn.shape[1]) < count_b[:, None])
    items = items_bn[rows, places]
    return Ranking(rows, (places + 1).astype(np.int32), items, scores_bm[rows, items])


# No rows, ranks, items and scores.
NOTHING = tuple(np.zeros(0, dtype) for dtype in (np.int64, np.int32, np.int32, np.float32))
# Logits that are held at a time, in bytes: bounds the memory for any number of users.
BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class Request:
    """The arguments of `Recommender.recommend`, with items by index."""

    n: int
    exclude_seen: bool
    min_support: int
    candidates: np.ndarray | None
    exclude: np.ndarray | None
    where: Where | None
    max_per: Mapping[str, int] | None
    seen_types: np.ndarray | None = None  # The types of events whose items are excluded; all.
    exclude_own: Sequence[np.ndarray] | None = None  # Those of each user alone.


def allowed(
    support_m: NDArray[np.integer],
    request: Request,
    table: pl.DataFrame | None = None,
    retired: np.ndarray | None = None,
) -> NDArray[np.bool_]:
    """(M,) whether each item may be recommended; perhaps none may.

    `support_m` is how many users interacted with each item, `table` is the item metadata, one row
    per item in index order, `retired` are the items that never may.
    """
    check_min_support(request.min_support)
    mask = np.asarray(support_m) >= request.min_support
    if retired is not None:
        mask[retired] = False
    if request.candidates is not None:
        is_candidate = np.zeros_like(mask)
        is_candidate[request.candidates] = True
        mask &= is_candidate
    if request.exclude is not None:
        mask[request.exclude] = False
    if request.where is not None:
        from cfuica.inference.filters import passing

        mask &= passing(table, request.where, len(mask))
    return mask


def check_min_support(min_support: int) -> None:
    """An error unless it is a number of interactions."""
    is_whole = isinstance(min_support, int | np.integer) and not isinstance(min_support, bool)
    if not is_whole or min_support < 0:
        raise SettingsError(
            f"min_support is {min_support!r}, but it is how many ratings there must be: give a "
            f"whole number from 0 upwards."
        )


def recommend(
    catalogue: Catalogue,
    target: Target,
    request: Request,
    scorer: ItemScorer,
    *,
    user_ids: pl.Series | None = None,
) -> pl.DataFrame:
    """user, rank, item, score, title: the top items for users (indices), or for an anonymous user.

    `user_ids` are the external ids of the users; without them the result has no column user.
    """
    table, support_m = catalogue.item_metadata, catalogue.support("items")
    allowed_m = allowed(support_m, request, table, catalogue.retired)
    # Equal scores are in the order of the ids, new ones included.
    in_order = catalogue.ids["items"].present()
    items = in_order[allowed_m[in_order]]
    place_m = places(items, len(support_m))
    groups = None
    if request.max_per:
        from cfuica.inference.filters import Groups

        groups = Groups.of(None if table is None else rows_of(table, items), request.max_per)
    blocks = [target]
    if isinstance(target, np.ndarray):
        size = max(1, BLOCK_BYTES // (4 * len(support_m) * scorer.numbers_per_item))
        blocks = [target[start : start + size] for start in range(0, len(target), size)]
    found: list[tuple[np.ndarray, ...]] = [NOTHING]
    first = 0
    for block in blocks:
        score_bm, error_b, seen = _block(scorer, block, items, request)
        if request.exclude_own is not None:
            more = request.exclude_own[first : first + len(seen)]
            seen = [np.concatenate(both) for both in zip(seen, more, strict=True)]
        rows_p, items_p = _flat(seen)
        is_there = place_m[items_p] >= 0
        score_bm[rows_p[is_there], place_m[items_p[is_there]]] = np.nan  # never among the best
        if error_b is not None:
            assert isinstance(scorer, LiveScorer)
            assert isinstance(block, np.ndarray)
            _score_the_best(scorer, block, items, score_bm, error_b, request.n, groups)
        top = top_k(score_bm, request.n, groups=groups)
        found.append((first + top.rows, top.ranks, items[top.items], top.scores))
        first += len(seen)
    rows, ranks, best, score = (np.concatenate(column) for column in zip(*found, strict=True))
    ids = catalogue.ids["items"].decode(best)
    frame = pl.DataFrame({"rank": ranks, "item": ids, "score": score.astype(np.float64)})
    if user_ids is not None:
        frame = frame.insert_column(0, user_ids.gather(rows).alias("user"))
    if catalogue.titles is not None:
        frame = frame.with_columns(title=catalogue.titles(best))
    return frame


def _flat(of_rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Lists of items, one for each row, as the row and the item of each entry."""
    rows_p = np.repeat(np.arange(len(of_rows)), [len(own) for own in of_rows])
    return rows_p, np.concatenate([np.empty(0, np.int32), *of_rows])


def _block(
    scorer: ItemScorer, target: Target, items: np.ndarray, request: Request
) -> tuple[np.ndarray, np.ndarray | None, list[np.ndarray]]:
    """(B, M) scores of these items; by how much those of each user (B,) may be wrong, None where
    they are exact; and the items that each is not to get."""
    seen_too = not request.exclude_seen or request.seen_types is not None
    error_b: np.ndarray | None = None
    if (
        isinstance(scorer, LiveScorer)
        and isinstance(target, np.ndarray)
        and len(target) >= FEWEST_USERS
        and 4 * request.n <= len(items)  # else most items would be scored twice
    ):
        seen = scorer.seen(target)
        score_bm, error_b = scorer.near(target, items)
        if seen_too:
            rows_p, items_p = _flat(seen)
            place_p = places(items, scorer.live.state.size("items"))[items_p]
            own = np.flatnonzero(place_p >= 0)
            rows_p, items_p = rows_p[own], items_p[own]
            score_bm[rows_p, place_p[own]] = scorer.exact(target[rows_p], items_p)
    else:
        score_bm, seen = scorer.block(target, items, seen_too=seen_too)
        score_bm = np.take(score_bm, items, axis=1)
    if not request.exclude_seen:
        seen = [own[:0] for own in seen]
    elif request.seen_types is not None:
        assert isinstance(scorer, LiveScorer)
        seen = scorer.of_types(target, seen, request.seen_types)
    return score_bm, error_b, seen


def _score_the_best(
    scorer: LiveScorer,
    users: np.ndarray,
    items: np.ndarray,
    score_bm: np.ndarray,
    error_b: np.ndarray,
    n: int,
    groups: Groups | None,
) -> None:
    """Put exact scores in the place of all near ones (B, M) that may belong to the top n."""
    top = top_k(score_bm, n, groups=groups)
    least_b = np.full(len(users), -np.inf, np.float32)
    is_last = top.ranks == n  # a shorter list has all items that there are
    # Both scores may be wrong, the last one's and that of an item below it.
    least_b[top.rows[is_last]] = top.scores[is_last] - 2 * error_b[top.rows[is_last]]
    is_best_bm = score_bm >= least_b[:, None]
    rows_p, places_p = np.nonzero(is_best_bm)
    if groups is None:  # else a list may have to go on below
        score_bm[~is_best_bm] = np.nan
    score_bm[rows_p, places_p] = scorer.exact(users[rows_p], items[places_p])
