"""Training that starts from biases."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.baselines import UserItemBias
from cfuica.data.synthetic import make_world
from cfuica.model.network import softmax
from cfuica.models.co_autoregressive import RatingModel
from cfuica.settings import RatingSettings
from cfuica.training.starting_biases import DAMPING, starting_biases

TABLE = make_world(users=60, items=60, ratings=1200, seed=1).table
BRIEF = RatingSettings(
    hidden_users=2,
    hidden_items=2,
    max_steps=1,
    learning_rate=1e-9,
    schedule="planned",
    start_from_biases=True,
)


def matrix_of(table):
    return table.matrix(users=table.users, items=table.item_ids, scale=table.scale)


def logits_of_all(biases):
    return biases["users"][:-1, None] + biases["items"][None, :-1]


def test_expected_ratings_are_those_of_the_bias_model_and_variances_are_right() -> None:
    matrix, values_k = matrix_of(TABLE), TABLE.scale.values_array()
    users_p, items_p, labels_p = matrix.triplets()
    biases = starting_biases(matrix, values_k)
    p_pk = softmax(biases["users"][users_p] + biases["items"][items_p])
    expected_p = p_pk @ values_k
    reference = UserItemBias(user_damping=DAMPING["users"], item_damping=DAMPING["items"]).fit(
        TABLE
    )
    order = np.lexsort(
        (TABLE.item_ids.encode(TABLE.frame["item"]), TABLE.users.encode(TABLE.frame["user"]))
    )
    linear_p = reference.predict(TABLE)["prediction"].to_numpy()[order]
    assert np.corrcoef(expected_p, linear_p)[0, 1] > 0.995
    assert np.abs(expected_p - linear_p).mean() < 0.08
    error = np.square(values_k[labels_p] - expected_p).mean()
    variance = (p_pk * np.square(values_k - expected_p[:, None])).sum(1).mean()
    assert variance == pytest.approx(error, rel=0.15)


def test_cold_start_users_and_items_start_at_the_mean_rating() -> None:
    values_k = TABLE.scale.values_array()
    biases = starting_biases(matrix_of(TABLE), values_k)
    assert not biases["users"][-1].any()
    mean = softmax(biases["items"][-1:]) @ values_k
    assert mean == pytest.approx(TABLE.frame["rating"].mean(), abs=0.02)


@pytest.mark.parametrize("sides", ["both", "users", "items"])
def test_a_network_of_any_sides_starts_from_them(sides) -> None:
    model = RatingModel(BRIEF.replaced(sides=sides)).fit(TABLE, progress=False)
    p_pk = model.predict_proba(TABLE)
    error = np.sqrt(np.square(TABLE.frame["rating"].to_numpy() - p_pk @ [1, 2, 3, 4, 5]).mean())
    assert error < 0.98 * TABLE.frame["rating"].std()


def test_the_biases_of_a_fitted_model_are_of_the_validation_set_too() -> None:
    train, valid = TABLE.take(np.arange(0, 1000)), TABLE.take(np.arange(1000, 1200))
    fitted = RatingModel(BRIEF).fit(train, valid=valid, vocabulary=TABLE, progress=False)
    both = RatingModel(BRIEF).fit(TABLE, vocabulary=TABLE, progress=False)
    rows = np.flatnonzero(fitted.artifact.rows["users"] < TABLE.users.size)
    found, expected = (
        model.artifact.networks["warm"].users.b.array[rows] for model in (fitted, both)
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_equal_ratings_and_two_labels_give_finite_biases() -> None:
    frame = TABLE.frame.with_columns(rating=1.0 + (TABLE.frame["rating"] > 3))
    table = type(TABLE)(frame)
    biases = starting_biases(matrix_of(table), table.scale.values_array())
    assert all(np.isfinite(each).all() for each in biases.values())
    assert softmax(logits_of_all(biases).reshape(-1, 2)).min() > 0
