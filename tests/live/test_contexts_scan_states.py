"""States of users, kept or made at every need."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.live.histories import LiveHistories
from cfuica.live.ranking_state import RankingState
from tests.live.ranking_world import ITEMS, KINDS, USERS, artifact_of

UNITS = 5 * 4


def state_of(kind: str, cache_bytes: int) -> RankingState:
    warm = artifact_of(kind)
    return RankingState.of(warm.network, warm.timeline, warm.rows, cache_bytes=cache_bytes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cached", [0, 1, 4])
def test_answers_do_not_depend_on_what_is_kept(kind: str, cached: int) -> None:
    large, small = (state_of(kind, size) for size in (1 << 20, cached * UNITS))
    for at, state in enumerate((large, small)):
        state.add("users", 2)
        state.add("items", 1)
        state.add_interaction(len(USERS), 2, 3)
        state.add_interaction(1, len(ITEMS), 99)
        if at:
            state.scores(state.user_vectors(np.arange(4)))  # what is asked before, too
        state.add_interaction(2, len(ITEMS), -1)
        state.remove_interaction(1, len(ITEMS))
    all_rows = np.arange(large.size("users"))
    expected, found = (state.scores(state.user_vectors(all_rows)) for state in (large, small))
    np.testing.assert_array_equal(found, expected)
    one = np.array([3, 0, 3])
    np.testing.assert_array_equal(small.scores(small.user_vectors(one)), expected[one])


def test_histories_change_without_touching_the_timeline_they_began_with() -> None:
    line = artifact_of("decay").timeline
    before = line.sha256()
    histories = LiveHistories.of(line)
    assert histories.newest == line.times.max()
    histories.extend(1)
    newcomer = line.n_users
    past = histories.of_user(newcomer)
    assert past.find(3) is None
    histories.put(newcomer, past.with_one(0, 3, 77).with_one(0, 4, -5))
    assert histories.newest == 77
    assert histories.of_user(newcomer).items.tolist() == [4, 3]
    assert histories.lengths[newcomer] == 2
    place = histories.of_user(newcomer).find(3)
    assert place == 1
    histories.put(newcomer, histories.of_user(newcomer).without(place))
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
