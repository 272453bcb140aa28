from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cfuica.baselines import (
    ItemCosine,
    ItemNeighbours,
    ItemPopularity,
    RatingBaseline,
    UserItemBias,
)
from cfuica.baselines.contract import TrainingData
from cfuica.baselines.neighbours import common_users
from cfuica.data.table import Interactions
from cfuica.errors import SettingsError
from tests.baselines.held_out import demo_rmse
from tests.contract import (
    ALL_ITEMS,
    ALL_USERS,
    N_ITEMS,
    N_USERS,
    UNSEEN_ITEM,
    UNSEEN_USER,
    VOCABULARY,
    RankingBaselineContract,
    RatingBaselineContract,
    fitted,
    frame,
    predicted,
    small_world,
)


class TestItemNeighbours(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemNeighbours()


class TestOneItemNeighbour(RatingBaselineContract):
    def make(self) -> RatingBaseline:
        return ItemNeighbours(neighbours=1, shrinkage=0, user_damping=0, item_damping=0)


def by_the_book(seed: int, neighbours: int, shrinkage: float) -> np.ndarray:
    """The docstring's two lines for every pair, one number at a time; nan where they are open."""
    users_p, items_p, ratings_p = small_world(seed)
    bias = fitted(UserItemBias(), seed)
    residual_p = ratings_p - predicted(bias, users_p, items_p)
    residuals: dict[int, dict[int, float]] = {item: {} for item in range(N_ITEMS)}
    for user, item, residual in zip(users_p, items_p, residual_p, strict=True):
        residuals[int(item)][int(user)] = float(residual)

    def similarity(i: int, j: int) -> float:
        both = sorted(residuals[i].keys() & residuals[j].keys())
        of_i, of_j = ([residuals[item][user] for user in both] for item in (i, j))
        norm = math.sqrt(sum(x * x for x in of_i) * sum(x * x for x in of_j))
        if norm == 0:
            return 0.0
        cosine = sum(x * y for x, y in zip(of_i, of_j, strict=True)) / norm
        return cosine * len(both) / (len(both) + shrinkage)

    similarities = {(i, j): similarity(i, j) for i in range(N_ITEMS) for j in range(N_ITEMS)}
    predictions = predicted(bias, ALL_USERS, ALL_ITEMS).copy()
    for place, (user, item) in enumerate(zip(ALL_USERS, ALL_ITEMS, strict=True)):
        like_it = sorted(
            (
                (similarities[item, other], residuals[other][user])
                for other in range(N_ITEMS)
                if other != item and user in residuals[other] and similarities[item, other] > 0
            ),
            reverse=True,
        )
        rated = [similarities[item, other] for other in range(N_ITEMS) if user in residuals[other]]
        if any(0 < abs(score) < 1e-6 for score in rated):
            predictions[place] = np.nan  # whether it is above 0 is a matter of rounding
        elif (
            len(like_it) > neighbours and like_it[neighbours - 1][0] < like_it[neighbours][0] + 1e-5
        ):
            predictions[place] = np.nan  # which of two equals is the last neighbour is open
        elif like_it:
            weights, moves = zip(*like_it[:neighbours], strict=True)
            predictions[place] += np.average(moves, weights=weights)
    return np.clip(predictions, ratings_p.min(), ratings_p.max())


@settings(max_examples=8, deadline=None)
@example(seed=124, neighbours=3, shrinkage=0.5)
@given(
    seed=st.integers(0, 1000),
    neighbours=st.sampled_from([3, 6, 50]),
    shrinkage=st.sampled_from([0.5, 3.0, 100.0]),
)
def test_equals_its_definition_for_every_pair(seed, neighbours, shrinkage) -> None:
    fast = fitted(ItemNeighbours(neighbours=neighbours, shrinkage=shrinkage), seed)
    expected = by_the_book(seed, neighbours, shrinkage)
    clear = np.isfinite(expected)
    assert clear.mean() > 0.8
    predictions = predicted(fast, ALL_USERS, ALL_ITEMS)
    np.testing.assert_allclose(predictions[clear], expected[clear], atol=2e-5)


def test_who_has_rated_nothing_gets_the_bias_and_so_does_what_nobody_rated() -> None:
    pairs = [UNSEEN_USER, 0], [0, UNSEEN_ITEM]
    expected = predicted(fitted(UserItemBias()), *pairs)
    np.testing.assert_array_equal(predicted(fitted(ItemNeighbours()), *pairs), expected)


def test_a_rating_does_not_speak_for_itself() -> None:
    # Two users, one item each: nothing that is like it, however often it is asked about.
    known = [0, 1], [0, 1]
    rated = frame(*known, [5.0, 1.0])
    expected = predicted(UserItemBias().fit(rated), *known)
    np.testing.assert_array_equal(
        predicted(ItemNeighbours(shrinkage=0.0).fit(rated), *known), expected
    )


def test_pairs_may_be_asked_in_any_order_and_more_than_once() -> None:
    baseline = fitted(ItemNeighbours())
    order = np.random.default_rng(0).integers(0, len(ALL_USERS), 300)
    np.testing.assert_array_equal(
        predicted(baseline, ALL_USERS[order], ALL_ITEMS[order]),
        predicted(baseline, ALL_USERS, ALL_ITEMS)[order],
    )


def test_similar_items_have_the_largest_similarities() -> None:
    baseline = fitted(ItemNeighbours(shrinkage=1.0))
    found = baseline.similar_items(2, 3, min_support=1)
    np.testing.assert_array_equal(
        found["score"], -np.sort(-np.delete(baseline.similarity_ij_[2, :UNSEEN_ITEM], 2))[:3]
    )
    np.testing.assert_array_equal(baseline.similarity_ij_[2, found["similar"]], found["score"])


def test_finds_more_in_the_demo_than_biases_do() -> None:
    assert demo_rmse(ItemNeighbours()) < demo_rmse(UserItemBias()) - 0.02


@pytest.mark.parametrize(
    ("setting", "value"), [("neighbours", 0), ("shrinkage", -1.0), ("user_damping", -1.0)]
)
def test_impossible_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"Setting {setting} = {value} is not usable: "):
        ItemNeighbours(**{setting: value})


def test_cosines_are_those_of_the_columns_of_ones() -> None:
    users_p, items_p, _ = small_world()
    baseline = ItemCosine(neighbours=N_ITEMS + 1).fit(
        frame(users_p, items_p), vocabulary=VOCABULARY
    )
    had_ui = np.zeros((N_USERS, N_ITEMS))
    had_ui[users_p, items_p] = 1
    norm_i = np.maximum(np.linalg.norm(had_ui, axis=0), 1e-9)
    cosine_ij = had_ui.T @ had_ui / np.outer(norm_i, norm_i)
    np.fill_diagonal(cosine_ij, 0)
    np.testing.assert_allclose(baseline.weight_ij_[:-1, :-1], cosine_ij, atol=1e-6)
    scores = baseline.score(3, range(N_ITEMS))["score"].to_numpy()
    np.testing.assert_allclose(scores, had_ui[3] @ cosine_ij, atol=1e-5)


def test_an_item_is_scored_by_its_most_similar_items_alone() -> None:
    users_p, items_p, _ = small_world()
    of_all, of_three = (
        ItemCosine(neighbours=n).fit(frame(users_p, items_p), vocabulary=VOCABULARY)
        for n in (N_ITEMS + 1, 3)
    )
    for item in range(N_ITEMS):
        cosine_i = of_all.weight_ij_[:, item]
        best = cosine_i >= np.sort(cosine_i)[-3]
        np.testing.assert_array_equal(of_three.weight_ij_[:, item], np.where(best, cosine_i, 0))
    similar = of_three.similar_items(2, 3, min_support=1)
    np.testing.assert_array_equal(of_three.weight_ij_[similar["similar"], 2], similar["score"])
    assert similar["score"][0] == of_all.weight_ij_[:, 2].max()


def test_blocks_of_users_add_up() -> None:
    users_p, items_p, _ = small_world()
    data = TrainingData.of(frame(users_p, items_p), N_USERS + 1, N_ITEMS + 1)
    np.testing.assert_array_equal(common_users(data, block=7), common_users(data))


def test_neighbours_read_what_a_copy_is_conditioned_on_and_the_model_stays() -> None:
    users_p, items_p, _ = small_world()
    known = users_p * N_ITEMS + items_p != users_p[0] * N_ITEMS + items_p[0]
    baseline = ItemCosine().fit(frame(users_p[known], items_p[known]), vocabulary=VOCABULARY)
    user = users_p[:1].astype(np.int32)
    before = baseline.scorer().scores(user)
    extra = Interactions.from_frame(frame(users_p[:1], items_p[:1]))
    after = baseline.scorer(extra).scores(user)
    np.testing.assert_allclose(
        after - before, baseline.weight_ij_[items_p[:1], :N_ITEMS], atol=1e-5
    )
    np.testing.assert_array_equal(baseline.scorer().scores(user), before)


def test_popularity_counts_users() -> None:
    baseline = ItemPopularity().fit(frame([0, 1, 1, 2], [0, 0, 1, 2]))
    assert baseline.score(2, [0, 1, 2])["score"].to_list() == [2, 1, 1]
    assert baseline.recommend(9, 1)["item"].to_list() == [0]


class TestItemPopularity(RankingBaselineContract):
    def make(self) -> ItemPopularity:
        return ItemPopularity()


class TestItemCosine(RankingBaselineContract):
    def make(self) -> ItemCosine:
        return ItemCosine()
