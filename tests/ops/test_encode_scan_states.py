"""States that go on, and what they would be without an interaction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import encode, reference
from cfuica.ops.encode import TANH
from cfuica.ops.runtime import run_rows

ROWS = 7
histories = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=9), min_size=1, max_size=5)


def world(hidden: int, seed: int, *, learns_decay: bool) -> tuple[np.ndarray, ...]:
    """W as rows, decays, scales, c."""
    rng = np.random.default_rng(seed)
    rows_rh, bias_h = rng.normal(size=(ROWS, hidden)), rng.normal(size=hidden)
    decay_h = rng.uniform(0, 1, hidden) if learns_decay else np.ones(hidden)
    scale_h = rng.uniform(0.5, 2, hidden)
    return tuple(array.astype(np.float32) for array in (rows_rh, decay_h, scale_h, bias_h))


def compressed(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, lists)])
    return offsets, np.array([entry for own in lists for entry in own], np.int64)


@settings(max_examples=30, deadline=None)
@given(
    lists=histories, hidden=st.integers(1, 19), seed=st.integers(0, 9), learns_decay=st.booleans()
)
def test_a_state_has_the_bits_of_a_scan_however_it_went_on(lists, hidden, seed, learns_decay):
    rows_rh, decay_h, scale_h, bias_h = world(hidden, seed, learns_decay=learns_decay)
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

    hidden_uh = np.empty_like(at_once_uh)
    run_rows(encode.read, len(lists), at_once_uh, scale_h, bias_h, TANH, hidden_uh)
    positions = np.zeros(len(entries), np.int32)
    position_offsets = np.cumsum([0, *(1 + (len(own) > 0) for own in lists)])
    sums_qh = np.empty((position_offsets[-1], hidden), np.float32)
    hidden_qh = np.empty_like(sums_qh)
    encode.scan(
        rows_rh, offsets, entries, positions, position_offsets, decay_h, scale_h, bias_h, TANH,
        sums_qh, hidden_qh, 0, len(lists),
    )  # fmt: skip
    np.testing.assert_array_equal(hidden_uh, hidden_qh[position_offsets[1:] - 1])

    tensors = (torch.from_numpy(a) for a in (offsets, entries, positions.astype(np.int64)))
    defined_qh = reference.scan(
        torch.from_numpy(rows_rh)[:, None],
        torch.from_numpy(bias_h),
        *tensors,
        torch.from_numpy(position_offsets),
        torch.from_numpy(decay_h),
        torch.from_numpy(scale_h),
    )
    expected_uh = np.tanh(defined_qh.numpy()[position_offsets[1:] - 1])
    np.testing.assert_allclose(hidden_uh, expected_uh, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", ["1", "3"])
@settings(max_examples=30, deadline=None)
@given(
    lists=histories, hidden=st.integers(1, 19), seed=st.integers(0, 9), learns_decay=st.booleans()
)
def test_leaving_one_out_is_a_replay_without_it(threads, lists, hidden, seed, learns_decay):
    rows_rh, decay_h, _, _ = world(hidden, seed, learns_decay=learns_decay)
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
