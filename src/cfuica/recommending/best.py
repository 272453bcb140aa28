"""The best items of each row of a block of scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfuica.kernels import select
from cfuica.kernels.threads import run_rows
from cfuica.recommending.groups import Groups


@dataclass(frozen=True, eq=False)
class Ranking:
    """Recommended items, row after row and best first; each field is (L,) for L of them."""

    rows: NDArray[np.int64]
    """The row of the block."""
    ranks: NDArray[np.int32]
    """From 1 upwards within the row."""
    items: NDArray[np.int32]
    scores: NDArray[np.float32]


def best(
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
        select.best,
        n_rows,
        scores_bm,
        candidates.astype(np.int32),
        seen_offsets,
        seen_items,
        groups.offsets,
        groups.members,
        groups.limits_g,
        items_bn,
        count_b,
    )
    rows, places = np.nonzero(np.arange(items_bn.shape[1]) < count_b[:, None])
    items = items_bn[rows, places]
    return Ranking(rows, (places + 1).astype(np.int32), items, scores_bm[rows, items])
