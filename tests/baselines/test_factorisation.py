from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfuica.baselines import (
    BiasedFactorisation,
    BprFactorisation,
    ProbabilisticFactorisation,
    RatingBaseline,
    UserItemBias,
)
from cfuica.baselines.iterative import Iterative
from cfuica.errors import SettingsError
from cfuica.ops import biased_descent
from tests.baselines.held_out import demo_rmse
from tests.baselines.resuming import assert_resumes
from tests.contract import (
    UNSEEN_ITEM,
    UNSEEN_USER,
    VOCABULARY,
    RankingBaselineContract,
    RatingBaselineContract,
    fitted,
    frame,
    predicted,
    small_world,
)


def biased(**settings: Any) -> BiasedFactorisation:
    return fitted(BiasedFactorisation(**{"factors": 3, "epochs": 20, **settings}))


def probabilistic(**settings: Any) -> ProbabilisticFactorisation:
    return fitted(ProbabilisticFactorisation(**{"factors": 3, "epochs": 1, **settings}))


class TestBiasedFactorisation(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return BiasedFactorisation()


class TestProbabilisticFactorisation(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ProbabilisticFactorisation(learning_rate=2.0, epochs=50)


class TestProbabilisticFactorisationInBatches(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ProbabilisticFactorisation(learning_rate=0.5, l2=0.1, batches=7, epochs=10)


class TestBprFactorisation(RankingBaselineContract):
    def make(self) -> BprFactorisation:
        return BprFactorisation(factors=4, epochs=3)


def test_a_step_on_a_rating_goes_along_the_gradient() -> None:
    """Against central differences of the loss of the docstring."""
    start, rate, l2, rating = np.random.default_rng(0).normal(0, 1, 10), 1e-2, 0.3, 1.7

    def loss(numbers: np.ndarray) -> float:
        biases, user_f, item_f = numbers[:2], numbers[2:6], numbers[6:]
        error = rating - biases.sum() - user_f @ item_f
        return float(error**2 / 2 + l2 / 2 * np.square(numbers).sum())

    moves = np.eye(10) * 1e-5
    gradients = [(loss(start + move) - loss(start - move)) / 2e-5 for move in moves]
    numbers = start.astype(np.float32)
    bias_u, bias_i, user_uf, item_if = np.split(numbers, [1, 2, 6])
    index = np.zeros(1, np.intp)
    squares = biased_descent.descend(
        index, index, np.array([rating], np.float32), user_uf[None], item_if[None], bias_u, bias_i,
        np.float32(rate), np.float32(l2),
    )  # fmt: skip
    np.testing.assert_allclose((numbers - start) / -rate, gradients, atol=1e-4)
    error = rating - start[:2].sum() - start[2:6] @ start[6:]
    assert squares == pytest.approx(error**2, rel=1e-5)


def test_two_steps_with_momentum_are_those_of_the_definition() -> None:
    """The gradient of the mean loss, rating by rating."""
    users_p, items_p, ratings_p = small_world()
    settings: dict[str, Any] = {"learning_rate": 3.0, "l2": 0.2, "momentum": 0.6}
    first, second = (probabilistic(**settings, epochs=epochs) for epochs in (1, 2))
    begun = probabilistic(**{**settings, "learning_rate": 1e-9})

    def gradient(model: ProbabilisticFactorisation) -> np.ndarray:
        rows = [model.user_uf_.astype(np.float64), model.item_if_.astype(np.float64)]
        grads = [np.zeros_like(each) for each in rows]
        for user, item, rating in zip(users_p, items_p, ratings_p, strict=True):
            p_f, q_f = rows[0][user], rows[1][item]
            error = rating - ratings_p.mean() - p_f @ q_f
            grads[0][user] += (-2 * error * q_f + 0.2 * p_f) / len(users_p)
            grads[1][item] += (-2 * error * p_f + 0.2 * q_f) / len(users_p)
        return np.concatenate(grads)

    def numbers(model: ProbabilisticFactorisation) -> np.ndarray:
        return np.concatenate([model.user_uf_, model.item_if_])

    one = gradient(begun)
    np.testing.assert_allclose(numbers(first), numbers(begun) - 3.0 * one, atol=1e-6)
    other = 0.6 * one + gradient(first)
    np.testing.assert_allclose(numbers(second), numbers(first) - 3.0 * other, atol=1e-6)


def test_an_epoch_takes_every_rating_once() -> None:
    """A rate so small that the loss is that of the beginning, whatever the batches are."""
    losses = []
    for batches in (1, 7, 1000):
        model = probabilistic(batches=batches, learning_rate=1e-9)
        assert model.trained is not None
        losses.append(model.trained.last.loss)
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BiasedFactorisation(factors=4, epochs=6),
        lambda: ProbabilisticFactorisation(learning_rate=2.0, epochs=6),
        lambda: ProbabilisticFactorisation(learning_rate=2.0, epochs=6, batches=3),
    ],
    ids=["biased", "full batch", "batches"],
)
def test_an_interrupted_training_ends_in_the_same_bits(
    make: Callable[[], Iterative], tmp_path: Path
) -> None:
    assert_resumes(make, tmp_path)


def test_a_cold_start_gets_what_the_other_side_says() -> None:
    baseline = biased()
    np.testing.assert_allclose(
        predicted(baseline, [UNSEEN_USER, 0], [0, UNSEEN_ITEM]),
        baseline.mean_ + np.array([baseline.bias_i_[0], baseline.bias_u_[0]]),
    )


@pytest.mark.parametrize("make", [biased, lambda: probabilistic(learning_rate=2.0, epochs=9)])
def test_another_scale_changes_no_more_than_the_scale(make: Callable[[], RatingBaseline]) -> None:
    like = make()
    users_p, items_p, ratings_p = small_world()
    wide = frame(users_p, items_p, 20 * ratings_p - 10)
    other = type(like)(like.settings).fit(wide, vocabulary=VOCABULARY)
    expected = 20 * predicted(like, users_p, items_p) - 10
    np.testing.assert_allclose(predicted(other, users_p, items_p), expected, rtol=1e-4)


def test_the_seed_decides_where_it_starts() -> None:
    pairs = small_world()[:2]
    one, other = (predicted(biased(seed=seed), *pairs) for seed in (1, 2))
    assert not np.allclose(one, other)


@pytest.mark.parametrize("axis", ["users", "items"])
def test_similar_ones_have_similar_factors(axis: str) -> None:
    baseline = biased()
    rows_nf = {"users": baseline.user_uf_, "items": baseline.item_if_}[axis]
    rows_nf = rows_nf - rows_nf[baseline.catalogue.support(axis) > 0].mean(0)
    found = getattr(baseline, f"similar_{axis}")(2, 3, min_support=1)
    similar = found["similar"].to_numpy()
    cosine = rows_nf[similar] @ rows_nf[2]
    cosine /= np.linalg.norm(rows_nf[similar], axis=1) * np.linalg.norm(rows_nf[2])
    np.testing.assert_allclose(found["score"], cosine, atol=1e-4)
    assert 2 not in similar


def test_they_find_more_in_the_demo_than_biases_do() -> None:
    bias = demo_rmse(UserItemBias())
    assert demo_rmse(BiasedFactorisation()) < bias - 0.05
    settings: dict[str, Any] = {"l2": 0.15, "batches": 8, "epochs": 20}
    assert demo_rmse(ProbabilisticFactorisation(**settings)) < bias - 0.03


@pytest.mark.parametrize(
    ("setting", "value"), [("factors", 0), ("l2", -1.0), ("learning_rate", 0.0), ("epochs", 0)]
)
def test_impossible_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"Setting {setting} = {value} is not usable: "):
        BiasedFactorisation(**{setting: value})
