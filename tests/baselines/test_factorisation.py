from __future__ import annotations

import numpy as np
import pytest

from cfuica.baselines import BiasedFactorisation, RatingBaseline, UserItemBias
from cfuica.errors import DataError, SettingsError
from tests.baselines.held_out import demo_rmse
from tests.contract import (
    UNSEEN_ITEM,
    UNSEEN_USER,
    RatingBaselineContract,
    predicted,
    small_world,
)
from tests.contract import fitted as fitted_to_world

L2, BIAS_L2 = 1.5, 0.7


def fitted(**settings) -> BiasedFactorisation:
    baseline = BiasedFactorisation(**{"factors": 3, "l2": L2, "bias_l2": BIAS_L2, **settings})
    return fitted_to_world(baseline)


def cost(baseline: BiasedFactorisation) -> float:
    """The definition, pair by pair."""
    user_uf, item_if = baseline.user_uf_, baseline.item_if_
    total = 0.0
    for user, item, rating in zip(*small_world(), strict=True):
        bias = user_uf[user, 0] + item_if[item, 0]
        error = rating - baseline.mean_ - bias - user_uf[user, 1:] @ item_if[item, 1:]
        total += float(error**2)
    for side in (user_uf, item_if):
        total += BIAS_L2 * float((side[:, 0] ** 2).sum()) + L2 * float((side[:, 1:] ** 2).sum())
    return total


def steepest(baseline: BiasedFactorisation, side: str) -> float:
    """The largest gradient of the cost along any number of a side, by central differences."""
    numbers = getattr(baseline, side)
    grads = []
    for place in np.ndindex(numbers.shape):
        kept = numbers[place]
        costs = []
        for moved in (kept - 1e-4, kept + 1e-4):
            numbers[place] = moved
            costs.append(cost(baseline))
        numbers[place] = kept
        grads.append(abs(costs[1] - costs[0]) / 2e-4)
    return max(grads)


class TestBiasedFactorisation(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return BiasedFactorisation()


class TestBiasedFactorisationWithoutPenaltyOnBiases(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return BiasedFactorisation(factors=2, bias_l2=0.0)


def test_every_item_is_the_exact_answer_to_the_users() -> None:
    baseline = fitted(sweeps=1)
    assert steepest(baseline, "item_if_") < 1e-6
    assert steepest(baseline, "user_uf_") > 1e-2  # which had other items to answer to


def test_it_settles_where_no_number_can_do_better() -> None:
    assert steepest(fitted(sweeps=500), "user_uf_") < 1e-4


def test_no_sweep_raises_the_cost() -> None:
    costs = [cost(fitted(sweeps=sweeps)) for sweeps in range(1, 8)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.9 * costs[0]


def test_without_factors_it_is_user_plus_item_bias() -> None:
    users_p, items_p, _ = small_world()
    bias = fitted_to_world(
        UserItemBias(user_damping=BIAS_L2, item_damping=BIAS_L2, tolerance=1e-12, max_sweeps=1000)
    )
    np.testing.assert_allclose(
        predicted(fitted(factors=0, sweeps=300), users_p, items_p),
        predicted(bias, users_p, items_p),
        atol=1e-9,
    )


def test_a_cold_start_gets_what_the_other_side_says() -> None:
    baseline = fitted()
    np.testing.assert_allclose(
        predicted(baseline, [UNSEEN_USER, 0], [0, UNSEEN_ITEM]),
        baseline.mean_ + np.array([baseline.item_if_[0, 0], baseline.user_uf_[0, 0]]),
    )


def test_the_seed_decides_where_it_starts() -> None:
    pairs = small_world()[:2]
    one, other = (predicted(fitted(sweeps=1, seed=seed), *pairs) for seed in (1, 2))
    assert not np.allclose(one, other)


@pytest.mark.parametrize("axis", ["users", "items"])
def test_similar_ones_have_similar_factors(axis: str) -> None:
    baseline = fitted()
    rows_nf = {"users": baseline.user_uf_, "items": baseline.item_if_}[axis][:, 1:]
    rows_nf = rows_nf - rows_nf[baseline.catalogue.support(axis) > 0].mean(0)
    found = getattr(baseline, f"similar_{axis}")(2, 3, min_support=1)
    similar = found["similar"].to_numpy()
    cosine = rows_nf[similar] @ rows_nf[2]
    cosine /= np.linalg.norm(rows_nf[similar], axis=1) * np.linalg.norm(rows_nf[2])
    np.testing.assert_allclose(found["score"], cosine, atol=1e-5)
    assert 2 not in similar


def test_without_factors_nothing_is_similar() -> None:
    with pytest.raises(DataError, match=r"Nothing is known of the item 2 .*no factors"):
        fitted(factors=0).similar_items(2)


def test_finds_more_in_the_demo_than_biases_do() -> None:
    assert demo_rmse(BiasedFactorisation()) < demo_rmse(UserItemBias()) - 0.02


@pytest.mark.parametrize(
    ("setting", "value"),
    [("factors", -1), ("l2", 0.0), ("bias_l2", -1.0), ("sweeps", 0), ("seed", -1)],
)
def test_impossible_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"Setting {setting} = {value} is not usable: "):
        BiasedFactorisation(**{setting: value})
