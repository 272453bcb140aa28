"""Small histories for tests of what is learned in order."""

from __future__ import annotations

import numpy as np
import torch

from cfuica.data.matrix import Timeline
from cfuica.model.network import Network
from cfuica.model.pairs import Histories


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


def read_by(histories: Histories) -> list[list[int]]:
    """The entries that each of all moments reads, in order, by the definition of `Histories`."""
    found: list[list[int]] = []
    for u in range(len(histories.offsets) - 1):
        own = slice(histories.offsets[u], histories.offsets[u + 1])
        entries, positions = histories.indices[own].tolist(), histories.positions[own].tolist()
        for position in range(histories.position_offsets[u + 1] - histories.position_offsets[u]):
            earlier = [e for e, m in zip(entries, positions, strict=True) if m < position]
            found.append([entry for entry in earlier if entry >= 0])
    return found


def model_of(
    timeline: Timeline, hidden: dict[str, int], *, seed: int = 0, **changes: object
) -> Network:
    """Parameters large enough that every path through the model counts."""
    model = Network.initial(
        n_users=timeline.n_users,
        n_items=timeline.n_items,
        n_labels=1,
        hidden=hidden,  # type: ignore[arg-type]
        share=False,
        seed=seed,
        **changes,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(seed)
    for tensor in model.tensors().values():
        noise = 0.3 * rng.standard_normal(tuple(tensor.shape))
        tensor += torch.from_numpy(noise.astype(np.float32))
    return model
