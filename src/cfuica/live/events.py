"""Behaviours that are added, changed or taken back, many at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfuica.data.matrix import BehaviourMatrix


@dataclass(frozen=True)
class Observed:
    """What some events changed: behaviours, and who is new."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    new_users: int = 0
    new_items: int = 0


@dataclass(frozen=True)
class Changes:
    """E changes by index, at most one of a pair: its label from now on, or none."""

    users: np.ndarray
    items: np.ndarray
    labels: np.ndarray
    """(E,) uint8"""
    given: np.ndarray
    """(E,) whether there is a label; else the behaviour is taken back."""

    def rows(self) -> Iterator[tuple[int, int, int | None]]:
        """user, item, label or None."""
        columns = (self.users, self.items, self.labels, self.given)
        for user, item, label, given in zip(*(c.tolist() for c in columns), strict=True):
            yield user, item, label if given else None


def merged(old: BehaviourMatrix, changes: Changes) -> tuple[BehaviourMatrix, Observed]:
    """The behaviours after the changes."""
    users, items, labels = old.triplets()
    ascending = cells(users, items, old.n_items)  # by user, then by item
    place, was_there = found(ascending, cells(changes.users, changes.items, old.n_items))
    stays = np.ones(len(ascending), np.bool_)
    stays[place[was_there]] = False
    given = changes.given
    matrix = BehaviourMatrix.from_triplets(
        np.concatenate((users[stays], changes.users[given])),
        np.concatenate((items[stays], changes.items[given])),
        np.concatenate((labels[stays], changes.labels[given])),
        n_users=old.n_users,
        n_items=old.n_items,
        n_labels=old.n_labels,
    )
    again = was_there & given
    return matrix, Observed(
        added=int((given & ~was_there).sum()),
        changed=int((labels[place[again]] != changes.labels[again]).sum()),
        removed=int((was_there & ~given).sum()),
    )


def cells(users: np.ndarray, items: np.ndarray, n_items: int) -> np.ndarray:
    """(n,) one number for each pair."""
    numbers: np.ndarray = users.astype(np.int64) * n_items + items
    return numbers


def found(ascending: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each of the wanted numbers is or would be, and whether it is there."""
    place = np.searchsorted(ascending, wanted)
    is_there = np.zeros(len(place), np.bool_)
    inside = place < len(ascending)
    is_there[inside] = ascending[place[inside]] == wanted[inside]
    return place, is_there
