"""Users and items that training did not know."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cfuica.data.table import Interactions
from cfuica.models.co_autoregressive import RatingModel
from tests.runs.small import TINY, small_table


def test_without_a_network_of_their_own_cold_start_have_the_mean_of_all_rows(
    model: RatingModel,
) -> None:
    for side in model.artifact.networks["warm"].sides.values():
        for table in side.tables.values():
            own = table.array
            np.testing.assert_allclose(own[-1], own[:-1].mean(0), atol=1e-6)
    unknown = model.predict({"user": ["x", "y"], "item": [3, 3]})["prediction"]
    assert unknown.n_unique() == 1
    assert unknown.is_between(1, 5).all()


def test_whoever_is_a_cold_start_is_answered_by_the_cold_start_network(live: RatingModel) -> None:
    pairs = pl.DataFrame({"user": [3, 3, 9999, 9999], "item": [5, 9999, 5, 9999]})
    before = live.predict_proba(pairs)
    for side in live.artifact.networks["cold_start"].sides.values():
        side.b.array[:, 0] += 5
    after = live.predict_proba(pairs)
    assert np.array_equal(after[0], before[0])
    assert (after[1:, 0] > before[1:, 0] + 0.1).all()


def test_what_cold_start_rate_changes_what_is_predicted_for_them(live: RatingModel) -> None:
    """And those who gave the same ratings are predicted the same."""
    loves = [(item, 5.0) for item in range(1, 11)]
    hates = [(item, 1.0) for item in range(1, 11)]
    frame = pl.DataFrame(
        [
            (user, *rated)
            for user, told in ((1000, loves), (1001, hates), (1002, loves))
            for rated in told
        ],
        schema=["user", "item", "rating"],
        orient="row",
    )
    assert live.observe(frame).new_users == 3
    love, hate, same = live.predict({"user": [1000, 1001, 1002], "item": [40] * 3})["prediction"]
    assert love != hate
    assert same == love


def test_cold_start_with_a_history_are_predicted_better_than_without() -> None:
    world = small_table().frame
    cold_start = world.filter(pl.col("user") > 80)
    model = RatingModel(TINY.replaced(cold_start_units=8, max_steps=300)).fit(
        world.filter(pl.col("user") <= 80)
    )
    order = np.random.default_rng(0).permutation(cold_start.height)
    told, asked = cold_start[order[:300]], cold_start[order[300:]]
    before = model.evaluate(asked).rmse
    assert model.observe(told).new_users == cold_start["user"].n_unique()
    assert model.evaluate(asked).rmse < before


def test_a_known_id_without_a_rating_is_a_cold_start_until_it_has_one() -> None:
    world = small_table().frame.select("user", "item", "rating")
    extra = pl.DataFrame({"user": [777], "item": [888], "rating": [0.0]})
    table = Interactions.from_frame(pl.concat([world, extra]), no_rating=(0.0,))
    model = RatingModel(TINY.replaced(max_steps=2, cold_start_units=3)).fit(table)
    assert model.live_model.state.is_cold("users").sum() == 2, "777 and nobody"
    pairs = {"user": [777, 12345], "item": [3, 3]}
    own, unknown = model.predict(pairs, unknown="serve")["prediction"]
    assert own == unknown
    assert model.observe([(777, 1, 5.0)]).new_users == 0
    own, unknown = model.predict(pairs)["prediction"]
    assert own != unknown


@pytest.mark.parametrize("sides", ["users", "items"])
def test_where_an_axis_has_no_parameters_nobody_on_it_is_a_cold_start(sides: str) -> None:
    model = RatingModel(TINY.replaced(sides=sides, max_steps=2)).fit(small_table())
    other = "items" if sides == "users" else "users"
    model.observe([(1000, 2000, 5.0)])
    assert not model.live_model.state.is_cold(other).any()  # type: ignore[arg-type]
    assert model.live_model.state.is_cold(sides).sum() == 2, "the newcomer and nobody"  # type: ignore[arg-type]
