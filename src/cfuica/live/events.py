"""Behaviours that are added, changed or taken back, many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.matrix import BehaviourMatrix
from cfuica.errors import DataError


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
        for user, item, label, given in zip(
            *(column.tolist() for column in vars(self).values()), strict=True
        ):
            yield user, item, label if given else None


def merged(old: BehaviourMatrix, changes: Changes) -> tuple[BehaviourMatrix, tuple[int, int, int]]:
    """The behaviours after the changes; how many were added, changed, removed."""
    users, items, labels = old.triplets()
    cells = _cells(users, items, old.n_items)  # ascending: by user, then by item
    changed_cells = _cells(changes.users, changes.items, old.n_items)
    place = np.searchsorted(cells, changed_cells)
    place[place == len(cells)] = 0
    was_there = cells[place] == changed_cells if len(cells) else np.zeros(len(place), np.bool_)
    stays = np.ones(len(cells), np.bool_)
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
    differs = labels[place[again]] != changes.labels[again]
    return matrix, (
        int((given & ~was_there).sum()),
        int(differs.sum()),
        int((was_there & ~given).sum()),
    )


def as_events(events: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """(user, item, rating) each, or more, as rows; of several for a pair the last counts."""
    for event in events:
        if not isinstance(event, list | tuple) or len(event) < 3:
            raise DataError(f"The event {event!r} is not of the form (user, item, rating).")
    last = {(event[0], event[1]): event[2] for event in events}
    try:
        return pl.DataFrame(
            {
                "user": [user for user, _ in last],
                "item": [item for _, item in last],
                "rating": pl.Series(list(last.values()), dtype=pl.Float64),
            }
        )
    except TypeError:
        raise DataError(
            "The events have ids of several types, or ratings that are no numbers; give integers "
            "or strings, and numbers."
        ) from None


def _cells(users: np.ndarray, items: np.ndarray, n_items: int) -> np.ndarray:
    cells: np.ndarray = users.astype(np.int64) * n_items + items
    return cells
