from __future__ import annotations

import numpy as np
import pytest

from cfuica.baselines import GlobalMean, ItemMean, RatingBaseline, UserItemBias
from cfuica.baselines.means import BiasSettings
from cfuica.errors import SettingsError
from cfuica.metrics.rating_metrics import rmse
from tests.contract import (
    N_ITEMS,
    N_USERS,
    UNSEEN_ITEM,
    UNSEEN_USER,
    RatingBaselineContract,
    fitted,
    frame,
    predicted,
    small_world,
)


class TestGlobalMean(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return GlobalMean()

    def test_predicts_the_mean(self) -> None:
        baseline = GlobalMean().fit(frame([0, 1, 1], [0, 0, 1], [1.0, 2.0, 6.0]))
        np.testing.assert_array_equal(predicted(baseline, [0, 1], [1, 0]), [3.0, 3.0])


class TestItemMean(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemMean()

    def test_predicts_the_mean_of_the_item_and_the_global_one_without_ratings(self) -> None:
        baseline = ItemMean().fit(frame([0, 1, 1], [0, 0, 1], [1.0, 2.0, 6.0]))
        np.testing.assert_allclose(predicted(baseline, [0, 0, 0], [0, 1, 2]), [1.5, 6.0, 3.0])

    def test_damping_counts_ratings_at_the_global_mean(self) -> None:
        baseline = ItemMean(damping=2.0)
        baseline.fit(frame([0, 1, 1], [0, 0, 1], [1.0, 2.0, 6.0]))
        np.testing.assert_allclose(predicted(baseline, [0, 0], [0, 1]), [9 / 4, 12 / 3])


class TestDampedItemMean(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemMean(damping=5.0)


class TestUserItemBias(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return UserItemBias()

    @pytest.mark.parametrize("dampings", [(5.0, 5.0), (0.5, 20.0)])
    def test_finds_the_ridge_solution(self, dampings: tuple[float, float]) -> None:
        users_p, items_p, ratings_p = small_world()
        baseline = fitted(
            UserItemBias(
                user_damping=dampings[0],
                item_damping=dampings[1],
                tolerance=1e-12,
                max_sweeps=1000,
            )
        )
        design = np.hstack([np.eye(N_USERS)[users_p], np.eye(N_ITEMS)[items_p]])
        ridge = np.diag(np.repeat(dampings, [N_USERS, N_ITEMS]))
        exact = np.linalg.solve(
            design.T @ design + ridge, design.T @ (ratings_p - ratings_p.mean())
        )
        np.testing.assert_allclose(
            np.concatenate([baseline.bias_u_[:-1], baseline.bias_i_[:-1]]), exact, atol=1e-9
        )

    def test_stops_when_the_biases_have_settled(self) -> None:
        baseline = fitted(UserItemBias())
        assert 1 < baseline.sweeps_ < 100

    def test_a_cold_start_gets_what_the_other_side_says(self) -> None:
        baseline = fitted(UserItemBias())
        np.testing.assert_allclose(
            predicted(baseline, [UNSEEN_USER, 0], [0, UNSEEN_ITEM]),
            baseline.mean_ + np.array([baseline.bias_i_[0], baseline.bias_u_[0]]),
        )

    def test_users_and_items_are_treated_alike(self) -> None:
        users_p, items_p, ratings_p = small_world()
        settings = BiasSettings(user_damping=1, item_damping=7, tolerance=1e-12, max_sweeps=1000)
        swapped = settings.replaced(user_damping=7, item_damping=1)
        one = UserItemBias(settings).fit(frame(users_p, items_p, ratings_p))
        other = UserItemBias(swapped).fit(frame(items_p, users_p, ratings_p))
        np.testing.assert_allclose(
            predicted(one, users_p, items_p), predicted(other, items_p, users_p), atol=1e-9
        )


class TestUndampedUserItemBias(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return UserItemBias(user_damping=0, item_damping=0, max_sweeps=30)


def test_each_baseline_explains_more_of_unseen_ratings_than_the_one_before() -> None:
    users_p, items_p, ratings_p = small_world()
    train, test = slice(0, 300), slice(300, None)
    errors = []
    for baseline in (GlobalMean(), ItemMean(), UserItemBias()):
        baseline.fit(frame(users_p[train], items_p[train], ratings_p[train]))
        errors.append(rmse(predicted(baseline, users_p[test], items_p[test]), ratings_p[test]))
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_damping_is_refused(value: float) -> None:
    with pytest.raises(SettingsError, match="Setting damping = "):
        ItemMean(damping=value)
    with pytest.raises(SettingsError, match="Setting user_damping = "):
        UserItemBias(user_damping=value)


def test_no_sweeps_are_refused() -> None:
    with pytest.raises(SettingsError, match="Setting max_sweeps = 0 is not usable"):
        UserItemBias(max_sweeps=0)
