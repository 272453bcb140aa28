"""What every system of a kind must hold to, whatever it learns.

A test class inherits a contract, names what it makes, and gets all of its tests:

    class TestItemMean(RatingBaselineContract):
        def make(self) -> RatingBaseline:
            return ItemMean()
"""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.baselines import RatingBaseline
from cfuica.errors import CfuicaError, DataError

N_USERS, N_ITEMS = 40, 30
UNSEEN_USER, UNSEEN_ITEM = N_USERS - 1, N_ITEMS - 1


def small_world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Users, items and ratings 1 to 5 of distinct pairs; the last user and item have none."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice((N_USERS - 1) * (N_ITEMS - 1), size=400, replace=False)
    users_p, items_p = np.divmod(pairs, N_ITEMS - 1)
    taste_u, quality_i = rng.normal(0, 0.6, N_USERS), rng.normal(0, 0.8, N_ITEMS)
    noise_p = rng.normal(0, 0.5, len(pairs))
    ratings_p = np.clip(np.round(3.4 + taste_u[users_p] + quality_i[items_p] + noise_p), 1, 5)
    return users_p, items_p, ratings_p


class RatingBaselineContract:
    """Tests for anything that is a :class:`cfuica.baselines.RatingBaseline`."""

    def make(self) -> RatingBaseline:
        raise NotImplementedError

    def fitted(self) -> RatingBaseline:
        return self.make().fit(*small_world(), n_users=N_USERS, n_items=N_ITEMS)

    def test_has_a_name_for_tables(self) -> None:
        assert self.make().name

    def test_fit_returns_itself(self) -> None:
        baseline = self.make()
        assert baseline.fit(*small_world(), n_users=N_USERS, n_items=N_ITEMS) is baseline

    def test_predicts_a_finite_float64_for_every_pair_inside_the_scale(self) -> None:
        users_p, items_p = (grid.ravel() for grid in np.indices((N_USERS, N_ITEMS)))
        predictions_p = self.fitted().predict(users_p, items_p)
        assert predictions_p.dtype == np.float64
        assert predictions_p.shape == users_p.shape
        assert np.isfinite(predictions_p).all()
        assert predictions_p.min() >= 1.0
        assert predictions_p.max() <= 5.0

    def test_a_pair_of_cold_start_gets_about_the_mean(self) -> None:
        _, _, ratings_p = small_world()
        prediction = self.fitted().predict([UNSEEN_USER], [UNSEEN_ITEM])
        assert prediction[0] == pytest.approx(ratings_p.mean(), abs=0.3)

    def test_is_deterministic(self) -> None:
        users_p, items_p, _ = small_world(seed=1)
        first, second = (self.fitted().predict(users_p, items_p) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_the_order_of_the_ratings_does_not_matter(self) -> None:
        users_p, items_p, ratings_p = small_world()
        order = np.random.default_rng(2).permutation(len(users_p))
        shuffled = self.make().fit(
            users_p[order], items_p[order], ratings_p[order], n_users=N_USERS, n_items=N_ITEMS
        )
        np.testing.assert_array_equal(
            shuffled.predict(users_p, items_p), self.fitted().predict(users_p, items_p)
        )

    def test_fitting_again_forgets_what_was_learned_before(self) -> None:
        users_p, items_p, ratings_p = small_world()
        again = self.make().fit(users_p, items_p, 6 - ratings_p, n_users=N_USERS, n_items=N_ITEMS)
        again.fit(users_p, items_p, ratings_p, n_users=N_USERS, n_items=N_ITEMS)
        np.testing.assert_array_equal(
            again.predict(users_p, items_p), self.fitted().predict(users_p, items_p)
        )

    def test_does_not_change_its_inputs(self) -> None:
        arrays = small_world()
        copies = [array.copy() for array in arrays]
        self.make().fit(*arrays, n_users=N_USERS, n_items=N_ITEMS).predict(*arrays[:2])
        for array, copy in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, copy)

    def test_takes_small_integer_types_and_lists(self) -> None:
        users_p, items_p, ratings_p = small_world()
        small = self.make().fit(
            users_p.astype(np.uint8),
            items_p.astype(np.int32),
            ratings_p.astype(np.float32),
            n_users=N_USERS,
            n_items=N_ITEMS,
        )
        np.testing.assert_array_equal(
            small.predict(users_p.tolist(), items_p.tolist()),
            self.fitted().predict(users_p, items_p),
        )

    def test_one_rating_is_enough(self) -> None:
        baseline = self.make().fit([0], [0], [4.0], n_users=2, n_items=2)
        np.testing.assert_allclose(baseline.predict([0, 1], [0, 1]), 4.0)

    def test_no_pairs_give_no_predictions(self) -> None:
        assert self.fitted().predict([], []).shape == (0,)

    def test_predicting_before_fitting_is_explained(self) -> None:
        with pytest.raises(CfuicaError, match="call fit first"):
            self.make().predict([0], [0])

    @pytest.mark.parametrize(
        ("users", "items", "ratings", "message"),
        [
            ([], [], [], "no ratings"),
            ([0, 1], [0], [3.0], "equally long"),
            ([0], [0], [3.0, 4.0], "one rating for each pair"),
            ([-1], [0], [3.0], "Users run from -1 to -1"),
            ([0], [2], [3.0], "Items run from 2 to 2"),
            ([0.0], [0], [3.0], "must be integers"),
            ([[0]], [[0]], [[3.0]], "one-dimensional"),
            ([0], [0], [float("nan")], "not finite"),
        ],
    )
    def test_what_cannot_be_learned_from_is_explained(self, users, items, ratings, message) -> None:
        with pytest.raises(DataError, match=message):
            self.make().fit(users, items, ratings, n_users=2, n_items=2)

    def test_a_user_or_item_that_does_not_exist_is_refused(self) -> None:
        baseline = self.fitted()
        with pytest.raises(DataError, match="Users run"):
            baseline.predict([N_USERS], [0])
        with pytest.raises(DataError, match="Items run"):
            baseline.predict([0], [-1])
