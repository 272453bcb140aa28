"""The synthetic world: believable, the same for ever, and its best RMSE the true one."""

from __future__ import annotations

import hashlib
import time

import numpy as np
import polars as pl
import pytest

from cfuica.data.splits import Split
from cfuica.data.synthetic import LEAST_RATINGS, NOISE, World, make_world, rating_moments
from cfuica.errors import SettingsError


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


@pytest.fixture(scope="module")
def ratings(world) -> pl.DataFrame:
    """The rows with the story and the part of each item, read from its title."""
    pattern = r"^(.*?)(?: (II|III|IV|V))?$"
    parts = {"II": 2, "III": 3, "IV": 4, "V": 5}
    items = world.table.items.with_columns(
        story=pl.col("title").str.extract(pattern, 1),
        part=pl.col("title").str.extract(pattern, 2).replace_strict(parts, default=1),
    )
    return world.table.frame.join(items, on="item", how="left", maintain_order="left")


def test_sizes_are_what_was_asked_for(world):
    table = world.table
    assert (table.n, table.users.size, table.item_ids.size) == (60_000, 1000, 500)
    assert table.scale.values == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert world.expected.shape == world.variance.shape == (60_000,)
    assert table.deduplicated()[1] == 0


def test_it_takes_less_than_a_second():
    start = time.perf_counter()
    make_world(seed=1)
    assert time.perf_counter() - start < 1


def test_the_default_world_is_the_same_for_ever(world):
    # Whole numbers only, which the last bit of a logarithm cannot change.
    columns = ("user", "item", "rating", "timestamp")
    digest = hashlib.sha256()
    for name in columns:
        digest.update(world.table.frame[name].cast(pl.Int64).to_numpy().astype("<i8").tobytes())
    digest.update("\n".join(world.table.items["title"]).encode())
    assert digest.hexdigest() == "918f866705962d72613bc5be8acabe8d6d9961aa458746f1d67adb8c144d6579"


def test_another_seed_is_another_world(world):
    other = make_world(seed=1)
    assert other.table.sha256() != world.table.sha256()
    assert other.table.items["title"].to_list() != world.table.items["title"].to_list()


def test_every_title_is_its_own_and_series_are_numbered_without_gaps(world, ratings):
    items = world.table.items
    assert items["title"].n_unique() == items.height == 500
    assert items["genres"].list.len().is_between(1, 3).all()
    assert items["genres"].explode().n_unique() == 10
    stories = ratings.unique("item").group_by("story").agg("part", "genres")
    series = [row for row in stories.rows() if len(row[1]) > 1]
    assert 0.35 < sum(len(parts) for _, parts, _ in series) / 500 < 0.45
    for _, parts, genres in series:
        assert sorted(parts) == list(range(1, len(parts) + 1))
        assert all(one == genres[0] for one in genres)


def test_a_series_is_watched_in_order(ratings):
    seen = ratings.sort("user", "timestamp").group_by("user", "story", maintain_order=True)
    ordered = seen.agg(pl.len(), strictly=(pl.col("part").diff().drop_nulls() > 0).all()).filter(
        pl.col("len") > 1
    )
    assert ordered.height > 5000, "or else there is nothing to see"
    assert ordered["strictly"].all()


def test_no_two_ratings_of_a_user_share_a_time(world):
    assert not world.table.frame.select("user", "timestamp").is_duplicated().any()


def test_popularity_and_activity_have_long_tails(world):
    by_item = np.sort(world.table.frame["item"].value_counts()["count"].to_numpy())[::-1]
    assert by_item[:50].sum() > 0.25 * 60_000, "a tenth of the items, far more than their share"
    assert by_item[0] > 5 * np.median(by_item)
    by_user = world.table.frame["user"].value_counts()["count"].to_numpy()
    assert by_user.min() >= LEAST_RATINGS
    assert by_user.max() > 4 * np.median(by_user)


def test_moments_are_those_of_the_rounded_noise():
    rng = np.random.default_rng(0)
    means = np.array([-1.0, 1.2, 2.5, 3.0, 4.6, 7.0])
    draws = np.rint(np.clip(means[:, None] + NOISE * rng.standard_normal((6, 400_000)), 1, 5))
    expected, variance = rating_moments(means)
    assert np.allclose(draws.mean(axis=1), expected, atol=0.006)
    assert np.allclose(draws.var(axis=1), variance, atol=0.006)


def test_ratings_scatter_around_the_truth_as_the_truth_says(world):
    rating = world.table.frame["rating"].to_numpy()
    score = (rating - world.expected) / np.sqrt(world.variance)
    n = score.size
    assert abs(score.mean()) < 4 / np.sqrt(n)
    assert abs((score**2).mean() - 1) < 0.03
    # Where the truth is high or low, too: nothing is left to learn from it.
    for part in np.array_split(np.argsort(world.expected), 10):
        assert abs(score[part].mean()) < 4 / np.sqrt(part.size)


def test_realised_and_expected_best_rmse_agree(world):
    assert world.best_rmse() == pytest.approx(np.sqrt(world.variance.mean()), abs=0.006)
    rows = np.array([0, 5, 9])
    rating = world.table.frame["rating"].to_numpy()[rows]
    by_hand = np.sqrt(((rating - world.expected[rows]) ** 2).mean())
    assert world.best_rmse(rows) == pytest.approx(by_hand)


def test_biases_alone_stay_well_above_the_best(world):
    """Else there is no taste to learn, and the demo shows nothing."""
    frame, split = world.table.frame, Split.random(world.table.n)
    user, item = frame["user"].to_numpy() - 1, frame["item"].to_numpy() - 1
    rating, known = frame["rating"].to_numpy(), np.concatenate([split.train, split.valid])
    mean = rating[known].mean()
    bias_u, bias_i = np.zeros(1000), np.zeros(500)
    for _ in range(10):
        for bias, own, other in ((bias_i, item, bias_u[user]), (bias_u, user, bias_i[item])):
            rest = (rating - mean - other)[known]
            count = np.bincount(own[known], minlength=bias.size)
            bias[:] = np.bincount(own[known], rest, bias.size) / (count + 5)
    guess = (mean + bias_u[user] + bias_i[item])[split.test]
    rmse = np.sqrt(((rating[split.test] - guess) ** 2).mean())
    assert world.best_rmse(split.test) + 0.10 < rmse < rating.std()


def test_small_worlds_work_and_impossible_ones_are_refused():
    small = make_world(users=20, items=40, ratings=300, seed=3)
    assert small.table.n == 300
    assert small.table.item_ids.size == 40
    full = make_world(users=20, items=40, ratings=320)
    assert full.table.n == 320
    with pytest.raises(SettingsError, match="20 users cannot give 299 ratings to 40 items"):
        make_world(users=20, items=40, ratings=299)
    with pytest.raises(SettingsError, match="expected from 300 to 320"):
        make_world(users=20, items=40, ratings=321)
    with pytest.raises(SettingsError, match="10 items is too small"):
        make_world(users=20, items=10, ratings=300)
