"""Settings that follow the size of the data: one function of the counts for each task.

The presets `default` were tuned on MovieLens 1M and keep its settings there. Smaller data gets
fewer hidden units and minibatches, starts from biases, and is regularised more. Larger data gets
minibatches of about the same cost, fewer networks and, for a large catalogue, the sampled softmax.
docs/tuning.md has a table of what comes out and what each rule was chosen on.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class DataSize(NamedTuple):
    """The counts of a train set, and those of the clusters that share rows of parameters (0: each
    user, or item, has a row)."""

    users: int
    items: int
    interactions: int
    labels: int = 1
    user_clusters: int = 0
    item_clusters: int = 0

    @property
    def rows(self) -> tuple[int, int]:
        """Rows of parameters of users and of items."""
        users, items = self.user_clusters or self.users, self.item_clusters or self.items
        return min(users, self.users), min(items, self.items)

    @property
    def per_row(self) -> float:
        """Interactions per row of parameters: what there is to learn it from."""
        return self.interactions / max(1, sum(self.rows))

    @property
    def is_large(self) -> bool:
        """Whether one network has to do."""
        return sum(self.rows) > 100_000 or self.interactions > 5_000_000


# The train sets of MovieLens 1M are within these, and have the settings that were tuned on them.
SMALL, LARGE = 800_000, 1_200_000
# The train set that l2 was tuned on.
TUNED_RATINGS = 855_179
# Fewer interactions per row than this are sparse data. MovieLens 100K has 33, 1M 88.
SPARSE = 20.0
# Large sparse data: users and items with fewer interactions share a row, and
# minibatches are fewer.
FLOOR, FLOOR_STEPS = 50, 400
# Up to so many users and items, minibatches are blocks of MovieLens' size.
FEW_ROWS = 10_000
# A side of a network has at most so many parameters, if 16 units are enough for that: Adam takes
# 0.06 s for these on two cores.
MOST_PARAMETERS = 100_000_000
# Of large data: a context is thinned to about so many interactions in training.
MAX_CONTEXT = 256
# Drawing an interaction of a context costs as much as reading a row of so many units.
DRAWING = 64
# Ranking: a softmax over more items than this is over sampled candidates.
LARGE_CATALOGUE = 20_000
CANDIDATES = 4_000
# Ranking: hidden units of large sparse data that start from factors.
SPARSE_FACTORS = 16
# Ranking: positions in a minibatch of MovieLens 1M, and minibatches at most.
POSITIONS, MOST_BLOCKS = 5_300, 12_000


def rating_settings(size: DataSize) -> dict[str, Any]:
    """Settings of the rating model's preset `default` for data of this size."""
    small = min(1.0, size.interactions / SMALL)
    large = max(1.0, size.interactions / LARGE)
    sparse = min(1.0, size.per_row / SPARSE)
    # More labels are more parameters of as many ratings; up to ten, label sharing makes up for it.
    labels = min(1.0, 10 / size.labels) ** 0.5
    steps = _rounded(2400 * small**0.6 * large ** (1 / 12) * labels**3, 20, least=200)
    floor = FLOOR if sparse < 1 and size.is_large else None
    if sparse < 1:
        steps = min(steps, FLOOR_STEPS if floor else 1200)
    rows = [n if floor is None else min(n, size.interactions // floor) for n in size.rows]
    users, items = (_units(256 * small**0.3 * labels, 2 * size.labels, n) for n in rows)
    # Interactions that are read of a block's users and of its items: its cost. It has the most
    # pairs for this cost where both sides cost the same.
    longest = MAX_CONTEXT if large > 1 else None
    gathered = 250_000 * large ** (1 / 3)
    share = ((DRAWING + users) / (DRAWING + items)) ** 0.5
    blocks = {"batch_users": 1000, "batch_items": 1000}
    if max(size.users, size.items) > FEW_ROWS:
        per_user, per_item = (
            min(size.interactions / n, longest or math.inf) for n in (size.users, size.items)
        )
        blocks = {
            "batch_users": max(100, round(gathered * share / per_user)),
            "batch_items": max(100, round(gathered / share / per_item)),
        }
    return {
        "hidden_users": users,
        "hidden_items": items,
        "cold_start_units": max(16, min(users, items) // 2),
        "ensemble_size": 1 if size.is_large else 3,
        "max_steps": steps,
        "validate_every": max(20, steps // 12),
        # Of large data, where a row may have enough ratings to do without, it falls with the share
        # that a row has in the loss.
        "l2": 1e-4 * (TUNED_RATINGS / size.interactions / large) ** 0.5,
        "learning_rate": max(2e-3, 8e-3 * large ** (-1 / 3) * (1 if floor else sparse**0.5)),
        "epsilon": _epsilon(size, sum(rows)),
        "start_from_biases": small < 1 or sparse < 1 or large > 1,
        "max_context": longest,
        "min_row_interactions": floor,
    } | blocks


def _epsilon(size: DataSize, rows: int) -> float:
    """Adam's, for so many rows of parameters.

    The gradient of a row with one rating is about 1 / pairs. In small data it has to be small
    beside epsilon, or Adam moves such a row as fast as one with many ratings. The more rows, the
    smaller the gradient of each: beside a large epsilon the rows would stay where they began."""
    few = min(1e-3, 15 / size.interactions)
    many: float = 1e-4 * min(1.0, FEW_ROWS / rows) ** 0.5
    return max(many, few)


def ranking_settings(size: DataSize) -> dict[str, Any]:
    """Settings of the ranking model's preset `default` for data of this size."""
    per_user = size.interactions / max(1, size.users)
    # Rows with a handful of interactions overfit: they start from factors, training moves them
    # little, and only items have any. Adam's epsilon is so large that a row moves with the number
    # of its interactions.
    is_sparse = size.is_large and size.per_row < SPARSE
    most = 256 if is_sparse else 512
    batch = 32 if size.users <= FEW_ROWS else _rounded(POSITIONS / per_user, 8, least=32, most=most)
    blocks = max(1, -(-size.users // batch))  # of an epoch
    rows = size.rows[1:] if is_sparse else size.rows
    units = min(_units(32 if is_sparse else 128, 2, n) for n in rows)
    found: dict[str, Any] = {
        "hidden_users": units,
        "hidden_items": units,
        "ensemble_size": 1 if size.is_large else 2,
        "batch_users": batch,
        "epochs": 1.0 if is_sparse else min(8.0, MOST_BLOCKS / blocks),
        "validate_every": max(1, min(blocks // 4 if is_sparse else blocks, MOST_BLOCKS // 8)),
        "start_from_biases": size.items > LARGE_CATALOGUE,
        "start_from_factors": SPARSE_FACTORS if is_sparse else 0,
        "sides": "items" if is_sparse else "both",
        "learned_decay": not is_sparse,
        "residual_units": 0 if is_sparse else 256,
        "learning_rate": 3e-4 if is_sparse else 4e-3,
        "epsilon": 1e-5 if is_sparse else 1e-8,
    }
    if size.items > LARGE_CATALOGUE:
        candidates = CANDIDATES // 4 if is_sparse else CANDIDATES
        found |= {"loss": "sampled-softmax", "softmax_candidates": candidates}
    return found


def _units(wanted: float, columns: int, rows: int) -> int:
    """Hidden units of a side with so many rows, each with so many columns of them."""
    affordable = _rounded(MOST_PARAMETERS / (columns * max(1, rows)), 16, least=16)
    return min(_rounded(wanted, 16, least=32), affordable)


def _rounded(value: float, unit: int, *, least: int, most: int | None = None) -> int:
    """The nearest multiple of `unit` within limits."""
    found = max(least, unit * round(value / unit))
    return found if most is None else min(found, most)
