"""Saved parameters without those of the forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.live.events import compacted
from cfuica.live.rating_state import RatingState
from cfuica.model.pairs import SIDES
from tests.live.reference import BOTH, N_ITEMS, N_USERS, LiveReference, everything


def rows_of(state: RatingState) -> dict[str, np.ndarray]:
    return {axis: state.rows(axis) for axis in SIDES}


@pytest.mark.parametrize("hidden", [BOTH, {"users": 4}, {"items": 4}])
def test_rows_that_nobody_uses_are_dropped_and_predictions_stay(hidden):
    state = LiveReference.random(hidden, observed=20, cold_start=1).state()
    forgotten = {"users": [1, 3], "items": [0]}
    old = {
        (name, index): state.network.sides[name].encoder_nkh[index].clone()
        for name in hidden
        for index in forgotten[name]
    }
    for axis, indices in forgotten.items():
        for index in indices:
            state.forget(axis, index)
    state.add("items", 2)
    before, rows = everything(state), rows_of(state)

    network, new_rows = compacted(state.network, rows)
    after = everything(RatingState.of(network, state.matrix(), new_rows))
    for name in before.keys() - {"rows users", "rows items"}:
        assert np.array_equal(after[name], before[name]), name
    warm = {"users": N_USERS - 3, "items": N_ITEMS - 2}
    for name, side in network.sides.items():
        assert side.shared_row == warm[name]
        assert (new_rows[name] == side.shared_row).tolist() == (
            rows[name] == state.network.sides[name].shared_row
        ).tolist()
        assert new_rows[name].dtype == np.int32
    for (name, _), weights in old.items():
        table = network.sides[name].encoder_nkh
        assert not (table == weights).flatten(1).all(1).any()


def test_a_model_of_which_all_rows_are_used_stays_as_it_is():
    state = LiveReference.random(cold_start=0).state()
    network, rows = compacted(state.network, rows_of(state))
    for name, side in network.sides.items():
        assert side is state.network.sides[name]
        assert np.array_equal(rows[name], state.rows(name))


@pytest.mark.parametrize("hidden", [BOTH, {"users": 4}])
def test_what_is_given_is_not_changed(hidden):
    state = LiveReference.random(hidden).state()
    state.forget("users", 0)
    rows = rows_of(state)
    before = {name: tensor.clone() for name, tensor in state.network.tensors().items()}
    given = {axis: own.copy() for axis, own in rows.items()}
    network, new_rows = compacted(state.network, rows)
    for own in new_rows.values():
        own[:] = -1
    network.sides["users"].encoder_nkh.zero_()
    for axis in SIDES:
        assert np.array_equal(rows[axis], given[axis])
    for name, tensor in state.network.tensors().items():
        assert np.array_equal(tensor.numpy(), before[name].numpy()), name


def test_a_model_of_cold_start_only_keeps_the_shared_row():
    state = LiveReference.random().state()
    for axis in SIDES:
        for index in range(state.size(axis)):
            state.forget(axis, index)
    network, rows = compacted(state.network, rows_of(state))
    for axis in SIDES:
        assert network.sides[axis].shared_row == 0
        assert not rows[axis].any()
