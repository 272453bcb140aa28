"""Events as a live state reads them, and the users it predicts for.

`Changes` and `TimedChanges` are interactions that are added, changed or removed; `merged` and
`merged_timed` apply many of them at once. Of a pair the latest interaction counts: one that is not
later than the stored one changes nothing, and one without a time comes after all others. Equal
times keep the order of arrival.

`History` is the ad-hoc history of an anonymous user, `UserProfile` what a prediction reads of a
user, stored or anonymous. `compacted` drops the parameters of forgotten users before saving.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.model.network import Network
from cfuica.model.pairs import SideName
from cfuica.model.side import Side


@dataclass(frozen=True)
class Observed:
    """How many interactions some events changed, and how many users and items are new."""

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
    labels: np.ndarray  # (E,) uint8
    given: np.ndarray  # (E,) whether there is a label; else the interaction is removed.

    def rows(self) -> Iterator[tuple[int, int, int | None]]:
        """user, item, label or None."""
        columns = (self.users, self.items, self.labels, self.given)
        for user, item, label, given in zip(*(c.tolist() for c in columns), strict=True):
            yield user, item, label if given else None


def merged(old: InteractionMatrix, changes: Changes) -> tuple[InteractionMatrix, Observed]:
    """The interactions after the changes."""
    users, items, labels = old.triplets()
    ascending = cells(users, items, old.n_items)  # by user, then by item
    place, was_there = found(ascending, cells(changes.users, changes.items, old.n_items))
    stays = np.ones(len(ascending), np.bool_)
    stays[place[was_there]] = False
    given = changes.given
    matrix = InteractionMatrix.from_triplets(
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


@dataclass(frozen=True)
class TimedChanges:
    """E changes by index, at most one of a pair, in order of arrival."""

    users: np.ndarray
    items: np.ndarray
    times: np.ndarray | None  # (E,) int64; None: now
    given: np.ndarray  # (E,) whether the interaction is added; else it is removed.

    def rows(self) -> Iterator[tuple[int, int, int | None, bool]]:
        """user, item, time (None: now), and whether the interaction is added."""
        times = [None] * len(self.users) if self.times is None else self.times.tolist()
        users, items, given = (each.tolist() for each in (self.users, self.items, self.given))
        return zip(users, items, times, given, strict=True)


def merged_timed(old: Timeline, timed: TimedChanges, now: int) -> tuple[Timeline, Observed]:
    """The interactions after the changes; `now` is the time of those that have none."""
    users = old.users
    own = cells(users, old.items, old.n_items)
    order = np.argsort(own)
    place, was_there = found(own[order], cells(timed.users, timed.items, old.n_items))
    at = np.full(len(place), -1)  # where each pair is stored
    at[was_there] = order[place[was_there]]
    again = timed.given & was_there
    if timed.times is None:
        times, moves = np.full(len(place), now), again
    else:
        times, before = timed.times, old.times[at] if old.n_interactions else timed.times
        moves = again & (times > before)
    stays = np.ones(old.n_interactions, np.bool_)
    stays[at[moves | (was_there & ~timed.given)]] = False
    comes = (timed.given & ~was_there) | moves
    timeline = Timeline.of(
        np.concatenate((users[stays], timed.users[comes])),
        np.concatenate((old.items[stays], timed.items[comes])),
        np.concatenate((old.times[stays], times[comes])),
        n_users=old.n_users,
        n_items=old.n_items,
    )
    return timeline, Observed(
        added=int((timed.given & ~was_there).sum()),
        changed=int(moves.sum()),
        removed=int((was_there & ~timed.given).sum()),
    )


@dataclass(frozen=True, eq=False)
class History:
    """The ad-hoc history of an anonymous user."""

    items: np.ndarray  # (n,) int32 indices, distinct; newest last, where the model reads the order
    labels: np.ndarray  # (n,) uint8; all 0 where the model does not read ratings


@dataclass(frozen=True, eq=False)
class UserProfile:
    """What a prediction reads of one user, as it was when the profile was made."""

    user: int | None  # index in the state, None for an anonymous user
    row: int  # table row of the users side
    items: np.ndarray  # (n,) int32 history, ascending
    labels: np.ndarray  # (n,) uint8
    # (H_I,) float64: c + the rows of W of the history; empty where there is no items side
    sums_h: np.ndarray


def compacted(
    network: Network, rows: dict[SideName, np.ndarray]
) -> tuple[Network, dict[SideName, np.ndarray]]:
    """The network without unused table rows, and the row of each user and item in it.

    The shared row stays, as the last one. Users or items without a side have no table, and their
    rows are all 0. The arguments are not changed.
    """
    sides: dict[SideName, Side] = {}
    new_rows = {axis: np.zeros_like(own) for axis, own in rows.items()}
    for name, side in network.sides.items():
        used = np.unique(np.append(rows[name], side.shared_row))
        new_rows[name] = np.searchsorted(used, rows[name]).astype(np.int32)
        if len(used) == side.shared_row + 1:
            sides[name] = side
            continue
        tensors = side.tensors()
        used_rows = torch.from_numpy(used).to(network.device, torch.int64)
        for table in ("encoder_nkh", "decoder_nkh", "decoder_bias_nk"):
            tensors[table] = tensors[table][used_rows]
        sides[name] = side.with_tensors(tensors)
    return Network(sides, network.bilinear), new_rows
