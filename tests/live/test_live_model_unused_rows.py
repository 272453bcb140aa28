"""Snapshots without the parameters of the forgotten."""

from __future__ import annotations

import copy

import numpy as np
import polars as pl
import pytest

from cfuica.artifact import Artifact, saved_tensors
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.live.live_model import LiveModel
from cfuica.live.live_state import LiveState
from cfuica.model.network import Network
from cfuica.ops.tables import SIDES
from cfuica.settings import RatingSettings
from tests.live.reference import everything
from tests.model.reference import matrix_of, random_cells

N_USERS, N_ITEMS, N_LABELS = 6, 5, 3
SIDE_SETS = ["both", "users", "items"]


def live_model(sides: str = "both", cold_start: int = 1) -> LiveModel:
    """Whose last users and items have the shared row."""
    settings = RatingSettings(hidden_users=4, hidden_items=3, sides=sides)
    network = Network.of(settings, {"users": N_USERS + 1, "items": N_ITEMS + 1}, N_LABELS)
    rng = np.random.default_rng(0)
    for tensor in network.state_dict().values():
        tensor.numpy()[:] = rng.normal(size=tensor.shape)
    rows = {}
    for axis, size in (("users", N_USERS), ("items", N_ITEMS)):
        rows[axis] = np.arange(size, dtype=np.int32)
        rows[axis][size - cold_start :] = size
        if sides not in ("both", axis):
            rows[axis][:] = 0
    cells = random_cells(N_USERS, N_ITEMS, N_LABELS, 20)
    return LiveModel(
        Artifact(
            settings=settings,
            networks={"warm": network},
            users=Vocabulary(pl.Series("id", range(N_USERS))),
            items=Vocabulary(pl.Series("id", range(N_ITEMS))),
            rows=rows,
            interactions=matrix_of(cells, N_USERS, N_ITEMS, N_LABELS),
            scale=LabelScale((1.0, 2.0, 4.0)),
        )
    )


@pytest.mark.parametrize("sides", SIDE_SETS)
def test_rows_that_nobody_uses_are_dropped_and_predictions_stay(sides: str) -> None:
    live = live_model(sides)
    network = live.state.network
    forgotten = {"users": [1, 3], "items": [0]}
    old = {
        (name, index): network.sides[name].W.array[index].copy()
        for name in network.sides
        for index in forgotten[name]
    }
    for axis, indices in forgotten.items():
        for index in indices:
            live.forget(axis, index)
    live.observe_one(2, 77, 4.0)
    before = saved_tensors(copy.deepcopy(network))
    snapshot = live.snapshot()
    made = snapshot.networks["warm"]
    fresh = everything(LiveState.of(made, snapshot.interactions, snapshot.rows))
    kept = {axis: live.ids[axis].present() for axis in SIDES}
    said = live.state.pair_logits(
        np.repeat(kept["users"], len(kept["items"])), np.tile(kept["items"], len(kept["users"]))
    )
    assert np.array_equal(fresh["pairs"], said)
    warm = {"users": N_USERS - 3, "items": N_ITEMS - 2}
    for name, side in made.sides.items():
        assert side.shared_row == warm[name]
        assert snapshot.rows[name].dtype == np.int32
        assert np.array_equal(
            snapshot.rows[name] == side.shared_row, live.state.is_cold(name, kept[name])
        )
    for (name, _), weights in old.items():
        assert not (made.sides[name].W.array == weights).all((1, 2)).any()
    # The live model does not share what the snapshot holds.
    for name in made.sides:
        made.sides[name].W.array[:] = 0
    for name, tensor in saved_tensors(network).items():
        assert np.array_equal(tensor, before[name]), name


def test_a_network_of_which_all_rows_are_used_stays_as_it_is() -> None:
    live = live_model(cold_start=0)
    live.observe_one(0, 0, 4.0)
    snapshot = live.snapshot()
    assert snapshot.networks["warm"] is live.state.network
    for axis in SIDES:
        assert np.array_equal(snapshot.rows[axis], live.artifact.rows[axis])


def test_a_model_of_cold_start_only_keeps_the_shared_row() -> None:
    live = live_model()
    for axis, size in (("users", N_USERS), ("items", N_ITEMS)):
        for index in range(size):
            live.forget(axis, index)
    live.observe_one(7, 8, 1.0)
    snapshot = live.snapshot()
    for axis in SIDES:
        assert snapshot.networks["warm"].sides[axis].shared_row == 0
        assert snapshot.rows[axis].tolist() == [0]
