"""Paired differences equal plain loops over the resampled users."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cfuica.metrics.intervals import RESAMPLES
from cfuica.reproduction.paired import Paired

USERS = 40


def ratings(seed: int, users: range, shift: float) -> pl.DataFrame:
    """The RMSE of each user, as `cfuica evaluate --per-user` writes it."""
    rng = np.random.default_rng(seed)
    counts = np.random.default_rng(users.start).integers(1, 6, len(users))
    return pl.DataFrame({"user": users, "n": counts, "rmse": shift + rng.random(len(users))})


def score(frame: pl.DataFrame, drawn: np.ndarray) -> float:
    """The RMSE over all ratings of the drawn users."""
    of = {user: (n, rmse) for user, n, rmse in frame.select("user", "n", "rmse").iter_rows()}
    own = [of[user] for user in drawn.tolist() if user in of]
    return float(np.sqrt(sum(n * rmse**2 for n, rmse in own) / sum(n for n, _ in own)))


def test_rmse_over_two_folds_is_paired_over_the_users_of_both() -> None:
    folds = {(1, 0): range(30), (2, 0): range(10, USERS)}
    frames = {
        (name, key): ratings(place, users, shift)
        for place, (name, shift) in enumerate((("ours", 0.0), ("theirs", 0.1)))
        for key, users in folds.items()
    }
    found = Paired(frames, ["rmse"]).difference("rmse", "ours", "theirs")
    assert found is not None
    everyone = np.arange(USERS)

    def gap(drawn: np.ndarray) -> float:
        ours, theirs = (
            np.mean([score(frames[name, key], drawn) for key in folds])
            for name in ("ours", "theirs")
        )
        return float(ours - theirs)

    assert found.value == pytest.approx(gap(everyone))
    rng = np.random.Generator(np.random.PCG64(0))
    draws = [gap(rng.integers(0, USERS, USERS)) for _ in range(RESAMPLES)]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])))


def test_other_metrics_are_means_over_users_and_seeds() -> None:
    frames = {
        (name, (0, seed)): pl.DataFrame({"user": ["a", "b"], "n": [1, 1], "hr@10": own})
        for name, per_seed in (("x", ([1.0, 0.0], [1.0, 1.0])), ("y", ([0.0, 0.0], [1.0, 0.0])))
        for seed, own in enumerate(per_seed)
    }
    found = Paired(frames, ["hr@10"]).difference("hr@10", "x", "y")
    assert found is not None
    assert found.value == pytest.approx(0.75 - 0.25)


def test_only_common_folds_count_and_only_the_same_test() -> None:
    one, other = ratings(0, range(9), 0.0), ratings(1, range(9), 0.5)
    frames = {("x", (1, 0)): one, ("x", (2, 0)): other, ("y", (1, 0)): other}
    paired = Paired(frames, ["rmse"])
    found = paired.difference("rmse", "x", "y")
    assert found is not None
    assert found.value == pytest.approx(score(one, np.arange(9)) - score(other, np.arange(9)))
    assert paired.difference("rmse", "x", "z") is None
    longer = other.with_columns(pl.col("n") + 1)
    mixed = {("x", (1, 0)): one, ("y", (1, 0)): longer}
    assert Paired(mixed, ["rmse"]).difference("rmse", "x", "y") is None
