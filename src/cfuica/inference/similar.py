"""Similar users or similar items: the cosine of their centred hidden vectors.

An item's hidden vector is f of its UUC sum, a user's is f of the IIC sum. Cold-start users and
items have one as soon as they have interactions, and it follows them. Centring subtracts the mean
vector, so that popularity does not decide. `benchmarks/similar.py` compares this with other
vectors: how well neighbours agree in genre and in held-out ratings.

A model of one side encodes only users or only items. The others are compared by the change of their
rows of W with the rating; cold-start ones share a row, so they cannot be compared.

A ranking model compares the vectors that it ranks with (`LiveState.vectors`), also centred: two
items with the same vector have the same score for every user, two users with the same vector the
same ranking. A baseline brings a `Similarity` of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.errors import DataError
from cfuica.inference.recommend import NOTHING, Ranking, check_min_support, top_k
from cfuica.live.interactions import places
from cfuica.ops.running_sums import products
from cfuica.ops.runtime import run_rows
from cfuica.ops.tables import OTHER, ROLES

if TYPE_CHECKING:
    from cfuica.live.live_model import Catalogue
    from cfuica.live.live_state import LiveState
    from cfuica.ops.tables import SideName
MIN_SUPPORT = 5  # Users or items with fewer interactions are no neighbours by default.
# Queries per block: bounds the memory of the cosines with all others.
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Similarity:
    """What all m users or items are compared by."""

    # (B,) indices to the (B, m) float32 scores of all; higher is more similar.
    scores: Callable[[NDArray[np.integer]], NDArray[np.float32]]
    is_comparable_m: NDArray[np.bool_]  # Whether it is known of each what it is like.
    # Why one cannot be compared, and what to do, as the end of a sentence.
    reason: str = "has no interactions; let the model observe some first"
    # (m, H) float32, whose cosines, less the mean of the comparable ones, are the scores; None
    # where the scores are no cosines.
    vectors_mh: NDArray[np.float32] | None = None

    @classmethod
    def of_vectors(
        cls, vectors_mh: NDArray[np.float32], is_comparable_m: NDArray[np.bool_], **reason: str
    ) -> Similarity:
        """Cosines of vectors less the mean of the comparable ones."""
        # Added up in steps of 2^-24, which float64 does exactly: the mean has the same bits in any
        # order.
        steps_mh = np.rint(vectors_mh[is_comparable_m].astype(np.float64) * 2.0**24)
        mean_h = steps_mh.sum(0) / (2.0**24 * max(1, len(steps_mh)))
        centred_mh = vectors_mh - mean_h.astype(np.float32)
        square_m = np.einsum("mh,mh->m", centred_mh, centred_mh)
        length_m = np.sqrt(np.maximum(square_m, np.finfo(np.float32).tiny))  # never 0

        def cosines(queries: NDArray[np.integer]) -> NDArray[np.float32]:
            """(B, m) with all, whose bits do not depend on the other queries."""
            out_mb = np.empty((len(centred_mh), len(queries)), np.float32)
            query_bh = centred_mh[queries] / length_m[queries, None]
            run_rows(products, len(out_mb), centred_mh, query_bh, out_mb)
            cosine_bm: NDArray[np.float32] = np.clip(out_mb / length_m[:, None], -1, 1).T
            return cosine_bm

        return cls(cosines, is_comparable_m, **reason, vectors_mh=vectors_mh)

    def vectors(self, indices: NDArray[np.integer]) -> pl.Series | None:
        """The vectors of some, null where one is not comparable; None where there are none."""
        if self.vectors_mh is None:
            return None
        found_bh = self.vectors_mh[indices]
        column = pl.Series("vector", found_bh, pl.Array(pl.Float32, found_bh.shape[1]))
        return column.set(pl.Series(~self.is_comparable_m[indices]), None)

    @classmethod
    def of_state(cls, state: LiveState, axis: SideName) -> Similarity:
        """Of the users or items of a live state."""
        if OTHER[axis] in state.network.sides:
            return cls.of_vectors(*state.vectors(axis))
        reason = (
            f"was not trained on, and a model of one side knows no other {axis} apart; train a "
            f"model of both sides"
        )
        return cls.of_vectors(*state.vectors(axis), reason=reason)


def similar(
    similarity: Similarity,
    support_m: NDArray[np.integer],
    indices: NDArray[np.integer],
    n: int = 10,
    *,
    min_support: int = MIN_SUPPORT,
    in_order: NDArray[np.integer] | None = None,
) -> Ranking:
    """The n users or items most similar to each of these (indices), itself left out.

    One that is not comparable has no neighbours. Those with fewer than `min_support` interactions,
    of `support_m`, are no neighbours. Equal scores are in order of index, or in that of `in_order`,
    which then also has all indices that may be neighbours.
    """
    check_min_support(min_support)
    allowed_m = similarity.is_comparable_m & (support_m >= min_support)
    order = np.arange(len(allowed_m)) if in_order is None else in_order
    place_m = places(order, len(allowed_m))
    comparable = np.flatnonzero(similarity.is_comparable_m[indices])
    found: list[tuple[NDArray[Any], ...]] = [NOTHING]
    for start in range(0, comparable.size, _BLOCK):
        rows_b = comparable[start : start + _BLOCK]
        own_b = indices[rows_b]
        top = top_k(
            np.take(similarity.scores(own_b), order, axis=1),
            n,
            allowed_m=allowed_m[order],
            seen_offsets=np.arange(own_b.size + 1),
            seen_items=place_m[own_b],
        )
        found.append((rows_b[top.rows], top.ranks, order[top.items], top.scores))
    return Ranking(*(np.concatenate(column) for column in zip(*found, strict=True)))


def similar_table(
    catalogue: Catalogue,
    similarity: Similarity,
    axis: SideName,
    indices: NDArray[np.integer],
    n: int = 10,
    *,
    min_support: int = MIN_SUPPORT,
    query_ids: pl.Series,
) -> pl.DataFrame:
    """`similar` with external ids: user or item, rank, similar, score and, of items, title.

    `query_ids` are those of `indices`. Queries that cannot be compared are not in the table; it is
    an error where that is true of all.
    """
    role, ids = ROLES[axis], catalogue.ids[axis]
    if len(indices) and not similarity.is_comparable_m[indices].any():
        other = None if indices[0] != ids.unknown_index else ids.other_form(query_ids[0])
        hint = "" if other is None else f", or give {other!r}, which may be the same"
        raise DataError(
            f"Nothing is known of the {role} {query_ids[0]!r} that another could be similar to: it "
            f"{similarity.reason}{hint}."
        )
    support_m = np.array(catalogue.support(axis))
    if axis == "items":
        support_m[catalogue.retired] = -1  # less than any `min_support`
    found = similar(
        similarity,
        support_m,
        indices,
        n,
        min_support=min_support,
        in_order=ids.present(),
    )
    columns: dict[str, pl.Series | NDArray[np.generic]] = {
        role: query_ids.gather(found.rows),
        "rank": found.ranks,
        "similar": ids.decode(found.items),
        "score": found.scores.astype(np.float64),
    }
    if axis == "items" and catalogue.titles is not None:
        columns["title"] = catalogue.titles(found.items)
    return pl.DataFrame(columns)
