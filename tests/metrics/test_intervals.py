from __future__ import annotations

import time

import numpy as np
import pytest

from cfuica.errors import DataError
from cfuica.metrics import intervals as bootstrap
from cfuica.metrics.intervals import difference, differences, intervals, resampled_means


def test_an_interval_is_about_two_standard_errors_around_the_mean():
    values = np.random.default_rng(0).normal(3.0, 2.0, 4000)
    found = intervals({"x": values})["x"]
    error = values.std() / np.sqrt(values.size)
    assert found.value == values.mean()
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_intervals_hold_the_truth_as_often_as_they_say():
    random = np.random.default_rng(1)
    held = 0
    for trial in range(300):
        hits = (random.random(200) < 0.3).astype(np.float64)
        found = intervals({"hr": hits}, seed=trial, resamples=300)["hr"]
        held += found.low <= 0.3 <= found.high
    # 95% of 300 is 285, with a standard deviation of 4.
    assert 268 <= held <= 298


def test_the_same_seed_gives_the_same_resamples_in_blocks_of_any_size(monkeypatch):
    values = np.random.default_rng(2).random((50, 2))
    whole = resampled_means(values, seed=5)
    assert whole.shape == (1000, 2)
    assert np.array_equal(whole, resampled_means(values, seed=5))
    assert not np.array_equal(whole, resampled_means(values, seed=6))
    monkeypatch.setattr(bootstrap, "_DRAWS", 50 * 7)
    assert np.allclose(whole, resampled_means(values, seed=5), rtol=0, atol=1e-12)


def test_resamples_are_as_many_users_drawn_with_replacement():
    means = resampled_means(np.eye(3), resamples=2000)
    assert np.allclose(means.sum(axis=1), 1)
    assert set(np.round(means * 3).astype(int).ravel()) == {0, 1, 2, 3}
    assert means.mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.02)


def test_a_paired_difference_is_of_the_same_users():
    random = np.random.default_rng(3)
    users = random.normal(0, 10.0, 500)  # users differ far more than the systems do
    one, other = users + 0.1 + random.normal(0, 0.01, 500), users
    found = differences({"x": one, "only": one}, {"x": other})
    assert list(found) == ["x"]
    assert 0.09 < found["x"].low < found["x"].value < found["x"].high < 0.11
    assert found["x"].other_side == 0.0
    back = differences({"x": other}, {"x": one})["x"]
    assert back.value == pytest.approx(-found["x"].value)
    assert (back.low, back.high) == pytest.approx((-found["x"].high, -found["x"].low))


def test_the_other_side_of_zero_is_counted_with_zero_itself():
    assert difference(0.5, np.array([1.0, 0.2, 0.0, -0.1])).other_side == 0.5
    assert difference(-0.5, np.array([1.0, 0.2, 0.0, -0.1])).other_side == 0.75
    assert difference(0.0, np.array([1.0, -1.0])).other_side == 1.0


def test_no_users_cannot_be_resampled():
    with pytest.raises(DataError, match="nobody to average over"):
        resampled_means(np.empty((0, 2)))


def test_twenty_metrics_of_6040_users_take_little_time():
    values = {f"m{k}": np.random.default_rng(k).random(6040) for k in range(20)}
    start = time.process_time()
    assert len(intervals(values)) == 20
    assert time.process_time() - start < 4  # 0.2 s on an idle core
