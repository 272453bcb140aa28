"""What docs/extending.md promises: a loss can be given."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

import cfuica


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((24, 15)) < 0.4)
    ratings, times = rng.integers(1, 6, len(users)), rng.permutation(len(users))
    return pl.DataFrame({"user": users, "item": items, "rating": ratings, "timestamp": times})


def test_a_users_own_loss_is_what_is_minimised() -> None:
    """The squared error of the expected label, for ratings and, with one logit, for rankings."""
    seen = []

    def squared_error(logits_pk: torch.Tensor, labels_p: np.ndarray) -> torch.Tensor:
        labels = torch.arange(logits_pk.shape[1], dtype=logits_pk.dtype)
        expected_p = logits_pk.softmax(1) @ labels if len(labels) > 1 else logits_pk[:, 0].sigmoid()
        total = (expected_p - torch.from_numpy(labels_p)).square().double().sum()
        seen.append(float(total.detach()) / max(len(labels_p), 1))
        return total

    steps = {"max_steps": 150, "schedule": "planned", "learning_rate": 0.02, "hidden_users": 6}
    rating = cfuica.RatingSettings(**steps, hidden_items=6, batch_users=24, batch_items=15)
    ratings = cfuica.RatingModel(rating, loss=squared_error).fit(table())
    assert np.mean(seen[-20:]) < 0.8 * np.mean(seen[:20])
    assert ratings.recommend(0, n=3).height == 3
    seen.clear()
    ranking = cfuica.RankingSettings(**steps, hidden_items=6, loss="bernoulli", batch_users=24)
    rankings = cfuica.RankingModel(ranking, loss=squared_error).fit(table())
    assert np.mean(seen[-20:]) < 0.9 * np.mean(seen[:20])
    assert rankings.recommend(0, n=3).height == 3
