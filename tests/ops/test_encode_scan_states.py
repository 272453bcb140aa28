"""States that go on, and what they would be without an interaction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import encode
from cfuica.ops.runtime import run_rows
from cfuica.ops.tables import Histories, RowTable

ROWS = 7
histories = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=9), min_size=1, max_size=5)


def world(hidden: int, seed: int, *, learns_decay: bool) -> tuple[np.ndarray, ...]:
    """W as rows, decays, scales."""
    rng = np.random.default_rng(seed)
    rows_rh = rng.normal(size=(ROWS, hidden))
    decay_h = rng.uniform(0, 1, hidden) if learns_decay else np.ones(hidden)
    scale_h = rng.uniform(0.5, 2, hidden)
    return tuple(array.astype(np.float32) for array in (rows_rh, decay_h, scale_h))


def compressed(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, lists)])
    return offsets, np.array([entry for own in lists for entry in own], np.int64)


@settings(max_examples=30, deadline=None)
@given(
    lists=histories, hidden=st.integers(1, 19), seed=st.integers(0, 9), learns_decay=st.booleans()
)
def test_a_state_has_the_bits_of_a_scan_however_it_went_on(lists, hidden, seed, learns_decay):
    rows_rh, decay_h, scale_h = world(hidden, seed, learns_decay=learns_decay)
    offsets, entries = compressed(lists)
    at_once_uh = np.zeros((len(lists), hidden), np.float32)
    run_rows(encode.advance, len(lists), rows_rh, offsets, entries, decay_h, at_once_uh)
    step_uh = np.zeros_like(at_once_uh)
    for user, own in enumerate(lists):
        for entry in own:
            encode.advance(
                rows_rh,
                np.array([0, 1]),
                np.array([entry]),
                decay_h,
                step_uh[user : user + 1],
                0,
                1,
            )
    np.testing.assert_array_equal(step_uh, at_once_uh)

    # A position after the first interaction has read all of them by then.
    positions = np.zeros(len(entries), np.int32)
    position_offsets = np.cumsum([0, *(1 + (len(own) > 0) for own in lists)])
    histories = Histories(offsets, entries.astype(np.int32), positions, position_offsets)
    table = RowTable(torch.from_numpy(rows_rh)[:, None])
    factors = torch.from_numpy(decay_h), torch.from_numpy(scale_h)
    with torch.no_grad():
        states_uh = encode.scan(table, histories, factors).numpy()[histories.last_positions]
    np.testing.assert_array_equal(scale_h * at_once_uh, states_uh)


@pytest.mark.parametrize("threads", ["1", "3"])
@settings(max_examples=30, deadline=None)
@given(
    lists=histories, hidden=st.integers(1, 19), seed=st.integers(0, 9), learns_decay=st.booleans()
)
def test_leaving_one_out_is_a_replay_without_it(threads, lists, hidden, seed, learns_decay):
    rows_rh, decay_h, _ = world(hidden, seed, learns_decay=learns_decay)
    offsets, entries = compressed(lists)
    states_bh = np.full((len(entries), hidden), np.nan, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFUICA_THREADS", threads)
        run_rows(
            encode.without_each, len(lists), rows_rh, offsets, entries, decay_h, states_bh,
            work=offsets,
        )  # fmt: skip
    expected = []
    for own in lists:
        for at in range(len(own)):
            state_h = np.zeros(hidden)
            for entry in own[:at] + own[at + 1 :]:
                state_h = decay_h * state_h + rows_rh[entry].astype(np.float64)
            expected.append(state_h)
    np.testing.assert_allclose(states_bh, np.reshape(expected, (-1, hidden)), rtol=1e-5, atol=1e-5)
