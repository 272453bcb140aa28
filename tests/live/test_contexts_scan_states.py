"""States of users, kept or made at every need."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.live.interactions import LiveHistories
from cfuica.live.live_state import LiveState
from tests.live.ranking_world import ITEMS, KINDS, USERS, artifact_of

UNITS = 5 * 4


def state_of(kind: str, cache_bytes: int) -> LiveState:
    warm = artifact_of(kind)
    return LiveState.of(
        warm.networks["warm"], warm.interactions, warm.rows, cache_bytes=cache_bytes
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cached", [0, 1, 4])
def test_answers_do_not_depend_on_what_is_kept(kind: str, cached: int) -> None:
    large, small = (state_of(kind, size) for size in (1 << 20, cached * UNITS * 2))
    for at, state in enumerate((large, small)):
        state.add("users", 2)
        state.add("items", 1)
        state.change(len(USERS), 2, 0, 3)
        state.change(1, len(ITEMS), 0, 99)
        if at:
            state.item_logits(state.profiles(np.arange(4)))  # what is asked before, too
        state.change(2, len(ITEMS), 0, -1)
        state.change(1, len(ITEMS), None)
    all_rows = np.arange(large.size("users"))
    expected, found = (state.item_logits(state.profiles(all_rows)) for state in (large, small))
    np.testing.assert_array_equal(found, expected)
    one = np.array([3, 0, 3])
    np.testing.assert_array_equal(small.item_logits(small.profiles(one)), expected[one])
    users_p, items_p = np.divmod(np.arange(expected[..., 0].size), expected.shape[1])
    np.testing.assert_array_equal(
        small.pair_logits(users_p, items_p), large.pair_logits(users_p, items_p)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_that_is_left_out_is_told_as_if_it_had_never_been(kind: str) -> None:
    """Up to rounding: the recurrence is summed in another order."""
    state = state_of(kind, 1 << 20)
    for user in range(len(USERS) - 1):
        for item in state.history("users", user)[0].tolist():
            fresh = state_of(kind, 1 << 20)
            pair = np.array([user]), np.array([item])
            found = state.pair_logits(*pair)
            fresh.change(user, item, None)
            np.testing.assert_allclose(found, fresh.pair_logits(*pair), rtol=1e-5, atol=1e-5)


def test_histories_change_without_touching_the_timeline_they_began_with() -> None:
    line = artifact_of("decay").interactions
    before = line.sha256()
    histories = LiveHistories(line)
    assert histories.newest == line.times.max()
    histories.extend(1)
    newcomer = line.n_users
    assert histories.find(newcomer, 3) is None
    assert histories.put(newcomer, 3, 77)
    assert not histories.put(newcomer, 4, -5)
    assert histories.newest == 77
    assert histories.row(newcomer)[0].tolist() == [4, 3]
    assert histories.lengths[newcomer] == 2
    assert histories.find(newcomer, 3) == (0, 77)
    histories.take(newcomer, 3)
    assert histories.newest == line.times.max()
    offsets, items = histories.together(np.array([newcomer, 0]))
    own = line.offsets[1]
    assert offsets.tolist() == [0, 1, 1 + own]
    assert items.tolist() == [4, *line.items[:own]]
    now = histories.timeline(line.n_items + 1)
    assert (now.n_users, now.n_items) == (line.n_users + 1, line.n_items + 1)
    assert now.n_interactions == line.n_interactions + 1
    np.testing.assert_array_equal(now.times[:-1], line.times)
    assert line.sha256() == before
