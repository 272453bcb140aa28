from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from cfuica.baselines import ItemRbm, RatingBaseline, UserItemBias, UserRbm
from cfuica.baselines.cases import pairs_between
from tests.baselines.held_out import demo_rmse
from tests.contract import RatingBaselineContract, fitted

SMALL = {"hidden_units": 3, "epochs": 2, "batch_size": 8}


class TestUserRbm(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return UserRbm(**SMALL)


class TestItemRbm(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemRbm(**SMALL)


def test_the_free_energy_sums_over_all_states_of_the_hidden_units() -> None:
    rng = np.random.default_rng(0)
    weight_nkh = torch.from_numpy(rng.normal(size=(4, 5, 3)).astype(np.float32))
    bias_nk = torch.from_numpy(rng.normal(size=(4, 5)).astype(np.float32))
    bias_h = torch.from_numpy(rng.normal(size=3).astype(np.float32))
    inputs_p, labels_p = np.array([0, 2, 3]), np.array([4, 0, 2])
    total = 0.0
    for g_h in product((0.0, 1.0), repeat=3):
        hidden_h = torch.tensor(g_h)
        terms = [
            bias_nk[n, k] + hidden_h @ weight_nkh[n, k]
            for n, k in zip(inputs_p, labels_p, strict=True)
        ]
        total += float(torch.exp(sum(terms) + hidden_h @ bias_h))
    parameters = {"weight_nkh": weight_nkh, "bias_nk": bias_nk, "bias_h": bias_h}
    pairs = pairs_between(np.zeros(3, np.int32), inputs_p, 1, 4)
    energy, _ = UserRbm()._free_energy(parameters, pairs, labels_p)
    assert float(energy) == pytest.approx(-np.log(total), abs=1e-5)


def test_a_fitted_one_predicts_the_mean_of_a_distribution_over_the_labels() -> None:
    model = fitted(ItemRbm(**SMALL))
    np.testing.assert_array_equal(model.value_k_, [1, 2, 3, 4, 5])


def test_it_learns_the_demo() -> None:
    model = ItemRbm(hidden_units=20, batch_size=20, l2=0.01, learning_rate=0.1, epochs=30)
    assert demo_rmse(model) < demo_rmse(UserItemBias())
