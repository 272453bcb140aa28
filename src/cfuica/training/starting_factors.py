"""Factors that training of rankings starts from, in place of random rows of the items side.

Gradients find what users of ten interactions have in common only late: the rows start near 0, where
their gradients are as small, and by then rare rows have overfitted. A truncated singular value
decomposition finds it in seconds. Of the matrix of interactions X, with degrees d, it decomposes

    (D_users + 30)^-1/2  X  (D_items + 30)^-1/2,

in which rare rows weigh little. The largest singular vector is popularity, which is left to the
biases. The next ones are what draws users to items. With v those of the items, W and V of the
items side get the columns  v sqrt(n) / (D_items + 30)^1/2,  each less as its singular value is
nearer to those of noise, so W adds up to where a history lies and V is where an item lies.

Shape suffixes: n users, m items, f factors.
"""

from __future__ import annotations

import numpy as np
import torch

from cfuica.data.matrix import Csr, Timeline
from cfuica.model.network import Side
from cfuica.ops.encode import bag_sums
from cfuica.ops.runtime import one_blas_thread
from cfuica.ops.tables import Bags, RowTable

# Interactions that every user and item has besides its own.
_DAMPING = 30.0
# Scales of W and V. Chosen on the validation items of a synthetic shop, together with the damping;
# a half and twice as much of either do nearly as well.
_ENCODER, _DECODER = 0.2, 0.7
# Columns besides the factors: the last of them has the singular value of noise.
_SPARE, _ITERATIONS = 8, 12
# A share of a singular value that is rounding.
_TINY = 1e-4


def start_from_factors(
    items: Side, timeline: Timeline, by_item: Csr, factors: int, seed: int
) -> None:
    """Set so many hidden units of the items side, the first ones."""
    item_mf, share_f = item_factors(timeline, by_item, factors, seed)
    found = int(np.count_nonzero(share_f > _TINY))  # a unit of zeros would never learn
    columns = torch.from_numpy((item_mf * np.sqrt(share_f))[:, :found])
    for table, scale in ((items.W, _ENCODER), (items.V, _DECODER)):
        table.values[:-1, 0, :found] = (scale * columns).to(table.values)


def bytes_needed(users: int, items: int, factors: int) -> float:
    """What the decomposition takes at its peak."""
    return 12.0 * (1 + factors + _SPARE) * (users + items)


def item_factors(
    timeline: Timeline, by_item: Csr, factors: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(M, F) scaled singular vectors, largest first, and the share (F,) of each squared singular
    value that is above the noise. F is less than `factors` where there are fewer items or users."""
    damped_n, damped_m = (
        ((rows + _DAMPING) ** -0.5).astype(np.float32)
        for rows in (np.diff(timeline.offsets), by_item.sizes)
    )
    users = Bags(timeline.offsets, timeline.items)
    items = Bags(by_item.offsets, by_item.indices)
    width = min(1 + factors + _SPARE, len(damped_n), len(damped_m))
    generator = np.random.default_rng(seed)
    # Block power iteration. The bits of a decomposition depend on the number of BLAS threads.
    with one_blas_thread():
        item_mf = generator.standard_normal((len(damped_m), width), np.float32)
        for _ in range(_ITERATIONS):
            user_nf = _sums(users, damped_m[:, None] * item_mf, damped_n)
            item_mf = _sums(items, damped_n[:, None] * user_nf, damped_m)
            item_mf = np.linalg.qr(item_mf)[0]
        user_nf = _sums(users, damped_m[:, None] * item_mf, damped_n)
        squared_f, rotation_ff = np.linalg.eigh((user_nf.T @ user_nf).astype(np.float64))
        item_mf = item_mf @ rotation_ff[:, ::-1].astype(np.float32)
    squared_f = np.maximum(squared_f[::-1], 1e-30)
    factor_slice = slice(1, max(1, min(1 + factors, width - 1)))
    item_mf = (
        item_mf[:, factor_slice] * damped_m[:, None] * np.float32(timeline.n_interactions**0.5)
    )
    return item_mf, (1 - squared_f[-1] / squared_f[factor_slice]).astype(np.float32)


def _sums(bags: Bags, rows_rf: np.ndarray, norm_q: np.ndarray) -> np.ndarray:
    """The sums of the rows of each bag, times its norm."""
    table = RowTable(torch.from_numpy(np.ascontiguousarray(rows_rf)[:, None, :]))
    return bag_sums(table, bags, norm_q).detach().numpy()
