"""From people to ranked lists: logits of all items, scores, rules, the best n, in blocks.

The best items of each row of a block of scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.inference import filters
from cfuica.inference.filters import Groups
from cfuica.live.events import History
from cfuica.ops import topk
from cfuica.ops.runtime import run_rows

if TYPE_CHECKING:
    from cfuica.live.live_vocabulary import LiveVocabularies


@dataclass(frozen=True, eq=False)
class Ranking:
    """Recommended items, row after row and best first; each field is (L,) for L of them."""

    rows: NDArray[np.int64]
    """The row of the block."""
    ranks: NDArray[np.int32]
    """From 1 upwards within the row."""
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
    """The n best allowed items of each row that the row has not seen; ties by item index.

    `seen_offsets` (B + 1) and `seen_items` are compressed rows. With `groups` each ranking is
    walked down from the top, and an item whose group is full is passed over. A row that has fewer
    such items than n gets fewer; a score that is no number is never among them.
    """
    n_rows, n_items = scores_bm.shape
    candidates = np.arange(n_items) if allowed_m is None else np.flatnonzero(allowed_m)
    groups = groups if groups is not None else Groups.none(n_items)
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
        groups.offsets,
        groups.indices,
        groups.limits_g,
        items_bn,
        count_b,
    )
    rows, places = np.nonzero(np.arange(items_bn.shape[1]) < count_b[:, None])
    items = items_bn[rows, places]
    return Ranking(rows, (places + 1).astype(np.int32), items, scores_bm[rows, items])


Target: TypeAlias = np.ndarray | History
"""Indices of users, or an anonymous user."""

# Logits that are held at a time, in bytes: this bounds the memory, whoever is asked for.
BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class Request:
    """What is asked for; see `RatingModel.recommend`. Items by their index."""

    n: int
    exclude_seen: bool
    min_support: int
    candidates: np.ndarray | None
    exclude: np.ndarray | None
    where: Mapping[str, Any] | None
    max_per: Mapping[str, int] | None


class ItemScorer(Protocol):
    """What items are ranked by."""

    @property
    def numbers_per_item(self) -> int:
        """How many 32-bit numbers an item takes while it is scored, for each user."""
        ...

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) float32 scores, of which those of these `items` count; and what each has seen.

        What somebody has seen needs to be scored where that is asked for only.
        """
        ...


def recommend(
    live: LiveVocabularies[Any],
    target: Target,
    request: Request,
    scorer: ItemScorer,
    *,
    user_ids: pl.Series | None = None,
) -> pl.DataFrame:
    """user, rank, item, score, title: the best items for users (indices), or for an anonymous user.

    `user_ids` are what the users are called in the result, which has no column user without them.
    """
    table, support_m = live.item_metadata, live.state.support("items")
    allowed_m = filters.allowed(
        support_m,
        candidates=request.candidates,
        exclude=request.exclude,
        min_support=request.min_support,
        table=table,
        where=request.where,
    )
    # Equal scores are in the order of the ids, in which new users and items have their places.
    in_order = live.ids["items"].present()
    place_m = np.full(len(support_m), -1, np.int32)
    place_m[in_order] = np.arange(len(in_order), dtype=np.int32)
    groups = None
    if request.max_per:
        groups = Groups.of(None if table is None else table[in_order], request.max_per)
    blocks = [target]
    if isinstance(target, np.ndarray):
        size = max(1, BLOCK_BYTES // (4 * len(support_m) * scorer.numbers_per_item))
        blocks = [target[start : start + size] for start in range(0, len(target), size)]
    found: list[tuple[np.ndarray, ...]] = []
    first = 0
    for block in blocks:
        score_bm, seen = scorer.block(
            block, np.flatnonzero(allowed_m), seen_too=not request.exclude_seen
        )
        if not request.exclude_seen:
            seen = [own[:0] for own in seen]
        top = top_k(
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
