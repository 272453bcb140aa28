"""From people to ranked lists: activations of all items, scores, rules, the best n, in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfuica.live.person import History
from cfuica.recommending import rules
from cfuica.recommending.best import best
from cfuica.recommending.groups import Groups
from cfuica.recommending.scores import By, check_by, scores, support_bonus

if TYPE_CHECKING:
    from cfuica.live.model import Answerer, LiveModel

# Activations that are held at a time, in bytes: this bounds the memory, whoever is asked for.
BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class Request:
    """What is asked for; see `RatingModel.recommend`. Items by their index."""

    n: int
    by: By
    exclude_seen: bool
    min_support: int
    candidates: np.ndarray | None
    exclude: np.ndarray | None
    where: Mapping[str, Any] | None
    max_per: Mapping[str, int] | None


def recommend(
    live: LiveModel,
    whom: np.ndarray | History,
    request: Request,
    *,
    user_ids: pl.Series | None = None,
) -> pl.DataFrame:
    """user, rank, item, score, title: the best items for users (indices), or for a visitor.

    `user_ids` are what the users are called in the result, which has no column user without them.
    """
    check_by(request.by)
    table, support_m = live.item_table, live.state.support("items")
    allowed_m = rules.allowed(
        support_m,
        candidates=request.candidates,
        exclude=request.exclude,
        min_support=request.min_support,
        table=table,
        where=request.where,
    )
    # Equal scores are in the order of the ids, in which newcomers have their places.
    in_order = live.ids["items"].present()
    place_m = np.full(len(support_m), -1, np.int32)
    place_m[in_order] = np.arange(len(in_order), dtype=np.int32)
    groups = None
    if request.max_per:
        groups = Groups.of(None if table is None else table[in_order], request.max_per)
    scorer = _Scorer(live, request.by, support_bonus(support_m, live.scale.values_array()))
    blocks = [whom]
    if isinstance(whom, np.ndarray):
        size = max(1, BLOCK_BYTES // (4 * len(support_m) * live.scale.size))
        blocks = [whom[start : start + size] for start in range(0, len(whom), size)]
    found: list[tuple[np.ndarray, ...]] = []
    first = 0
    for block in blocks:
        score_bm, seen = scorer.block(block, request, np.flatnonzero(allowed_m))
        top = best(
            np.take(score_bm, in_order, axis=1),
            request.n,
            allowed_m=allowed_m[in_order],
            seen_offsets=np.cumsum([0, *map(len, seen)]),
            seen_items=place_m[np.concatenate(seen)],
            groups=groups,
        )
        found.append((first + top.rows, top.ranks, in_order[top.items], top.scores))
        first += len(seen)
    rows, ranks, items, score = (np.concatenate(column) for column in zip(*found, strict=True))
    frame = pl.DataFrame(
        {"rank": ranks, "item": live.ids["items"].decode(items), "score": score.astype(np.float64)}
    )
    if user_ids is not None:
        frame = frame.insert_column(0, user_ids.gather(rows).alias("user"))
    if table is not None and "title" in table.columns:
        frame = frame.with_columns(title=table["title"].gather(items))
    return frame


@dataclass(frozen=True)
class _Scorer:
    """Scores of users or visitors for all items, each by whoever answers about the pair."""

    live: LiveModel
    by: By
    bonus_m: np.ndarray

    def block(
        self, whom: np.ndarray | History, request: Request, items: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) scores, those of these `items` as they are predicted; and what is not to be shown
        to each because they have seen it."""
        if isinstance(whom, History):
            seen = [whom.items]
            score_bm = self.of_visitor(whom, seen_too=not request.exclude_seen)
        else:
            seen = [self.live.state.history("users", user)[0] for user in whom.tolist()]
            score_bm = self.of_users(whom, items)
            if not request.exclude_seen:
                rows_p = np.repeat(np.arange(len(whom)), [len(own) for own in seen])
                self.correct(score_bm, whom, rows_p, np.concatenate(seen))
        return score_bm, seen if request.exclude_seen else [own[:0] for own in seen]

    def of_users(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(B, M) scores of users for all items; those of these `items` count.

        Items that a user has seen are not left out of what their scores are made from.
        """
        live = self.live
        is_strange_b = live.is_stranger("users")[users]
        score_bm = np.empty((len(users), live.state.size("items")), np.float32)
        for one, is_asked_b in ((live.known, ~is_strange_b), (live.for_strangers, is_strange_b)):
            asked = np.flatnonzero(is_asked_b)
            if len(asked):
                activation_bmk = one.state.item_activations(one.state.people(users[asked]))
                score_bm[asked] = self._scores(one, activation_bmk)
        strange = items[live.is_stranger("items")[items]]
        known = np.flatnonzero(~is_strange_b)
        if live.for_strangers is not live.known and len(strange) and len(known):
            state = live.for_strangers.state
            activation_bmk = state.item_activations(state.people(users[known]), strange)
            found_bm = self._scores(live.for_strangers, activation_bmk, strange)
            score_bm[np.ix_(known, strange)] = found_bm
        return score_bm

    def correct(
        self, score_bm: np.ndarray, users: np.ndarray, rows_p: np.ndarray, items_p: np.ndarray
    ) -> None:
        """Write the scores of some pairs, by row and item, as they are predicted one by one."""
        for one, asked, activation_pk in self.live.answers(users[rows_p], items_p):
            scores_p = self._scores(one, activation_pk[None], items_p[asked])[0]
            score_bm[rows_p[asked], items_p[asked]] = scores_p

    def of_visitor(self, history: History, *, seen_too: bool) -> np.ndarray:
        """(1, M) scores of a visitor, those of the history too or not."""
        live = self.live
        score_bm = np.empty((1, live.state.size("items")), np.float32)
        is_strange_m = live.is_stranger("items")
        if live.is_stranger("users")[live.ids["users"].nobody]:
            is_strange_m[:] = True
        for one, is_asked_m in ((live.known, ~is_strange_m), (live.for_strangers, is_strange_m)):
            if is_asked_m.any():
                visitor = one.state.visitor(history.items, history.labels)
                activation_bmk = one.state.item_activations([visitor])
                if seen_too:
                    activation_bmk[0, visitor.items] = one.state.history_activations(visitor)
                score_bm[:, is_asked_m] = self._scores(one, activation_bmk)[:, is_asked_m]
        return score_bm

    def _scores(
        self, one: Answerer, activation_bmk: np.ndarray, items: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, M) scores of all items, or of those given."""
        bonus_m = self.bonus_m if items is None else self.bonus_m[items]
        values_k, distributions = self.live.scale.values_array(), one.calibration.distributions
        return scores(activation_bmk, values_k, bonus_m, distributions, self.by)
