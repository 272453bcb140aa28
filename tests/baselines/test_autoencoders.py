from __future__ import annotations

import numpy as np
import pytest
import torch

from cfuica.baselines import Cdae, ItemAutoRec, RatingBaseline, UserAutoRec, UserItemBias
from cfuica.baselines.cases import pairs_between
from tests.baselines.held_out import demo_rmse
from tests.contract import (
    UNSEEN_USER,
    RankingBaselineContract,
    RatingBaselineContract,
    fitted,
    predicted,
    small_world,
)

SMALL = {"hidden_units": 3, "iterations": 4, "epochs": 2, "l2": 0.5}


class TestUserAutoRec(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return UserAutoRec(**SMALL)


class TestItemAutoRec(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemAutoRec(**SMALL)


class TestCdae(RankingBaselineContract):
    def make(self) -> Cdae:
        return Cdae(hidden_units=4, epochs=3)


@pytest.mark.parametrize("kind", [UserAutoRec, ItemAutoRec])
def test_a_prediction_is_that_of_the_definition(kind: type) -> None:
    model = fitted(kind(**SMALL))
    users_p, items_p, ratings_p = small_world()
    cases_p, inputs_p = (users_p, items_p) if kind is UserAutoRec else (items_p, users_p)
    for place in (0, 17, 200):
        own = cases_p == cases_p[place]
        sums_h = ratings_p[own] @ model.encoder_nh_[inputs_p[own]] + model.bias_h_
        hidden_h = 1 / (1 + np.exp(-sums_h))
        expected = model.decoder_nh_[inputs_p[place]] @ hidden_h + model.bias_n_[inputs_p[place]]
        found = predicted(model, [users_p[place]], [items_p[place]])[0]
        assert found == pytest.approx(np.clip(expected, 1, 5), abs=1e-4)


def test_lbfgs_ends_where_the_loss_has_no_slope() -> None:
    model = ItemAutoRec(hidden_units=2, iterations=200, epochs=5, l2=1.0)
    fitted(model)
    data = model.by_case(model.catalogue.data)
    parameters = {
        name: torch.from_numpy(getattr(model, f"{name}_")).clone().requires_grad_()
        for name in ("encoder_nh", "decoder_nh", "bias_h", "bias_n")
    }
    pairs = pairs_between(data.users_p, data.items_p, data.n_users, data.n_items)
    hidden_ch = model._hidden(parameters, pairs, data)
    error_p = model._decode(parameters, pairs, hidden_ch) - torch.from_numpy(data.ratings_p)
    squares = sum(parameters[n].square().sum() for n in ("encoder_nh", "decoder_nh"))
    (0.5 * error_p.square().sum() + 0.5 * squares).backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        assert float(parameter.grad.abs().max()) < 0.05, name


def test_it_learns_the_demo() -> None:
    model = ItemAutoRec(hidden_units=20, l2=20.0, epochs=4)
    assert demo_rmse(model) < demo_rmse(UserItemBias()) - 0.02


def test_a_ranking_is_that_of_the_definition() -> None:
    model = fitted(Cdae(hidden_units=4, epochs=3))
    users_p, items_p, _ = small_world()
    for user in (0, 5, UNSEEN_USER):
        history = items_p[users_p == user]
        sums_h = model.encoder_ih_[history].sum(0) + model.user_uh_[user] + model.bias_h_
        hidden_h = 1 / (1 + np.exp(-sums_h))
        expected_m = model.decoder_ih_ @ hidden_h + model.bias_i_
        found_m = model.scorer().scores(np.array([user], np.int32))[0]
        np.testing.assert_allclose(found_m, expected_m, atol=1e-5)


def test_who_has_no_interactions_has_no_vector_of_its_own() -> None:
    model = fitted(Cdae(hidden_units=4, epochs=3))
    assert not model.user_uh_[UNSEEN_USER].any()
    assert model.user_uh_[0].any()
