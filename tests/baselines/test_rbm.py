"""Restricted Boltzmann machines, held to the enumeration of all their states."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cfuica
from cfuica.baselines import GlobalMean, ItemRbm, RatingBaseline, UserRbm, rbm
from cfuica.baselines.cases import pairs_between
from cfuica.training.checkpoint import TrainingInterrupted
from tests.baselines.held_out import demo_rmse
from tests.baselines.test_iterative import StopAfter, fitted
from tests.contract import RatingBaselineContract, frame, predicted, small_world

SETTINGS: dict[str, Any] = {"hidden_units": 4, "epochs": 4, "batch_size": 10}


class TestUserRbm(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return UserRbm(**SETTINGS)


class TestItemRbm(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemRbm(**SETTINGS)


N, K, H = 3, 3, 4  # Inputs, labels and hidden units of the machines that are enumerated.
STATES_GH = np.array([*product([0.0, 1.0], repeat=H)])
RATINGS = np.array([*product(range(K), repeat=N)])


def machine(seed: int = 0) -> tuple[UserRbm, dict[str, torch.Tensor]]:
    """A model and parameters far from 0."""
    shapes = {"weight_nkh": (N, K, H), "bias_nk": (N, K), "bias_h": (H,)}
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    return UserRbm(hidden_units=H), {name: torch.from_numpy(a) for name, a in arrays.items()}


def exponents(parameters: dict[str, torch.Tensor], labels_n: Any) -> np.ndarray:
    """sum_n b + sum_h g (c + sum_n W) of all states of the hidden units, (g,)."""
    weight_nkh, bias_nk, bias_h = (each.numpy().astype(np.float64) for each in parameters.values())
    inputs = np.arange(N)
    return bias_nk[inputs, labels_n].sum() + STATES_GH @ (
        bias_h + weight_nkh[inputs, labels_n].sum(0)
    )


def one_case() -> Any:
    return pairs_between(np.zeros(N, np.intp), np.arange(N), 1, N)


def test_the_free_energy_sums_over_all_states_of_the_hidden_units() -> None:
    model, parameters = machine()
    for labels_n in RATINGS:
        energy, mean_ch = model._free_energy(parameters, one_case(), labels_n)
        weight_g = np.exp(exponents(parameters, labels_n))
        assert float(energy) == pytest.approx(-np.log(weight_g.sum()), abs=1e-4)
        np.testing.assert_allclose(mean_ch[0], weight_g @ STATES_GH / weight_g.sum(), atol=1e-5)


def test_labels_are_independent_given_the_hidden_units() -> None:
    model, parameters = machine()
    joint_rg = np.exp([exponents(parameters, labels_n) for labels_n in RATINGS])
    for state, hidden_h in enumerate(STATES_GH.astype(np.float32)):
        found_pk = model._distribution(parameters, one_case(), torch.from_numpy(hidden_h[None]))
        given_r = joint_rg[:, state] / joint_rg[:, state].sum()
        expected_pk = [[given_r[RATINGS[:, n] == k].sum() for k in range(K)] for n in range(N)]
        np.testing.assert_allclose(found_pk, expected_pk, atol=1e-5)


def test_many_gibbs_steps_draw_from_the_distribution_of_the_machine() -> None:
    model, parameters = machine()
    p_r = np.exp([exponents(parameters, labels_n) for labels_n in RATINGS]).sum(1)
    p_r /= p_r.sum()
    cases = 20_000
    pairs = pairs_between(np.repeat(np.arange(cases), N), np.tile(np.arange(N), cases), cases, N)
    start_p = np.zeros(cases * N, np.intp)
    rng = np.random.default_rng(0)
    gaps = []
    for steps in (1, 30):
        drawn_p, _ = model._drawn(parameters, pairs, start_p, steps, rng)
        found = np.bincount(drawn_p.reshape(cases, N) @ K ** np.arange(N)[::-1], minlength=K**N)
        gaps.append(np.abs(found / cases - p_r).max())
    assert gaps[1] < 0.012 < gaps[0]


def test_contrastive_divergence_learns_the_distribution_of_the_data() -> None:
    """Two items that are always rated alike: only the hidden units can say so."""
    users = np.repeat(np.arange(200), 2)
    ratings = np.repeat(np.tile([1.0, 5.0], 100), 2)
    items = np.tile([0, 1], 200)
    known = (users < 180) | (items == 0)
    settings: dict[str, Any] = {"hidden_units": 4, "batch_size": 20, "l2": 0.0, "epochs": 30}
    model = UserRbm(**settings).fit(frame(users[known], items[known], ratings[known]))
    found = predicted(model, np.arange(180, 200), np.ones(20))
    assert np.abs(found - np.tile([1.0, 5.0], 10)).max() < 1.0


@pytest.mark.parametrize(
    ("first_epochs", "momentum", "steps"), [(2, 0.6, [1, 1]), (1, 0.9, [1, 3])]
)
def test_where_nothing_is_left_to_learn_only_the_penalty_moves_the_weights(
    monkeypatch: pytest.MonkeyPatch, first_epochs: int, momentum: float, steps: list[int]
) -> None:
    """Of one label, what is drawn is what was given. Two epochs of one minibatch of 3 cases."""
    drawn: list[int] = []

    class Spied(UserRbm):
        def _drawn(self, parameters: Any, pairs: Any, labels_p: Any, steps: int, rng: Any) -> Any:
            drawn.append(steps)
            return super()._drawn(parameters, pairs, labels_p, steps, rng)

    monkeypatch.setattr(rbm, "FIRST_EPOCHS", first_epochs)
    users, items = np.repeat(np.arange(3), 2), np.tile([0, 1], 3)
    data = frame(users, items, np.full(6, 4.0))
    one, other = (Spied(hidden_units=5, epochs=2, l2=l2).fit(data) for l2 in (0.0, 3.0))
    # The step 0.1 / 3 cases * l2, and the second one with a share of the first.
    shrink = 0.1 / 3 * 3.0
    expected = 1 - shrink - (momentum * shrink + shrink * (1 - shrink))
    np.testing.assert_allclose(other.weight_nkh_, one.weight_nkh_ * expected, rtol=1e-5)
    np.testing.assert_allclose(one.bias_h_, 0.0, atol=1e-7)
    assert drawn == 2 * steps


def test_a_prediction_is_the_expectation_of_the_definition() -> None:
    users_p, items_p, ratings_p = small_world()
    model = UserRbm(**SETTINGS).fit(frame(users_p, items_p, ratings_p))
    user, item = users_p[0], 7
    own = users_p == user
    index, labels = np.unique(items_p, return_inverse=True)[1][own], ratings_p[own].astype(int) - 1
    at = int(np.searchsorted(np.unique(items_p), item))
    logit_h = model.bias_h_ + model.weight_nkh_[index, labels].sum(0)
    logit_k = model.bias_nk_[at] + model.weight_nkh_[at] @ (1 / (1 + np.exp(-logit_h)))
    p_k = np.exp(logit_k) / np.exp(logit_k).sum()
    np.testing.assert_allclose(predicted(model, [user], [item]), p_k @ np.arange(1, 6), rtol=1e-5)


def test_the_rate_that_is_reported_is_the_one_that_falls() -> None:
    model = fitted(UserRbm(**{**SETTINGS, "epochs": 11, "patience": 11, "learning_rate": 0.2}))
    rates = [one.rate for one in model.trained.history]
    assert rates == pytest.approx([0.2] * 5 + [0.2 * 0.95] * 5 + [0.2 * 0.95**2])


def test_any_scale_is_a_scale_of_labels(tmp_path: Path) -> None:
    users_p, items_p, ratings_p = small_world()
    halves = ratings_p / 2
    many = ratings_p + np.random.default_rng(0).uniform(0, 0.9, len(ratings_p))
    for ratings, n_labels in ((halves, 5), (many, 20)):
        model = ItemRbm(**SETTINGS).fit(frame(users_p, items_p, ratings))
        assert model.value_k_.shape == (n_labels,)
        again = cfuica.load(model.save(tmp_path / str(n_labels)))
        pairs = frame(users_p, items_p)
        assert again.predict(pairs).equals(model.predict(pairs))


def test_a_rating_that_only_the_validation_has_is_a_label_too(tmp_path: Path) -> None:
    users_p, items_p, ratings_p = small_world()
    ratings_p[:20] = 4.5
    first, rest = (frame(users_p[a], items_p[a], ratings_p[a]) for a in (slice(20), slice(20, 400)))
    model = UserRbm(**SETTINGS).fit(rest, valid=first, vocabulary=frame(users_p, items_p))
    assert model.value_k_.tolist() == [1, 2, 3, 4, 4.5, 5]
    cfuica.load(model.save(tmp_path / "model"))


def test_an_interrupted_training_ends_in_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = fitted(UserRbm(**SETTINGS))
    with pytest.raises(TrainingInterrupted):
        fitted(UserRbm(**SETTINGS), checkpointer=StopAfter(tmp_path, 2))
    resumed = fitted(UserRbm(**SETTINGS), checkpointer=StopAfter(tmp_path, 99))
    assert np.array_equal(whole.weight_nkh_, resumed.weight_nkh_)
    assert [one.loss for one in whole.trained.history] == [
        one.loss for one in resumed.trained.history
    ]


def test_learns_from_the_demo() -> None:
    model = ItemRbm(hidden_units=20, batch_size=20, epochs=20)
    assert demo_rmse(model) < demo_rmse(GlobalMean()) - 0.05
