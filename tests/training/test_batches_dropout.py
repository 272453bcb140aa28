"""Dropout: it keeps what it says, the same for ever for a step, and changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.settings import RatingSettings
from cfuica.training.batches import Dropout, PublishedEstimator
from cfuica.training.rating_task import train
from tests.model.reference import matrix_of, random_cells
from tests.training.blocks import same

HIDDEN = {"users": 40, "items": 30}


def estimator():
    matrix = matrix_of(random_cells(60, 50, 3, 900, seed=0), 60, 50, 3)
    return PublishedEstimator(matrix, batch_users=20, batch_items=25)


def test_units_are_kept_with_their_chance_and_scaled_so_that_sums_keep_their_mean():
    blocks = [Dropout(estimator(), 0.3, HIDDEN, 5).draw(step) for step in range(20)]
    for side, hidden in HIDDEN.items():
        for block in blocks:
            assert block.keeps[side].hidden_qh.shape == (block.contexts[side].n_rows, hidden)
            assert block.keeps[side].hidden_qh.dtype == np.float32
        masks = np.concatenate([block.keeps[side].hidden_qh.ravel() for block in blocks])
        np.testing.assert_allclose(np.unique(masks), [0, 1 / 0.7], rtol=1e-6)
        assert (masks > 0).mean() == pytest.approx(0.7, abs=4 * (0.21 / masks.size) ** 0.5)


def test_what_is_kept_depends_on_seed_and_step_only_and_the_block_stays_as_drawn():
    one, again = Dropout(estimator(), 0.3, HIDDEN, 5), Dropout(estimator(), 0.3, HIDDEN, 5)
    again.draw(0)
    first, second = one.draw(7), again.draw(7)
    assert same(first, estimator().draw(7))
    assert all(
        np.array_equal(first.keeps[side].hidden_qh, second.keeps[side].hidden_qh) for side in HIDDEN
    )
    for other in (one.draw(8), Dropout(estimator(), 0.3, HIDDEN, 6).draw(7)):
        assert not np.array_equal(first.keeps["users"].hidden_qh, other.keeps["users"].hidden_qh)


def test_training_follows_the_setting():
    matrix = matrix_of(random_cells(30, 25, 5, 400, seed=0), 30, 25, 5)
    settings = RatingSettings(
        hidden_users=6, hidden_items=5, batch_users=12, batch_items=10, learning_rate=0.05,
        schedule="planned", max_steps=5, validate_every=5,
    )  # fmt: skip
    stars = np.arange(1, 6, dtype=np.float32)
    weights = [
        train(matrix, settings.replaced(dropout=chance), stars).weights[0]
        for chance in (0.0, 0.5, 0.5)
    ]
    assert not weights[0]["users.W.values"].equal(weights[1]["users.W.values"])
    assert all(weights[1][name].equal(weights[2][name]) for name in weights[1])
