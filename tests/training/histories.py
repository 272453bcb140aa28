"""Small histories for tests of what is learned in order."""

from __future__ import annotations

import numpy as np

from cfuica.data.matrix import Timeline


def timeline_of(n_users: int, n_items: int, n: int, *, seed: int, positions: int = 8) -> Timeline:
    """n random interactions at a few moments, so that many share one."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(n_users * n_items)[: min(n, n_users * n_items)]
    return Timeline.of(
        (pairs // n_items).astype(np.int32),
        (pairs % n_items).astype(np.int32),
        rng.integers(0, positions, len(pairs)),
        n_users=n_users,
        n_items=n_items,
    )


def cyclic(n_users: int = 120, n_items: int = 30, length: int = 12) -> tuple[Timeline, np.ndarray]:
    """Whoever did item i does i + 1 next: their interactions, and what each does after the last."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, n_items, n_users)
    items_ut = (first[:, None] + np.arange(length + 1)) % n_items
    users = np.repeat(np.arange(n_users, dtype=np.int32), length)
    timeline = Timeline.of(
        users,
        items_ut[:, :length].ravel().astype(np.int32),
        np.tile(np.arange(length), n_users),
        n_users=n_users,
        n_items=n_items,
    )
    return timeline, items_ut[:, length].astype(np.int32)
