"""What docs/extending.md promises: a second kind of layer works everywhere, a loss can be given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import cfuica
from cfuica.training.checkpoint import Checkpoint, Checkpointer, TrainingInterrupted

SMALL = {
    "ensemble_size": 2, "hidden_users": 5, "hidden_items": 6, "residual_units": 7,
    "residual_layer": "gated", "learned_decay": True, "dropout": 0.2, "batch_users": 8,
    "max_steps": 6, "schedule": "planned", "epochs": None, "learning_rate": 0.02,
}  # fmt: skip


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((24, 15)) < 0.4)
    ratings, times = rng.integers(1, 6, len(users)), rng.permutation(len(users))
    return pl.DataFrame({"user": users, "item": items, "rating": ratings, "timestamp": times})


class StopsAndGoesOn(Checkpointer):
    """Interrupts a training after some steps; then hands out what it saved."""

    def __init__(self, steps: int) -> None:
        self.left, self.saved = steps, None

    def restored(self) -> Checkpoint | None:
        return self.saved

    def is_stopping(self) -> bool:
        self.left -= 1
        return self.left == 0

    def save(self, checkpoint: Checkpoint) -> None:
        copied = {
            name: tensor.clone() if isinstance(tensor, torch.Tensor) else tensor
            for name, tensor in _flat(checkpoint.states).items()
        }
        self.saved = Checkpoint(_nested(copied), checkpoint.finished)


def _flat(states: dict, path: tuple = ()) -> dict:
    found: dict = {}
    for name, value in states.items():
        inner = isinstance(value, dict) and value
        found |= _flat(value, (*path, name)) if inner else {(*path, name): value}
    return found


def _nested(flat: dict) -> dict:
    states: dict = {}
    for path, value in flat.items():
        place = states
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return states


def weights(model: cfuica.RankingModel) -> dict[str, torch.Tensor]:
    return dict(model.artifact.networks["warm"].state_dict())


def test_a_gated_layer_trains_resumes_saves_loads_observes_recommends_and_explains(
    tmp_path: Path,
) -> None:
    settings = cfuica.ranking_preset("default").replaced(**SMALL)
    model = cfuica.RankingModel(settings).fit(table())
    layers = {name for name in weights(model) if name.startswith("items.layer.")}
    assert {f"items.layer.{member}.gate" for member in (0, 1)} <= layers
    assert all(weights(model)[name].abs().sum() > 0 for name in layers)  # they have learned

    checkpointer = StopsAndGoesOn(9)  # in the middle of the second member
    with pytest.raises(TrainingInterrupted):
        cfuica.RankingModel(settings).fit(table(), checkpointer=checkpointer)
    resumed = cfuica.RankingModel(settings).fit(table(), checkpointer=checkpointer)
    for name, tensor in weights(model).items():
        assert torch.equal(tensor, weights(resumed)[name]), name

    loaded = cfuica.load(model.save(tmp_path / "model"))
    assert loaded.recommend([0, 1, 2], n=4).equals(model.recommend([0, 1, 2], n=4))
    alone = pl.concat([model.recommend(user, n=4) for user in (0, 1, 2)])
    assert alone.equals(model.recommend([0, 1, 2], n=4))  # whoever else is asked about

    before = model.score(0, [3, 4])
    model.observe([(0, 14)])
    assert not model.score(0, [3, 4]).equals(before)
    again = cfuica.load(model.save(tmp_path / "after"))
    assert again.score(0, [3, 4]).equals(model.score(0, [3, 4]))

    explanation = model.explain(0, 3)
    assert explanation.score == pytest.approx(model.score(0, [3])["score"][0], abs=1e-6)
    assert explanation.history["change"].abs().max() > 0


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
