from __future__ import annotations

from typing import Any

import numpy as np

from cfuica.baselines import UserItemBias
from cfuica.data.matrix import InteractionMatrix
from cfuica.training.alternating_least_squares import Factors, factorise
from tests.contract import N_ITEMS, N_USERS, fitted, predicted, small_world

L2, BIAS_L2 = 1.5, 0.7


def factorised(**settings: Any) -> Factors:
    """Of the small world, in double precision, every row solved exactly."""
    users_p, items_p, ratings_p = small_world()
    matrix = InteractionMatrix.from_triplets(
        users_p, items_p, ratings_p.astype(int) - 1, n_users=N_USERS, n_items=N_ITEMS, n_labels=5
    )
    values_k = np.arange(1.0, 6.0)
    options = {"factors": 3, "l2": L2, "bias_l2": BIAS_L2, "sweeps": 15, "steps": 8, **settings}
    return factorise(
        matrix.by_user, matrix.by_item, (values_k, values_k), dtype=np.float64, **options
    )


def cost(found: Factors) -> float:
    """The definition, pair by pair."""
    total = 0.0
    for user, item, rating in zip(*small_world(), strict=True):
        users_f, items_f = found.users_nf[user], found.items_nf[item]
        bias = found.mean + users_f[0] + items_f[0]
        total += float((rating - bias - users_f[1:] @ items_f[1:]) ** 2)
    for side in (found.users_nf, found.items_nf):
        total += BIAS_L2 * float((side[:, 0] ** 2).sum()) + L2 * float((side[:, 1:] ** 2).sum())
    return total


def steepest(found: Factors, numbers: np.ndarray) -> float:
    """The largest gradient of the cost along any number of a side, by central differences."""
    grads = []
    for place in np.ndindex(numbers.shape):
        kept = numbers[place]
        costs = []
        for moved in (kept - 1e-4, kept + 1e-4):
            numbers[place] = moved
            costs.append(cost(found))
        numbers[place] = kept
        grads.append(abs(costs[1] - costs[0]) / 2e-4)
    return max(grads)


def test_every_item_is_the_exact_answer_to_the_users() -> None:
    found = factorised(sweeps=1)
    assert steepest(found, found.items_nf) < 1e-6
    assert steepest(found, found.users_nf) > 1e-2  # which had other items to answer to


def test_it_settles_where_no_number_can_do_better() -> None:
    found = factorised(sweeps=500)
    assert steepest(found, found.users_nf) < 1e-4


def test_no_sweep_raises_the_cost() -> None:
    costs = [cost(factorised(sweeps=sweeps)) for sweeps in range(1, 8)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.9 * costs[0]


def test_without_factors_it_is_user_plus_item_bias() -> None:
    users_p, items_p, _ = small_world()
    bias = fitted(
        UserItemBias(user_damping=BIAS_L2, item_damping=BIAS_L2, tolerance=1e-12, max_sweeps=1000)
    )
    found = factorised(factors=0, sweeps=300).predict(users_p, items_p)
    expected = predicted(bias, users_p, items_p)
    np.testing.assert_allclose(np.clip(found, 1.0, 5.0), expected, atol=1e-9)


def test_the_seed_decides_where_it_starts() -> None:
    pairs = small_world()[:2]
    one, other = (factorised(sweeps=1, seed=seed).predict(*pairs) for seed in (1, 2))
    assert not np.allclose(one, other)
