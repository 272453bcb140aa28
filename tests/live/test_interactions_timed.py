"""Many interactions at once, against one after another."""

from __future__ import annotations

import numpy as np

from cfuica.data.matrix import Timeline
from cfuica.live.interactions import Changes, Observed, merged

OLD = Timeline.of(
    np.array([0, 0, 1, 0], np.int32),
    np.array([1, 2, 1, 3], np.int32),
    np.array([5, 6, 6, 6]),
    n_users=3,
    n_items=5,
)


def after(*rows: tuple[int, int, int, bool], timed: bool = True) -> tuple[list, Observed]:
    """Each user's (item, time) after these (user, item, time, whether it happened)."""
    users, items, times, given = zip(*rows, strict=True)
    changes = Changes(
        np.array(users, np.int32),
        np.array(items, np.int32),
        np.zeros(len(users), np.uint8),
        np.array(given),
        np.array(times) if timed else None,
    )
    line, made = merged(OLD, changes, 6)
    own = zip(line.items.tolist(), line.times.tolist(), strict=True)
    deeds_of: list[list] = [[] for _ in range(line.n_users)]
    for user, deed in zip(line.users.tolist(), own, strict=True):
        deeds_of[user].append(deed)
    return deeds_of, made


FIRST = [(1, 5), (2, 6), (3, 6)]


def test_what_has_the_same_time_is_in_the_order_it_came_in() -> None:
    found, made = after((0, 4, 6, True), (0, 0, 5, True), (2, 0, -3, True))
    assert found[0] == [(1, 5), (0, 5), (2, 6), (3, 6), (4, 6)]
    assert found[2] == [(0, -3)]
    assert made == Observed(added=3)


def test_of_a_pair_the_latest_counts() -> None:
    found, made = after((0, 1, 4, True), (0, 2, 6, True), (1, 1, 7, True))
    assert found == [FIRST, [(1, 7)], []]
    assert made == Observed(changed=1)
    assert after((0, 2, 6, True)) == ([FIRST, [(1, 6)], []], Observed())


def test_what_has_no_time_comes_after_everything() -> None:
    found, made = after(
        (0, 1, 0, True), (0, 4, 0, True), (1, 2, 0, False), (1, 1, 0, False), timed=False
    )
    assert found[0] == [(2, 6), (3, 6), (1, 6), (4, 6)]
    assert found[1] == []
    assert made == Observed(added=1, changed=1, removed=1)
