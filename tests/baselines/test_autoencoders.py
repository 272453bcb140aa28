"""Autoencoders, held to plain loops of their definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from cfuica.baselines import (
    Cdae,
    ItemAutoRec,
    RatingBaseline,
    UserAutoRec,
    UserItemBias,
)
from cfuica.baselines.autoencoders import _squares
from cfuica.baselines.cases import minibatches, pairs_between
from cfuica.baselines.iterative import unseen_items
from cfuica.training.checkpoint import TrainingInterrupted
from tests.baselines.held_out import demo_rmse
from tests.baselines.test_iterative import StopAfter, fitted
from tests.contract import (
    N_ITEMS,
    N_USERS,
    UNSEEN_USER,
    RankingBaselineContract,
    RatingBaselineContract,
    frame,
    predicted,
    small_world,
)
from tests.contract import fitted as fitted_to_world

SETTINGS: dict[str, Any] = {"hidden_units": 4, "epochs": 3, "iterations": 5, "l2": 2.0}
RESTLESS: dict[str, Any] = {**SETTINGS, "patience": 9}


class TestUserAutoRec(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return UserAutoRec(**SETTINGS)


class TestItemAutoRec(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemAutoRec(**SETTINGS)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def hidden_units(model: UserAutoRec, user: int) -> np.ndarray:
    """By the definition."""
    users_p, items_p, ratings_p = small_world()
    own = users_p == user
    return sigmoid(model.bias_h_ + ratings_p[own] @ model.encoder_nh_[items_p[own]])


def test_a_prediction_is_that_of_the_definition() -> None:
    model = fitted_to_world(UserAutoRec(**SETTINGS))
    for user, item in ((3, 5), (8, 0), (20, 11)):
        expected = model.bias_n_[item] + model.decoder_nh_[item] @ hidden_units(model, user)
        assert predicted(model, [user], [item])[0] == pytest.approx(expected.clip(1, 5), abs=1e-5)


def test_a_case_without_ratings_has_the_mean_hidden_units_of_the_others() -> None:
    model = fitted_to_world(UserAutoRec(**SETTINGS))
    mean_h = np.mean([hidden_units(model, user) for user in range(N_USERS - 1)], axis=0)
    expected = model.bias_n_[5] + model.decoder_nh_[5] @ mean_h
    assert predicted(model, [UNSEEN_USER], [5])[0] == pytest.approx(expected, abs=1e-5)


def objective(model: UserAutoRec, arrays: dict[str, np.ndarray]) -> float:
    """The objective of the docstring, user by user."""
    users_p, items_p, ratings_p = small_world()
    total = 0.0
    for user in range(N_USERS - 1):
        own = users_p == user
        rated, ratings = items_p[own], ratings_p[own]
        hidden_h = sigmoid(arrays["bias_h"] + ratings @ arrays["encoder_nh"][rated])
        error = ratings - arrays["bias_n"][rated] - arrays["decoder_nh"][rated] @ hidden_h
        total += 0.5 * float(error @ error)
    for name in ("encoder_nh", "decoder_nh"):
        total += model.settings.l2 / 2 * float(np.square(arrays[name]).sum())
    return total


def largest_component(model: UserAutoRec) -> float:
    """The largest of 60 components of the gradient of the objective, by central differences."""
    names = ("encoder_nh", "decoder_nh", "bias_h", "bias_n")
    arrays = {name: getattr(model, f"{name}_").astype(np.float64) for name in names}
    rng, components = np.random.default_rng(0), []
    for name in rng.choice(names, 60):
        place = tuple(rng.integers(0, size) for size in arrays[name].shape)
        kept, objectives = arrays[name][place], []
        for moved in (kept - 1e-4, kept + 1e-4):
            arrays[name][place] = moved
            objectives.append(objective(model, arrays))
        arrays[name][place] = kept
        components.append(abs(objectives[1] - objectives[0]) / 2e-4)
    return max(components)


@pytest.mark.parametrize(("optimizer", "near"), [("lbfgs", 0.1), ("rprop", 1.0)])
def test_it_settles_where_no_number_can_do_better(optimizer: str, near: float) -> None:
    settings: dict[str, Any] = {"hidden_units": 3, "l2": 2.0, "optimizer": optimizer}
    begun = fitted_to_world(UserAutoRec(**settings, epochs=1, iterations=1))
    settled = fitted_to_world(UserAutoRec(**settings, epochs=10, iterations=100))
    assert largest_component(begun) > 10.0
    assert largest_component(settled) < near


def test_the_loss_falls_from_epoch_to_epoch() -> None:
    for optimizer in ("lbfgs", "rprop"):
        model = fitted_to_world(ItemAutoRec(**{**SETTINGS, "epochs": 6}, optimizer=optimizer))
        losses = [one.loss for one in model.trained.history]
        assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ItemAutoRec(**RESTLESS),
        lambda: UserAutoRec(**RESTLESS),
        lambda: Cdae(hidden_units=4, epochs=3, batch_size=7),
    ],
)
def test_an_interrupted_training_ends_in_the_bits_of_an_uninterrupted_one(
    tmp_path: Path, make: Any
) -> None:
    whole = fitted(make())
    with pytest.raises(TrainingInterrupted):
        fitted(make(), checkpointer=StopAfter(tmp_path, 2))
    resumed = fitted(make(), checkpointer=StopAfter(tmp_path, 99))
    for name in whole._shapes(whole.catalogue.data):
        assert np.array_equal(getattr(whole, f"{name}_"), getattr(resumed, f"{name}_"))
    assert [one.loss for one in whole.trained.history] == [
        one.loss for one in resumed.trained.history
    ]


def test_finds_more_in_the_demo_than_biases_do() -> None:
    assert demo_rmse(ItemAutoRec(hidden_units=20, l2=10.0, epochs=3)) < demo_rmse(UserItemBias())


class TestCdae(RankingBaselineContract):
    def make(self) -> Cdae:
        return Cdae(hidden_units=4, epochs=3, batch_size=10)


def test_scores_are_those_of_the_definition() -> None:
    model = fitted_to_world(Cdae(hidden_units=4, epochs=3, batch_size=10))
    users_p, items_p, _ = small_world()
    scores_um = model.scorer().scores(np.arange(N_USERS, dtype=np.int32))
    for user in (0, 9, UNSEEN_USER):
        sums_h = model.encoder_ih_[items_p[users_p == user]].sum(0) + model.user_uh_[user]
        expected_i = model.bias_i_ + model.decoder_ih_ @ sigmoid(model.bias_h_ + sums_h)
        np.testing.assert_allclose(scores_um[user], expected_i[:N_ITEMS], atol=1e-5)
    assert not model.user_uh_[UNSEEN_USER].any()


def test_the_penalty_counts_a_row_as_often_as_it_is_read() -> None:
    model = fitted_to_world(Cdae(hidden_units=4, epochs=1))
    users_b = np.array([3, 8])
    read = pairs_between(np.array([0, 0, 1]), np.array([2, 5, 2]), 2, N_ITEMS + 1)
    asked = pairs_between(np.array([0, 1, 1]), np.array([7, 7, 7]), 2, N_ITEMS + 1)
    squares = [
        *(model.user_uh_[user] for user in (3, 8)),
        *(model.encoder_ih_[item] for item in (2, 5, 2)),
        *(model.decoder_ih_[item] for item in (7, 7, 7)),
    ]
    found = _squares(model._parameters(model.catalogue.data), users_b, read, asked)
    assert float(found) == pytest.approx(float(np.square(squares).sum()), rel=1e-5)


def test_an_input_of_all_that_stays_is_as_large_as_the_whole_history_in_the_mean() -> None:
    """Corruption without the scale would read shorter histories in training than afterwards."""
    model = fitted_to_world(Cdae(hidden_units=4, epochs=1))
    parameters = model._parameters(model.catalogue.data)
    read = pairs_between(np.zeros(3, np.intp), np.array([1, 2, 3]), 1, N_ITEMS + 1)
    found = model._hidden(parameters, np.array([UNSEEN_USER]), read, 2.0)
    sums_h = 2.0 * model.encoder_ih_[[1, 2, 3]].sum(0)
    torch.testing.assert_close(
        found[0], torch.from_numpy(sigmoid(model.bias_h_ + sums_h)).float(), atol=1e-5, rtol=1e-5
    )


def test_a_step_is_that_of_adagrad_along_the_gradient_of_the_definition() -> None:
    """One epoch in one minibatch, beside dense torch with the same draws."""
    settings: dict[str, Any] = {"hidden_units": 4, "corruption": 0.4, "l2": 0.05, "negatives": 2}
    model = fitted_to_world(Cdae(**settings, batch_size=999, epochs=1))
    data, rng, torch_of = model.catalogue.data, model._rng(0), torch.from_numpy
    expected = model._begin(data)
    unseen_pn = unseen_items(data, np.repeat(data.users_p, 2), rng).reshape(-1, 2)
    ((_, numbers_p, _),) = minibatches(data, 999, rng)
    stays_p = rng.random(len(numbers_p)) >= 0.4
    users_p, items_p = data.users_p[numbers_p], data.items_p[numbers_p]
    input_um = torch.zeros(data.n_users, data.n_items)
    input_um[users_p[stays_p], items_p[stays_p]] = 1.0
    learned = {name: expected[name] for name in model._shapes(data)}
    encoder_ih, decoder_ih, user_uh = (
        learned[f"{n}h"] for n in ("encoder_i", "decoder_i", "user_u")
    )
    hidden_uh = torch.sigmoid(input_um / 0.6 @ encoder_ih + user_uh + learned["bias_h"])
    asked_u, asked_i = (
        np.repeat(users_p, 3),
        np.column_stack([items_p, unseen_pn[numbers_p]]).ravel(),
    )
    logit_q = (hidden_uh[asked_u] * decoder_ih[asked_i]).sum(1) + learned["bias_i"][asked_i]
    is_seen_q = torch_of(np.tile([1.0, 0.0, 0.0], len(users_p)).astype(np.float32))
    loss = binary_cross_entropy_with_logits(logit_q, is_seen_q, reduction="sum")
    assert model.trained.last.loss == pytest.approx(loss.item() / len(users_p), rel=1e-5)
    read = [encoder_ih[items_p[stays_p]], decoder_ih[asked_i], user_uh[np.unique(users_p)]]
    loss = loss + 0.05 / 2 * sum(each.square().sum() for each in read)
    gradients = torch.autograd.grad(loss, list(learned.values()))
    for (name, begun), gradient in zip(learned.items(), gradients, strict=True):
        step = 0.1 * gradient / ((1e-4 + gradient.square()).sqrt() + 1e-10)
        found = torch_of(getattr(model, f"{name}_"))
        torch.testing.assert_close(found, begun.detach() - step, atol=1e-4, rtol=1e-4, msg=name)


def test_finds_the_items_of_a_users_kind_which_popularity_cannot() -> None:
    """Two kinds of users; each has had 10 of the 20 items of the own kind."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(60), 10)
    own = [rng.choice(20, 10, replace=False) + 20 * (user % 2) for user in range(60)]
    model = Cdae(hidden_units=8, epochs=20, batch_size=10).fit(frame(users, np.concatenate(own)))
    top = model.recommend(np.arange(60).tolist(), 10)
    assert (top["item"] // 20 == top["user"] % 2).mean() > 0.95
