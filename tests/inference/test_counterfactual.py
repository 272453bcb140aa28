"""Counterfactuals against predictions from which the interactions are really absent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.inference.counterfactual import FEWEST_RATERS, counterfactuals
from cfuica.model.calibration import expected_rating
from tests.inference.plain import SIDE_SETS, World, without

# Logits are 32-bit sums of a few products of order one; ratings reach 13.
CLOSE = {"rel": 0, "abs": 1e-4}

worlds = st.builds(
    World.random,
    n_users=st.sampled_from([4, 30]),
    n_labels=st.sampled_from([2, 3, 5]),
    observed=st.sampled_from([0, 5, 20, 28]),
    sides=st.sampled_from(list(SIDE_SETS)),
    cold_start=st.integers(0, 3),
    activation=st.sampled_from(["tanh", "sigmoid", "relu"]),
    seed=st.integers(0, 2**16),
)


def check(world: World, user: int | None, item: int, history: dict[int, int], found) -> None:
    """Everything in `found` against the plain prediction from smaller contexts."""
    raters = world.raters(user, item)

    def expected(history, raters):
        return pytest.approx(world.expected(user, item, history, raters), **CLOSE)

    assert found.expected == expected(history, raters)
    assert set(found.contributions) == set(world.truth.sides)
    if "items" in found.contributions:
        assert dict(zip(found.items.tolist(), found.labels.tolist(), strict=True)) == history
        for other, value in zip(found.items.tolist(), found.expected_without, strict=True):
            assert value == expected(without(history, other), raters)
        assert found.contributions["items"].interactions == len(history)
        assert found.contributions["items"].expected_without == expected({}, raters)
    else:
        assert len(found.items) == len(found.labels) == len(found.expected_without) == 0
    if "users" in found.contributions:
        assert found.contributions["users"].interactions == len(raters)
        assert found.contributions["users"].expected_without == expected(history, {})
        labels = [label for group in found.groups for label in range(group.first, group.last + 1)]
        assert labels == list(range(world.n_labels))
        for group in found.groups:
            gone = [u for u, label in raters.items() if group.first <= label <= group.last]
            assert group.raters == len(gone)
            assert group.raters >= FEWEST_RATERS or len(found.groups) == 1
            assert group.expected_without == expected(history, without(raters, *gone))
    else:
        assert found.groups == []


@settings(max_examples=60, deadline=None)
@given(world=worlds, data=st.data())
def test_equal_predictions_from_which_the_interactions_are_absent(world, data):
    """Any pair, observed or not; users and items may be cold-start users and items or have no
    interaction."""
    user = data.draw(st.integers(0, len(world.rows["users"]) - 1))
    item = data.draw(st.integers(0, len(world.rows["items"]) - 1))
    state = world.state()
    found = counterfactuals(state, state.profile(user), item, world.values_k)
    check(world, user, item, world.history(user, item), found)


@settings(max_examples=30, deadline=None)
@given(world=worlds, data=st.data())
def test_an_anonymous_user_is_explained_by_their_own_history(world, data):
    item = data.draw(st.integers(0, len(world.rows["items"]) - 1))
    history = data.draw(
        st.dictionaries(
            st.integers(0, len(world.rows["items"]) - 1), st.integers(0, world.n_labels - 1)
        )
    )
    state = world.state()
    items, labels = (np.array(list(column), int) for column in (history, history.values()))
    found = counterfactuals(state, state.anonymous(items, labels), item, world.values_k)
    check(world, None, item, without(history, item), found)


@pytest.mark.parametrize("sides", list(SIDE_SETS))
@pytest.mark.parametrize("is_observed", [False, True])
def test_are_what_the_state_says_when_the_interaction_is_taken_out_of_it(sides, is_observed):
    """Bit for bit: not nearly the same model, but the same one."""
    world = World.random(observed=25, sides=sides, seed=3)
    if is_observed:
        user, item = next(iter(world.cells))
    else:
        user, item = next(
            pair for pair in np.ndindex(6, 7) if pair not in world.cells and pair[0] in (0, 1, 2)
        )
    state = world.state()

    def says() -> np.ndarray:
        return state.pair_logits(np.array([user]), np.array([item]))

    found = counterfactuals(state, state.profile(user), item, world.values_k)
    np.testing.assert_array_equal(found.logits_k, says()[0])
    assert len(found.items) >= 2 or sides == "users"
    for other, label, value in zip(found.items, found.labels, found.expected_without, strict=True):
        assert state.unrate(user, int(other)) == label
        assert value == expected_rating(says()[None], world.values_k)[0, 0]
        state.rate(user, int(other), int(label))


def test_an_observed_pair_does_not_see_its_own_label():
    world = World.random(observed=25, seed=4)
    user, item = next(iter(world.cells))
    found = []
    for label in (None, *range(world.n_labels)):
        state = world.state()
        state.unrate(user, item)
        if label is not None:
            state.rate(user, item, label)
        found.append(counterfactuals(state, state.profile(user), item, world.values_k))
    for other in found[1:]:
        assert other.contributions == found[0].contributions
        assert other.groups == found[0].groups
        assert item not in other.items
        np.testing.assert_array_equal(other.logits_k, found[0].logits_k)
        np.testing.assert_array_equal(other.expected_without, found[0].expected_without)


def test_the_person_and_the_state_stay_as_they_were():
    world = World.random(observed=25, seed=5)
    user, item = next(iter(world.cells))
    state = world.state()
    profile = state.profile(user)
    before = [array.copy() for array in (profile.items, profile.labels, profile.sums_h)]
    first = counterfactuals(state, profile, item, world.values_k)
    again = counterfactuals(state, profile, item, world.values_k)
    np.testing.assert_array_equal(first.expected_without, again.expected_without)
    for array, copy in zip((profile.items, profile.labels, profile.sums_h), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_someone_without_history_and_an_item_that_nobody_rated():
    world = World.random(observed=0)
    state = world.state()
    found = counterfactuals(state, state.profile(0), 0, world.values_k)
    assert len(found.items) == 0
    for part in found.contributions.values():
        assert part.interactions == 0
        assert part.expected_without == found.expected
    assert [(group.raters, group.expected_without) for group in found.groups] == [
        (0, found.expected)
    ]
