from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfuica.baselines import Baseline, NeuMf, NeuralFactorisation
from cfuica.baselines import neural_mf as family
from cfuica.baselines.iterative import unseen_items
from cfuica.errors import SettingsError
from cfuica.metrics.ranking_metrics import RankingScores
from cfuica.metrics.rating_metrics import rmse
from cfuica.training.checkpoint import TrainingInterrupted
from tests.baselines.test_iterative import StopAfter
from tests.contract import (
    ALL_ITEMS,
    ALL_USERS,
    N_USERS,
    UNSEEN_USER,
    VOCABULARY,
    RankingBaselineContract,
    RatingBaselineContract,
    fitted,
    frame,
    predicted,
    small_world,
)

NNMF: dict[str, Any] = {"factors": 2, "product_factors": 3, "hidden": 4, "l2": 1.0}
NEUMF: dict[str, Any] = {"factors": 3, "mlp_factors": 4, "hidden_layers": 2, "learning_rate": 0.01}


def learned(baseline: Baseline) -> dict[str, np.ndarray]:
    """Copies of all that the baseline has learned."""
    shapes = baseline._shapes(baseline.catalogue.data)
    return {name: getattr(baseline, f"{name}_").copy() for name in shapes}


def output(input_h: np.ndarray, parameters: dict[str, np.ndarray], layers: int, f: Any) -> float:
    """A perceptron by the book."""
    for layer in range(1, layers + 1):
        input_h = input_h @ parameters[f"weight{layer}_ho"] + parameters[f"bias{layer}_o"]
        input_h = f(input_h) if layer < layers else input_h
    return float(input_h[0])


class TestNeuralFactorisation(RatingBaselineContract):
    def make(self) -> NeuralFactorisation:
        return NeuralFactorisation(**NNMF, epochs=60, learning_rate=0.02)


def nnmf_by_the_book(parameters: dict[str, np.ndarray], user: int, item: int) -> float:
    p, q = parameters["user_uf"][user], parameters["item_if"][item]
    d = NNMF["factors"]
    input_h = np.concatenate([p[:d], q[:d], p[d:] * q[d:]])
    return output(input_h, parameters, 4, lambda x: 1 / (1 + np.exp(-x)))


def test_nnmf_predicts_by_its_definition() -> None:
    baseline = fitted(NeuralFactorisation(**NNMF, epochs=60, learning_rate=0.02))
    parameters, found = learned(baseline), predicted(baseline, ALL_USERS, ALL_ITEMS)
    pairs = zip(ALL_USERS, ALL_ITEMS, strict=True)
    expected = [nnmf_by_the_book(parameters, user, item) for user, item in pairs]
    np.testing.assert_allclose(found, np.clip(expected, 1, 5), atol=1e-5)
    assert np.std(found) > 0.1


def test_an_epoch_is_a_step_of_the_network_and_then_one_of_the_factors() -> None:
    """Against central differences of the docstring's cost, and RMSProp by hand."""
    users_p, items_p, ratings_p = (each[:12] for each in small_world())
    rows = frame(users_p, items_p, ratings_p)

    def after(rate: float) -> dict[str, np.ndarray]:
        model = NeuralFactorisation(**NNMF, epochs=1, learning_rate=rate)
        return learned(model.fit(rows, vocabulary=VOCABULARY))

    # A rate that moves nothing leaves the initial parameters.
    parameters = {name: each.astype(np.float64) for name, each in after(1e-30).items()}

    def cost() -> float:
        pairs = zip(users_p, items_p, ratings_p, strict=True)
        errors = [rating - nnmf_by_the_book(parameters, u, i) for u, i, rating in pairs]
        sizes = (np.square(parameters[name]).sum() for name in ("user_uf", "item_if"))
        return float(np.square(errors).sum() + NNMF["l2"] * sum(sizes))

    def gradient(array: np.ndarray) -> np.ndarray:
        gradients = np.zeros_like(array)
        for place in np.argwhere(array != 0) if array.ndim > 1 else np.ndindex(array.shape):
            place, losses = tuple(place), []
            kept = array[place]
            for moved in (kept - 1e-5, kept + 1e-5):
                array[place] = moved
                losses.append(cost())
            array[place] = kept
            gradients[place] = (losses[1] - losses[0]) / 2e-5
        return gradients

    del parameters["range"]
    factors = {"user_uf", "item_if"}
    for names in (parameters.keys() - factors, factors):
        gradients = {name: gradient(parameters[name]) for name in names}
        for name, own in gradients.items():
            parameters[name] -= 0.01 * own / np.sqrt(0.9 + 0.1 * own**2)
    found = after(0.01)
    for name, expected in parameters.items():
        np.testing.assert_allclose(found[name], expected, atol=1e-5, err_msg=name)
    is_unrated_u = np.bincount(users_p, minlength=N_USERS + 1) == 0
    assert (parameters["user_uf"][is_unrated_u] == 0).all()


def test_chunks_of_ratings_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(NeuralFactorisation(**NNMF, epochs=5))
    monkeypatch.setattr(family, "_CHUNK", 7)
    parts = fitted(NeuralFactorisation(**NNMF, epochs=5))
    for name, expected in learned(whole).items():
        np.testing.assert_allclose(learned(parts)[name], expected, atol=1e-4, err_msg=name)


def test_no_bit_of_a_prediction_depends_on_the_others() -> None:
    """In layers of the published width, of which a BLAS would not give this."""
    baseline = fitted(NeuralFactorisation(epochs=1))
    predicted_p = predicted(baseline, ALL_USERS, ALL_ITEMS)
    for own in (slice(7, 8), slice(100, 103), slice(None, None, -3)):
        alone = predicted(baseline, ALL_USERS[own], ALL_ITEMS[own])
        np.testing.assert_array_equal(alone, predicted_p[own])
    wide = fitted(NeuMf(epochs=1)).scorer()
    users_u = np.arange(N_USERS, dtype=np.int32)
    for user in (3, UNSEEN_USER):
        np.testing.assert_array_equal(wide.scores(users_u[[user]])[0], wide.scores(users_u)[user])


def test_nnmf_learns_who_likes_what() -> None:
    """Two kinds of users and of items, a rating of 4 within a kind and of 2 between them."""
    own = np.random.default_rng(0).permutation(len(ALL_USERS))
    ratings_p = np.where(ALL_USERS % 2 == ALL_ITEMS % 2, 4.0, 2.0)
    train, test = own[:400], own[400:]
    settings = {"product_factors": 4, "hidden": 8, "l2": 0.1, "learning_rate": 0.02}
    model = NeuralFactorisation(**settings, epochs=200)
    model.fit(frame(ALL_USERS[train], ALL_ITEMS[train], ratings_p[train]))
    found = predicted(model, ALL_USERS[test], ALL_ITEMS[test])
    assert rmse(found, ratings_p[test]) < 0.3, "biases have 1"


class TestNeuMf(RankingBaselineContract):
    def make(self) -> NeuMf:
        return NeuMf(**NEUMF, epochs=3, pretraining=2)


def neumf_by_the_book(parameters: dict[str, np.ndarray], user: int, item: int) -> tuple[float, ...]:
    """The logits of GMF and of MLP."""
    p, q = parameters["user_uf"][user], parameters["item_if"][item]
    d = NEUMF["mlp_factors"]
    gmf = float(parameters["weight_f"] @ (p[d:] * q[d:]) + parameters["bias"][0])
    input_h = np.concatenate([p[:d], q[:d]])
    return gmf, output(input_h, parameters, 3, lambda x: np.maximum(x, 0))


def test_neumf_scores_by_its_definition() -> None:
    baseline = fitted(NeuMf(**NEUMF, epochs=4, pretraining=3, alpha=0.3))
    parameters = learned(baseline)
    found = baseline.scorer().scores(np.arange(N_USERS, dtype=np.int32))
    pairs = zip(ALL_USERS, ALL_ITEMS, strict=True)
    logits = np.array([neumf_by_the_book(parameters, user, item) for user, item in pairs])
    expected = logits @ [0.3, 0.7]
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-5)
    assert np.abs(logits).min(0).max() > 1e-4, "both learn"


@pytest.mark.parametrize("pretraining", [0, 1])
def test_the_loss_is_the_cross_entropy_of_each_logit_or_of_their_sum(pretraining: int) -> None:
    """Of a first epoch in one minibatch, so before any step."""
    model = fitted(NeuMf(**NEUMF, epochs=1, pretraining=pretraining, alpha=0.3, batch=10**6))
    data = model.catalogue.data
    started = family.initial(model._rng(), model._shapes(data), deviation=0.01)
    parameters = {name: each.numpy() for name, each in started.items()}
    negatives_p = unseen_items(data, np.tile(data.users_p, 4), model._rng(0))
    pairs = [*zip(data.users_p, data.items_p, strict=True)]
    pairs += [*zip(np.tile(data.users_p, 4), negatives_p, strict=True)]
    logits = np.array([neumf_by_the_book(parameters, user, item) for user, item in pairs])
    if not pretraining:
        logits = logits @ [[0.3], [0.7]]
    sign_p = np.where(np.arange(len(pairs)) < len(data.users_p), 1, -1)
    expected = np.log1p(np.exp(-sign_p[:, None] * logits)).mean()
    assert model.trained is not None
    assert model.trained.last.loss == pytest.approx(expected, rel=1e-5)


def test_gmf_and_mlp_learn_apart_and_then_together() -> None:
    apart = [learned(fitted(NeuMf(**NEUMF, epochs=2, alpha=alpha))) for alpha in (0.0, 1.0)]
    for name, array in apart[0].items():
        np.testing.assert_array_equal(array, apart[1][name])
    joint = learned(fitted(NeuMf(**NEUMF, epochs=3, pretraining=2, alpha=1.0)))
    of_mlp = {name for name in joint if name[-3:] == "_ho" or name[-2:] == "_o"}
    for name, array in joint.items():
        assert np.array_equal(array, apart[0][name]) == (name in of_mlp), name


def test_joint_epochs_descend_along_the_gradient_at_the_joint_rate() -> None:
    """In one minibatch, so one step of b, which begins at 0: the mean of alpha (p - y)."""
    settings = {**NEUMF, "epochs": 1, "pretraining": 0, "alpha": 0.3, "joint_rate": 0.7}
    model = fitted(NeuMf(**settings, batch=10**6))
    data = model.catalogue.data
    started = family.initial(model._rng(), model._shapes(data), deviation=0.01)
    parameters = {name: each.numpy() for name, each in started.items()}
    n, users_p = len(data.users_p), np.tile(data.users_p, 5)
    items_p = np.append(data.items_p, unseen_items(data, users_p[n:], model._rng(0)))
    logits = np.array(
        [neumf_by_the_book(parameters, *pair) for pair in zip(users_p, items_p, strict=True)]
    )
    error_p = 1 / (1 + np.exp(-logits @ [0.3, 0.7])) - (np.arange(len(users_p)) < n)
    np.testing.assert_allclose(learned(model)["bias"], -0.7 * 0.3 * error_p.mean(), rtol=1e-4)


class JudgedNeuMf(NeuMf):
    """With validations that become worse from epoch to epoch."""

    def _validator(self, *_: Any) -> Any:
        values = iter(np.linspace(1, 0, 99))
        return lambda: RankingScores(float(next(values)), 0.0, 1)


def test_the_pre_training_is_whole_and_patience_counts_joint_epochs() -> None:
    settings = {**NEUMF, "pretraining": 4, "patience": 2, "epochs": 9, "refit": False}
    users_p, items_p, _ = small_world()
    train, valid = frame(users_p[:300], items_p[:300]), frame(users_p[300:], items_p[300:])
    model = JudgedNeuMf(**settings, joint_rate=0.3).fit(train, valid=valid, vocabulary=VOCABULARY)
    rates = [each.rate for each in model.trained.history]
    assert rates == [model.settings.learning_rate] * 4 + [0.3] * 2


def test_neumf_learns_who_likes_what() -> None:
    """Two kinds of users, each with 12 of the 15 items of its own kind."""
    rng = np.random.default_rng(0)
    kind_u = np.arange(40) % 2
    rows = [(u, 15 * kind_u[u] + i) for u in range(40) for i in rng.permutation(15)[:12]]
    model = NeuMf(epochs=20, pretraining=18, factors=4, mlp_factors=4, learning_rate=0.02)
    model.fit(frame(*zip(*rows, strict=True)))
    top = model.recommend(range(40), 3)
    own = top["item"].to_numpy() // 15 == kind_u[top["user"].to_numpy()]
    assert own.mean() > 0.95


def test_users_without_interactions_have_the_mean_factors() -> None:
    parameters = learned(fitted(NeuMf(**NEUMF, epochs=1)))
    mean_f = parameters["user_uf"][: N_USERS - 1].mean(0)
    np.testing.assert_allclose(parameters["user_uf"][UNSEEN_USER], mean_f, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "settings"),
    [(NeuralFactorisation, NNMF), (NeuMf, {**NEUMF, "pretraining": 3})],
)
def test_an_interrupted_training_ends_in_the_same_bits(
    make: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    def trained(**options: Any) -> dict[str, np.ndarray]:
        return learned(make(**settings, epochs=5).fit(frame(*small_world()), **options))

    whole = trained()
    for epochs in (2, 2):
        with pytest.raises(TrainingInterrupted):
            trained(checkpointer=StopAfter(tmp_path, epochs))
    resumed = trained(checkpointer=StopAfter(tmp_path, 99))
    for name, array in whole.items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("make", "setting", "value"),
    [
        (NeuralFactorisation, "factors", 0),
        (NeuralFactorisation, "l2", -1.0),
        (NeuMf, "negatives", 0),
        (NeuMf, "alpha", 1.5),
        (NeuMf, "batch", 0),
    ],
)
def test_impossible_settings_are_refused(make: Any, setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"Setting {setting} = {value} is not usable: "):
        make(**{setting: value})


def test_is_validated_among_sampled_items_where_that_is_asked_for() -> None:
    users_p, items_p, _ = small_world()
    train, valid = frame(users_p[:300], items_p[:300]), frame(users_p[300:], items_p[300:])
    model = NeuMf(factors=2, mlp_factors=2, epochs=1, validated_by="sampled-hr")
    model.fit(train, valid=valid, vocabulary=VOCABULARY)
    found = model.trained.last.valid
    assert found.measure == "sampled HR@10"
    # All 30 items are fewer than the sampled ones would be.
    assert found.value == pytest.approx(found.hr)
