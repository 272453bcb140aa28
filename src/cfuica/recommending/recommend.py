"""From people to ranked lists: activations of all items, scores, rules, the best n, in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfuica.model.prediction import softmax
from cfuica.recommending import rules
from cfuica.recommending.best import best
from cfuica.recommending.groups import Groups
from cfuica.recommending.scores import By, check_by, scores

if TYPE_CHECKING:
    from cfuica.live.model import Answerer, LiveModel
    from cfuica.live.person import Person

# Activations that are held at a time, in bytes: this bounds the memory, whoever is asked for.
BLOCK_BYTES = 64 << 20


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
    whom: np.ndarray | Person,
    request: Request,
    *,
    user_ids: pl.Series | None = None,
) -> pl.DataFrame:
    """user, rank, item, score, title: the best items for users (indices), or for a visitor.

    `user_ids` are what the users are called in the result, which has no column user without them.
    """
    check_by(request.by)
    state = live.state
    support_m = state.support("items")
    table = live.item_table
    allowed_m = rules.allowed(
        support_m,
        candidates=request.candidates,
        exclude=request.exclude,
        min_support=request.min_support,
        table=table,
        where=request.where,
    )
    allowed_m &= live.is_present("items")
    groups = Groups.of(table, request.max_per) if request.max_per else None
    values_k = live.scale.values_array()
    size = max(1, BLOCK_BYTES // (4 * len(support_m) * len(values_k)))
    found: list[tuple[np.ndarray, ...]] = []
    for start in range(0, len(whom) if isinstance(whom, np.ndarray) else 1, size):
        if isinstance(whom, np.ndarray):
            activation_bmk, seen = block_of_users(live, whom[start : start + size], request.by)
        else:
            activation_bmk, seen = block_of_visitor(live, whom, request.by)
        score_bm = scores(
            activation_bmk, values_k, support_m, lambda act_pk, _: softmax(act_pk), request.by
        )
        seen = seen if request.exclude_seen else []
        top = best(
            score_bm,
            request.n,
            allowed_m=allowed_m,
            seen_offsets=np.cumsum([0, *map(len, seen)]) if seen else None,
            seen_items=np.concatenate(seen) if seen else None,
            groups=groups,
        )
        found.append((start + top.rows, top.ranks, top.items, top.scores))
    rows, ranks, items, score = (np.concatenate(column) for column in zip(*found, strict=True))
    frame = pl.DataFrame(
        {"rank": ranks, "item": live.ids["items"].decode(items), "score": score.astype(np.float64)}
    )
    if user_ids is not None:
        frame = frame.insert_column(0, user_ids.gather(rows).alias("user"))
    if table is not None and "title" in table.columns:
        frame = frame.with_columns(title=table["title"].gather(items))
    return frame


def block_of_users(
    live: LiveModel, users: np.ndarray, by: By
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(B, M, K) activations of all items for these users, and the items that each has seen.

    Of a pair that is not for strangers only, the network of the known speaks. For `lower` they are
    the logarithms of the corrected distributions, which are corrected already.
    """
    strange_b, strange_m = live.is_stranger("users")[users], live.is_stranger("items")
    n_items, n_labels = live.state.size("items"), live.scale.size
    activation_bmk = np.empty((len(users), n_items, n_labels), np.float32)
    seen: list[np.ndarray] = [np.empty(0, np.int32)] * len(users)
    for answerer, is_asked in ((live.known, ~strange_b), (live.for_strangers, strange_b)):
        asked = np.flatnonzero(is_asked)
        people = answerer.state.people(users[asked])
        activation_bmk[asked] = _corrected(
            live, answerer, answerer.state.item_activations(people), by
        )
        for place, person in zip(asked, people, strict=True):
            seen[place] = person.items
    news = np.flatnonzero(strange_m & (live.state.support("items") > 0))
    known = np.flatnonzero(~strange_b)
    if live.for_strangers is not live.known and len(news) and len(known):
        users_p = np.repeat(users[known], len(news))
        items_p = np.tile(news, len(known))
        pair_pk = live.for_strangers.state.pair_activations(users_p, items_p)
        activation_bmk[np.ix_(known, news)] = _corrected(
            live, live.for_strangers, pair_pk.reshape(len(known), len(news), n_labels), by
        )
    return activation_bmk, seen


def block_of_visitor(
    live: LiveModel, person: Person, by: By
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The same of somebody who is not stored."""
    answerer = live.for_strangers
    activation_bmk = answerer.state.item_activations([person])
    return _corrected(live, answerer, activation_bmk, by), [person.items]


def _corrected(
    live: LiveModel, answerer: Answerer, activation_bmk: np.ndarray, by: By
) -> np.ndarray:
    if by != "lower":  # nothing else depends on it
        return activation_bmk
    flat_pk = activation_bmk.reshape(-1, activation_bmk.shape[2])
    p_pk = answerer.calibration.distributions(flat_pk, live.scale.values_array())
    corrected_pk: np.ndarray = np.log(np.maximum(p_pk, np.finfo(np.float32).tiny))
    return corrected_pk.reshape(activation_bmk.shape)
