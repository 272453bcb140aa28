"""From people to ranked lists: activations of all items, scores, rules, the best n, in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfuica.recommending import rules
from cfuica.recommending.best import best
from cfuica.recommending.groups import Groups
from cfuica.recommending.scores import By, check_by, scores

if TYPE_CHECKING:
    from cfuica.live.model import LiveModel
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
    whom: np.ndarray | Sequence[Person],
    request: Request,
    *,
    user_ids: pl.Series | None = None,
) -> pl.DataFrame:
    """user, rank, item, score, title: the best items for users (indices) or for people.

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
    for start in range(0, len(whom), size):
        block = whom[start : start + size]
        people = state.people(block) if isinstance(block, np.ndarray) else list(block)
        score_bm = scores(
            state.item_activations(people),
            values_k,
            support_m,
            live.calibration.distributions,
            request.by,
        )
        seen = [person.items for person in people] if request.exclude_seen else []
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
