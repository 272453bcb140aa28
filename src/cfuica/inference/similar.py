"""Which users or items are alike: the cosine of their hidden vectors, less the mean one.

An item's hidden vector is f of its UUC sum, a user's is f of theirs (IIC): what the model reads of
them, as it is now. So cold-start users and items have one as soon as they have interactions, and it
changes with them. Less the mean, which all have in common, popularity does not decide.
`benchmarks/similar.py` compares this with other vectors: how well neighbours agree in genre and in
held-out ratings.

A model of one side encodes one axis only. The other axis has rows of W instead: how they change
with the rating. Cold-start users and items share one, and so have nothing of their own to compare.

A ranking model compares by the vectors that it ranks with (`RankingState.vectors`), also less the
mean one: two items with the same vector have the same score for everybody, two users with the same
vector the same ranking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.errors import DataError
from cfuica.inference.recommend import check_min_support, top_k
from cfuica.model.pairs import OTHER, ROLES
from cfuica.ops.running_sums import products
from cfuica.ops.runtime import run_rows

if TYPE_CHECKING:
    from cfuica.inference.explain import Lookup
    from cfuica.live.live_vocabulary import VocabularyState
    from cfuica.model.pairs import SideName
MIN_SUPPORT = 5
"""Who has fewer interactions is not called similar to anyone, unless that is asked for."""
# The cosines of so many with all others are held at a time.
_BLOCK = 256
_NOBODY = tuple(np.zeros(0, dtype) for dtype in (np.int64, np.int32, np.int32, np.float32))


@dataclass(frozen=True, eq=False)
class Similar:
    """The L most similar ones, row after row of those asked about, and best first."""

    rows: NDArray[np.int64]
    """(L,) whom of those asked about they are similar to, by place."""
    ranks: NDArray[np.int32]
    """(L,) from 1 upwards within the row."""
    indices: NDArray[np.int32]
    """(L,) their indices."""
    scores: NDArray[np.float32]
    """(L,) cosines, -1 to 1."""
    is_warm: NDArray[np.bool_]
    """Of each who was asked about, whether anything is known to compare; who is not has no row."""


def similar(
    state: VocabularyState,
    axis: SideName,
    indices: NDArray[np.integer],
    n: int = 10,
    *,
    min_support: int = MIN_SUPPORT,
    in_order: NDArray[np.integer] | None = None,
) -> Similar:
    """The n users or items most similar to each of these (indices), themselves left out.

    Those with fewer than `min_support` interactions do not count; equal scores are in order of
    index, or in that of the indices `in_order`, which then are those that count.
    """
    check_min_support(min_support)
    vectors_mh, is_warm_m = state.vectors(axis)
    centred_mh, length_m = _centred(vectors_mh, is_warm_m)
    allowed_m = is_warm_m & (state.support(axis) >= min_support)
    order = np.arange(len(allowed_m)) if in_order is None else in_order
    place_m = np.empty(len(allowed_m), np.int32)
    place_m[order] = np.arange(len(order), dtype=np.int32)
    is_warm = is_warm_m[indices]
    stored = np.flatnonzero(is_warm)
    found: list[tuple[NDArray[Any], ...]] = [_NOBODY]
    for start in range(0, stored.size, _BLOCK):
        rows_b = stored[start : start + _BLOCK]
        own_b = indices[rows_b]
        cosine_bm = _cosines(centred_mh, length_m, own_b)
        top = top_k(
            np.take(cosine_bm, order, axis=1),
            n,
            allowed_m=allowed_m[order],
            seen_offsets=np.arange(own_b.size + 1),
            seen_items=place_m[own_b],
        )
        found.append((rows_b[top.rows], top.ranks, order[top.items], top.scores))
    rows, ranks, others, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    return Similar(rows, ranks, others, scores, is_warm)


def similar_table(
    state: VocabularyState,
    axis: SideName,
    indices: NDArray[np.integer],
    n: int = 10,
    *,
    min_support: int = MIN_SUPPORT,
    asked_ids: pl.Series,
    ids: Lookup,
    titles: Lookup | None = None,
    in_order: NDArray[np.integer] | None = None,
) -> pl.DataFrame:
    """`similar` with external ids: user or item, rank, similar, score and, with `titles`, title.

    `asked_ids` are those of `indices`. Of several, those of whom nothing is known are not in the
    table; where that is true of all, it is an error.
    """
    role = ROLES[axis]
    found = similar(state, axis, indices, n, min_support=min_support, in_order=in_order)
    if not found.is_warm.any():
        reason = (
            "has no interactions; let the model observe some first"
            if OTHER[axis] in state.network.sides
            else f"was not trained on, and a model of one side knows no other {role}s apart; train "
            f"a model of both sides"
        )
        raise DataError(
            f"Nothing is known of the {role} {asked_ids[0]!r} that another could be similar to: it "
            f"{reason}."
        )
    columns: dict[str, pl.Series | NDArray[np.generic]] = {
        role: asked_ids.gather(found.rows),
        "rank": found.ranks,
        "similar": ids(found.indices),
        "score": found.scores.astype(np.float64),
    }
    if titles is not None:
        columns["title"] = titles(found.indices)
    return pl.DataFrame(columns)


def _centred(
    vectors_mh: NDArray[np.float32], is_warm_m: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The vectors less the mean of the known ones, and their lengths (m,), which are never 0."""
    # Added up in steps of 2^-24, which float64 does exactly: in whatever order they are, the mean
    # has the same bits.
    steps_mh = np.rint(vectors_mh[is_warm_m].astype(np.float64) * 2.0**24)
    mean_h = steps_mh.sum(0) / (2.0**24 * max(1, len(steps_mh)))
    centred_mh = vectors_mh - mean_h.astype(np.float32)
    square_m = np.einsum("mh,mh->m", centred_mh, centred_mh)
    return centred_mh, np.sqrt(np.maximum(square_m, np.finfo(np.float32).tiny))


def _cosines(
    centred_mh: NDArray[np.float32], length_m: NDArray[np.float32], asked: NDArray[np.integer]
) -> NDArray[np.float32]:
    """(B, m) cosines of those asked about with all, which do not depend on who else is there."""
    out_mb = np.empty((len(centred_mh), len(asked)), np.float32)
    query_bh = centred_mh[asked] / length_m[asked, None]
    run_rows(products, len(out_mb), centred_mh, query_bh, out_mb)
    cosine_bm: NDArray[np.float32] = np.clip(out_mb / length_m[:, None], -1, 1).T
    return cosine_bm
