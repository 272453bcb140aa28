"""Local factorisations, against a plain loop in float64 and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import local_factors
from tests.ops.shapes import SEEDS

USERS, ITEMS, RATE, L2 = 5, 4, 0.05, 0.2


def drawn(seed: int, ratings: int, models: int, factors: int) -> tuple[list, list]:
    """Ratings (users, items, values), and weights and factors of both sides in float32."""
    rng = np.random.default_rng(seed)
    triples = [rng.integers(0, USERS, ratings), rng.integers(0, ITEMS, ratings)]
    triples.append(rng.uniform(1, 5, ratings))
    weights = [rng.uniform(0, 1, (n, models)).astype(np.float32) for n in (USERS, ITEMS)]
    weights[0][0, : models // 2 + 1] = 0.0  # none or only some models know user 0
    sides = [rng.normal(0, 1, (n, models, factors)).astype(np.float32) for n in (USERS, ITEMS)]
    return triples, [*weights, *sides]


def losses(user, item, rating, user_w, item_w, user_ulf, item_ilf, *, is_joint: bool) -> np.ndarray:
    """The losses of one rating, of each model or of all together."""
    weight_l = user_w[user] * item_w[item]
    error_l = rating - (user_ulf[user] * item_ilf[item]).sum(1)
    if not is_joint:
        return weight_l * error_l**2
    if weight_l.sum() == 0:
        return np.zeros(1)
    return np.array([(weight_l @ error_l / weight_l.sum()) ** 2])


def plainly(triples: list, arrays: list, *, is_joint: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """The factors after one pass by central differences, and the losses."""
    user_w, item_w, user_ulf, item_ilf = (each.astype(np.float64) for each in arrays)
    total = 0.0
    for user, item, rating in zip(*triples, strict=True):
        if is_joint and not (user_w[user] * item_w[item]).any():
            continue

        def half(rows_2lf, user=user, item=item, rating=rating):
            sides = user_ulf.copy(), item_ilf.copy()
            sides[0][user], sides[1][item] = rows_2lf
            own = losses(user, item, rating, user_w, item_w, *sides, is_joint=is_joint).sum()
            return (own + L2 * (rows_2lf**2).sum()) / 2

        rows_2lf = np.stack([user_ulf[user], item_ilf[item]])
        total += losses(
            user, item, rating, user_w, item_w, user_ulf, item_ilf, is_joint=is_joint
        ).sum()
        moves = np.eye(rows_2lf.size).reshape(-1, *rows_2lf.shape) * 1e-5
        rises = [half(rows_2lf + move) - half(rows_2lf - move) for move in moves]
        gradient_2lf = np.reshape(rises, rows_2lf.shape) / 2e-5
        user_ulf[user], item_ilf[item] = rows_2lf - RATE * gradient_2lf
    return user_ulf, item_ilf, total


@pytest.mark.parametrize("is_joint", [True, False])
@settings(max_examples=20, deadline=None)
@given(ratings=st.integers(0, 9), models=st.integers(1, 4), factors=st.integers(1, 9), seed=SEEDS)
def test_it_descends_along_the_gradient_of_one_rating_after_the_other(
    is_joint, ratings, models, factors, seed
):
    triples, arrays = drawn(seed, ratings, models, factors)
    *expected, loss = plainly(triples, arrays, is_joint=is_joint)
    found = local_factors.descend(*triples, *arrays, RATE, L2, is_joint, 0, models)
    assert found == pytest.approx(loss, rel=1e-3, abs=1e-5)
    for own, other in zip(arrays[2:], expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-3, atol=2e-3)


def test_models_by_themselves_have_the_same_bits_in_any_groups():
    triples, arrays = drawn(0, 200, 7, 20)
    whole, parts = ([each.copy() for each in arrays] for _ in range(2))
    local_factors.descend(*triples, *whole, 0.01, 0.01, False, 0, 7)
    for start, stop in ((5, 7), (0, 1), (1, 5)):
        local_factors.descend(*triples, *parts, 0.01, 0.01, False, start, stop)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_predictions_are_weighted_means():
    (users_p, items_p, _), arrays = drawn(3, 30, 3, 5)
    arrays[0][1] = 0.0  # no model knows user 1
    out_p = np.empty(30)
    local_factors.predict(users_p, items_p, *arrays, 2.5, out_p, 0, 30)
    user_w, item_w, user_ulf, item_ilf = (each.astype(np.float64) for each in arrays)
    for user, item, found in zip(users_p, items_p, out_p, strict=True):
        weight_l = user_w[user] * item_w[item]
        each_l = (user_ulf[user] * item_ilf[item]).sum(1)
        expected = 2.5 if user == 1 else weight_l @ each_l / weight_l.sum()
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
