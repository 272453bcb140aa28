"""Settings that follow the size of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.models.co_autoregressive import RankingModel, RatingModel
from cfuica.settings import ranking_preset, rating_preset
from cfuica.sizing import DataSize, rating_settings

SIZES = st.builds(
    DataSize,
    st.integers(2, 10**6),
    st.integers(2, 10**6),
    st.integers(10**3, 10**8),
    st.integers(2, 20),
    st.just(0),
    st.just(0),
)


@pytest.mark.parametrize("ratings", [800_188, 855_179, 900_188, 950_198, 1_000_209])
def test_the_train_sets_of_movielens_1m_have_the_settings_that_were_tuned_on_it(
    ratings: int,
) -> None:
    preset = rating_preset("default")
    found = preset.settled(DataSize(6040, 3706, ratings, 5))
    l2 = 1e-4 * (855_179 / ratings) ** 0.5
    assert found == preset.replaced(l2=l2, sized=())
    assert (found.hidden_users, found.hidden_items, found.cold_start_units) == (256, 256, 128)
    assert (found.max_steps, found.validate_every, found.ensemble_size) == (2400, 200, 3)
    assert (found.batch_users, found.batch_items) == (1000, 1000)
    assert (found.learning_rate, found.epsilon, found.start_from_biases) == (8e-3, 1e-4, False)
    assert found.max_context is None


@pytest.mark.parametrize("interactions", [988_129, 994_169, 1_000_209])
def test_the_ranking_of_movielens_1m_has_the_settings_that_were_tuned_on_it(
    interactions: int,
) -> None:
    preset = ranking_preset("default")
    assert preset.settled(DataSize(6040, 3706, interactions)) == preset.replaced(sized=())


@given(SIZES)
@settings(deadline=None, max_examples=50)
def test_every_size_has_usable_settings_of_bounded_cost(size: DataSize) -> None:
    found = rating_preset("default").settled(size)
    assert found.sized == ()
    assert min(found.hidden_users, found.hidden_items) >= 16
    assert max(found.hidden_users, found.hidden_items) <= 256
    assert 200 <= found.max_steps <= 15_000
    assert found.max_steps >= 10 * found.validate_every
    assert 1 <= found.ensemble_size <= 3
    most = size.interactions // (found.min_row_interactions or 1)
    for n, units in ((size.users, found.hidden_users), (size.items, found.hidden_items)):
        assert units == 16 or 2 * size.labels * min(n, most) * units < 1.5e8
    ranking = ranking_preset("default").settled(size)
    assert 32 <= ranking.batch_users <= 512
    assert ranking.epochs is not None
    assert ranking.epochs * size.users / ranking.batch_users <= 12_100
    assert ranking.validate_every <= 1500
    assert (ranking.loss == "sampled-softmax") == (size.items > 20_000)


@given(SIZES, st.floats(1.0, 100.0))
@settings(deadline=None, max_examples=50)
def test_more_interactions_of_the_same_users_and_items_are_trained_on_longer(
    size: DataSize, factor: float
) -> None:
    more = size._replace(interactions=round(size.interactions * factor))
    less, found = rating_settings(size), rating_settings(more)
    names = ["max_steps"]
    if less["min_row_interactions"] is None:  # else rows that were shared may no longer be
        names += ["hidden_users", "hidden_items", "cold_start_units"]
        if more.interactions <= 1_200_000:
            names += ["learning_rate"]
        assert found["epsilon"] <= less["epsilon"]
    for name in names:
        assert found[name] >= less[name], name
    for name in ("l2", "ensemble_size"):
        assert found[name] <= less[name], name
    for each, ratings in ((less, size.interactions), (found, more.interactions)):
        assert each["start_from_biases"] or 800_000 <= ratings <= 1_200_000
        assert (each["max_context"] is None) == (ratings <= 1_200_000)


@given(SIZES, st.floats(1.0, 100.0))
@settings(deadline=None, max_examples=50)
def test_larger_data_is_trained_on_with_a_lower_rate(size: DataSize, factor: float) -> None:
    size = size._replace(interactions=max(size.interactions, 20 * (size.users + size.items)))
    more = size._replace(interactions=round(size.interactions * factor))
    if size.interactions >= 1_200_000:
        assert rating_settings(more)["learning_rate"] <= rating_settings(size)["learning_rate"]


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ("5,000 ratings of MovieLens 100K", DataSize(900, 1100, 4275, 5)),
        ("20,000 ratings of MovieLens 100K", DataSize(943, 1400, 17_100, 5)),
        ("60,000 ratings from 1 to 100, in 20 bins", DataSize(1000, 500, 51_300, 20)),
        ("MovieLens 100K, 10^5", DataSize(943, 1682, 85_500, 5)),
        ("MovieLens 1M, 10^6", DataSize(6040, 3706, 855_179, 5)),
        ("MovieLens 10M, 10^7", DataSize(69_878, 10_677, 9_500_000, 10)),
        ("10^8 by 480,189 users of 17,770 items", DataSize(480_189, 17_770, 10**8, 5)),
        ("the same, with 20,000 clusters", DataSize(480_189, 17_770, 10**8, 5, 20_000)),
        ("3 million by 300,000 users", DataSize(300_000, 300_000, 3_000_000, 5)),
    ],
)
def test_the_documentation_has_what_comes_out(row: str, size: DataSize) -> None:
    text = (Path(__file__).parents[1] / "docs" / "tuning.md").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"| {row}"))
    found = rating_settings(size)
    assert (
        f"| {found['hidden_users']} + {found['hidden_items']} ({found['cold_start_units']}) "
        f"| {found['ensemble_size']} + 1 "
        f"| {found['batch_users']:,} x {found['batch_items']:,} | {found['max_steps']:,} |" in line
    )
    assert line.endswith(f"| {'yes' if found['start_from_biases'] else 'no'} |")


def test_rows_that_users_share_leave_more_hidden_units() -> None:
    size = DataSize(480_189, 17_770, 99_072_112, 5)
    own = rating_preset("default").settled(size)
    shared = rating_preset("default").replaced(user_clusters=20_000).settled(size)
    assert (own.hidden_users, own.hidden_items) == (16, 256)
    assert (shared.hidden_users, shared.hidden_items) == (256, 256)


def test_large_sparse_data_gives_rows_to_those_with_enough_interactions() -> None:
    shop = DataSize(300_000, 300_000, 3_000_000, 5)
    assert rating_settings(shop)["min_row_interactions"] == 50
    assert rating_settings(shop._replace(interactions=20_000_000))["min_row_interactions"] is None
    small = DataSize(900, 1100, 4275, 5)
    assert rating_settings(small)["min_row_interactions"] is None
    clustered = shop._replace(user_clusters=1000, item_clusters=1000)
    assert rating_settings(clustered)["min_row_interactions"] is None


def test_a_setting_that_is_given_wins() -> None:
    small = DataSize(100, 100, 5000, 5)
    given = rating_preset("default").replaced(max_steps=7, l2=0.5)
    found = given.settled(small)
    assert (found.max_steps, found.l2) == (7, 0.5)
    assert found.hidden_users == rating_settings(small)["hidden_users"] < 256
    assert found.settled(DataSize(9, 9, 10**8)) == found  # chosen once
    assert rating_preset("paper").settled(small) == rating_preset("paper")


def test_sparse_data_has_blocks_with_enough_pairs() -> None:
    """1,000 x 1,000 of 300,000 x 300,000 would have 33 of 3 million interactions."""
    size = DataSize(300_000, 300_000, 3_000_000, 5)
    found = rating_settings(size)
    share = found["batch_users"] * found["batch_items"] / (size.users * size.items)
    assert 20_000 < share * size.interactions < 80_000


TINY: dict[str, Any] = {"hidden_users": 4, "hidden_items": 4, "residual_units": 4}


def test_a_catalogue_of_50_000_items_is_ranked_with_the_sampled_softmax() -> None:
    frame = pl.DataFrame(
        {
            "user": np.arange(50_000) % 40,
            "item": np.random.default_rng(0).permutation(50_000),
            "timestamp": np.arange(50_000),
        }
    )
    given = ranking_preset("default").replaced(**TINY, epochs=1, ensemble_size=1)
    model = RankingModel(given).fit(frame[:800], vocabulary=frame, progress=False)
    found = model.artifact.settings
    assert found == given.settled(DataSize(40, 50_000, 800))
    assert (found.loss, found.softmax_candidates) == ("sampled-softmax", 4000)
    assert model.trained is not None
    assert np.isfinite(model.trained.last.loss)


def test_a_fitted_model_has_the_settings_that_its_size_chose(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.permutation(60 * 40)[:600]
    frame = pl.DataFrame(
        {"user": pairs // 40, "item": pairs % 40, "rating": rng.integers(1, 6, 600)}
    )
    given = rating_preset("default").replaced(max_steps=2, ensemble_size=1, cold_start_units=0)
    model = RatingModel(given).fit(frame, progress=False)
    found = model.artifact.settings
    assert found == given.settled(DataSize(60, 40, 600, 5))
    assert found.hidden_users == 32
    model.save(tmp_path / "model")
    import cfuica

    assert cfuica.load(tmp_path / "model").artifact.settings == found
