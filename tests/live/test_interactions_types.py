"""Events of several types: the strongest of a pair counts, one at a time or many at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import Timeline
from cfuica.live.interactions import Changes, merged
from cfuica.live.live_state import LiveState
from tests.live.ranking_world import artifact_of

N_TYPES = 3


def typed_timeline() -> Timeline:
    line = artifact_of("decay").interactions
    types = np.random.default_rng(0).integers(0, N_TYPES, len(line.items)).astype(np.uint8)
    return replace(line, types=types)


def state_of(line: Timeline) -> LiveState:
    artifact = artifact_of("decay")
    return LiveState.of(artifact.networks["warm"], line, artifact.rows)


def listed(line: Timeline) -> list[tuple]:
    columns = (line.users, line.items, line.times, line.types)
    return list(zip(*(each.tolist() for each in columns), strict=True))


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 4),
        st.integers(0, 8),
        st.integers(0, N_TYPES - 1),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=12,
    unique_by=lambda event: event[:2],
)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, timed=st.booleans())
def test_events_one_by_one_and_all_at_once_equal_the_definition(events, timed):
    line = typed_timeline()
    now = int(line.times.max())
    state = state_of(line)
    known = {row[:2]: (row[3], row[2]) for row in listed(line)}
    for user, item, time, type_, is_given in events:
        state.change(user, item, 0 if is_given else None, time if timed else None, type_, now=now)
        stored = known.get((user, item))
        if not is_given:
            known.pop((user, item), None)
        elif (
            stored is None
            or type_ > stored[0]
            or (type_ == stored[0] and (not timed or time > stored[1]))
        ):
            known[user, item] = (type_, time if timed else now)
    users, items, times, types, is_given = (
        np.array(column) for column in (zip(*events, strict=True) if events else [[]] * 5)
    )
    changes = Changes(
        users.astype(np.int32),
        items.astype(np.int32),
        np.zeros(len(users), np.uint8),
        is_given.astype(np.bool_),
        times.astype(np.int64) if timed else None,
        types.astype(np.uint8),
    )
    at_once, _ = merged(line, changes, now)
    assert {row[:2]: (row[3], row[2]) for row in listed(at_once)} == known
    assert listed(state.collected()) == listed(at_once)


def test_a_weaker_event_changes_no_bit_of_an_answer():
    line = typed_timeline()
    state = state_of(line)
    user, item, time, type_ = next(row for row in listed(line) if row[3] > 0)
    before = state.item_logits(state.profiles(np.array([user])))
    assert state.change(user, item, 0, time + 99, type_ - 1) is None
    assert np.array_equal(before, state.item_logits(state.profiles(np.array([user]))))
    assert state.types(user)[state.history("users", user)[0] == item] == [type_]
