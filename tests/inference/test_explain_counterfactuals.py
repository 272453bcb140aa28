"""Counterfactuals against predictions from which the interactions are really absent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.inference.explain import FEWEST_RATERS, counterfactuals
from cfuica.model.network import expected_rating
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

    values = {
        name: expected_rating(logits_qk[None], world.values_k)[0]
        for name, logits_qk in found.logits.items()
    }
    for own in values.values():
        assert own[0] == expected(history, raters)
    assert set(found.interactions) == set(world.truth.sides)
    if "items" in found.interactions:
        assert dict(zip(found.items.tolist(), found.labels.tolist(), strict=True)) == history
        for other, value in zip(found.items.tolist(), values["items"][1:-1], strict=True):
            assert value == expected(without(history, other), raters)
        assert found.interactions["items"] == len(history)
        assert values["items"][-1] == expected({}, raters)
    else:
        assert len(found.items) == len(found.labels) == 0
    if "users" in found.interactions:
        assert found.interactions["users"] == len(raters)
        assert values["users"][-1] == expected(history, {})
        labels = [label for low, high, _ in found.groups for label in range(low, high + 1)]
        assert labels == list(range(world.n_labels))
        for (low, high, count), value in zip(found.groups, values["users"][1:-1], strict=True):
            gone = [u for u, label in raters.items() if low <= label <= high]
            assert count == len(gone)
            assert count >= FEWEST_RATERS or len(found.groups) == 1
            assert value == expected(history, without(raters, *gone))
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
    found = counterfactuals(state, state.profile(user), item)
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
    found = counterfactuals(state, state.anonymous(items, labels), item)
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

    found = counterfactuals(state, state.profile(user), item)
    np.testing.assert_array_equal(found.logits["users"][0], says()[0])
    assert len(found.items) >= 2 or sides == "users"
    without_nk = found.logits["items"][1 : 1 + len(found.items)]
    for other, label, logits_k in zip(found.items, found.labels, without_nk, strict=True):
        assert state.change(user, int(other), None) == "removed"
        np.testing.assert_array_equal(logits_k, says()[0])
        state.change(user, int(other), int(label))


def test_an_observed_pair_does_not_see_its_own_label():
    world = World.random(observed=25, seed=4)
    user, item = next(iter(world.cells))
    found = []
    for label in (None, *range(world.n_labels)):
        state = world.state()
        state.change(user, item, label)
        found.append(counterfactuals(state, state.profile(user), item))
    for other in found[1:]:
        assert other.interactions == found[0].interactions
        assert other.groups == found[0].groups
        assert item not in other.items
        for name, logits_qk in other.logits.items():
            np.testing.assert_array_equal(logits_qk, found[0].logits[name])


def test_the_person_and_the_state_stay_as_they_were():
    world = World.random(observed=25, seed=5)
    user, item = next(iter(world.cells))
    state = world.state()
    profile = state.profile(user)
    before = [array.copy() for array in (profile.items, profile.labels, profile.sums_h)]
    first = counterfactuals(state, profile, item)
    again = counterfactuals(state, profile, item)
    np.testing.assert_array_equal(first.logits["items"], again.logits["items"])
    for array, copy in zip((profile.items, profile.labels, profile.sums_h), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_someone_without_history_and_an_item_that_nobody_rated():
    world = World.random(observed=0)
    state = world.state()
    found = counterfactuals(state, state.profile(0), 0)
    assert len(found.items) == 0
    assert found.interactions == {"users": 0, "items": 0}
    assert found.groups == [(0, world.n_labels - 1, 0)]
    for logits_qk in found.logits.values():
        assert (logits_qk == found.logits["users"][0]).all()
