"""Many behaviours at once, against one after another."""

from __future__ import annotations

import numpy as np

from cfuica.data.timeline import Timeline
from cfuica.live.deeds import Deeds, merged
from cfuica.live.events import Observed

OLD = Timeline.of(
    np.array([0, 0, 1, 0], np.int32),
    np.array([1, 2, 1, 3], np.int32),
    np.array([0, 1, 0, 2], np.uint8),
    np.array([5, 6, 6, 6]),
    n_users=3,
    n_items=5,
    n_labels=3,
)


def after(*rows: tuple[int, int, int | None, int], timed: bool = True) -> tuple[list, Observed]:
    """Each user's (item, label, time) after these (user, item, label or None, time)."""
    users, items, labels, times = zip(*rows, strict=True)
    deeds = Deeds(
        np.array(users, np.int32),
        np.array(items, np.int32),
        np.array([label or 0 for label in labels], np.uint8),
        np.array(times) if timed else None,
        np.array([label is not None for label in labels]),
    )
    line, made = merged(OLD, deeds, 6)
    own = zip(line.items.tolist(), line.labels.tolist(), line.times.tolist(), strict=True)
    deeds_of: list[list] = [[] for _ in range(line.n_users)]
    for user, deed in zip(line.users.tolist(), own, strict=True):
        deeds_of[user].append(deed)
    return deeds_of, made


FIRST = [(1, 0, 5), (2, 1, 6), (3, 2, 6)]


def test_what_has_the_same_time_is_in_the_order_it_came_in() -> None:
    found, made = after((0, 4, 1, 6), (0, 0, 1, 5), (2, 0, 0, -3))
    assert found[0] == [(1, 0, 5), (0, 1, 5), (2, 1, 6), (3, 2, 6), (4, 1, 6)]
    assert found[2] == [(0, 0, -3)]
    assert made == Observed(added=3)


def test_of_a_pair_the_latest_counts_and_the_same_time_corrects() -> None:
    found, made = after((0, 1, 2, 4), (0, 2, 2, 6), (1, 1, 1, 7))
    assert found[0] == [(1, 0, 5), (2, 2, 6), (3, 2, 6)]
    assert found[1] == [(1, 1, 7)]
    assert made == Observed(changed=2)
    assert after((0, 2, 1, 6)) == ([FIRST, [(1, 0, 6)], []], Observed())


def test_what_has_no_time_comes_after_everything() -> None:
    found, made = after((0, 1, 0, 0), (0, 4, 1, 0), (1, 2, None, 0), (1, 1, None, 0), timed=False)
    assert found[0] == [(2, 1, 6), (3, 2, 6), (1, 0, 6), (4, 1, 6)]
    assert found[1] == []
    assert made == Observed(added=1, changed=1, removed=1)
