"""A cold-start user's own bias: whose it is, what it is worth, and that it is exact about
absence."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.inference.explain import counterfactuals
from cfuica.live import cold_start_bias
from tests.live.reference import N_ITEMS, N_USERS, LiveReference, everything

STRANGER = N_USERS - 1


def with_history(history: dict[int, int], **options: object) -> LiveReference:
    """A world in which the cold-start user or item has just this history."""
    reference = LiveReference.random(own_bias=True, observed=18, **options)
    others = {pair: label for pair, label in reference.cells.items() if pair[0] != STRANGER}
    reference.cells = others | {(STRANGER, item): label for item, label in history.items()}
    return reference


def test_whoever_is_known_has_none():
    state = LiveReference.random(own_bias=True, observed=18).state()
    for profile in state.profiles(np.arange(N_USERS - 1)):
        assert not state.own_bias(profile).any()
    without_values = LiveReference.random(observed=18).state()
    for profile in without_values.profiles(np.arange(N_USERS)):
        assert not without_values.own_bias(profile).any()


def test_nothing_done_is_no_bias():
    state = with_history({}).state()
    assert not state.own_bias(state.profile(STRANGER)).any()
    assert not state.own_bias(state.anonymous(np.array([], int), np.array([], int))).any()


def test_who_rates_higher_than_expected_is_expected_to_go_on():
    tilts = []
    for label in (0, 2):
        state = with_history(dict.fromkeys((0, 1, 2), label)).state()
        bias_k = state.own_bias(state.profile(STRANGER))[0]
        tilts.append(bias_k[-1])
        assert bias_k[0] == -bias_k[-1]  # the ends of the scale
    assert tilts[0] < 0 < tilts[1]


def test_an_anonymous_user_has_the_bias_of_a_cold_start_with_the_same_history():
    stored, empty = with_history({0: 2, 3: 2}).state(), with_history({}).state()
    anonymous = empty.anonymous(np.array([3, 0]), np.array([2, 2]))
    expected = stored.own_bias(stored.profile(STRANGER))
    assert expected.any()
    assert np.array_equal(empty.own_bias(anonymous), expected)


@pytest.mark.parametrize("item", range(N_ITEMS))
def test_an_explanation_is_what_would_be_said_without_the_interaction_to_the_bit(item):
    history = {0: 2, 1: 0, 2: 2, 4: 1}
    state = with_history(history).state()
    found = counterfactuals(state, state.profile(STRANGER), item)
    pair = np.array([STRANGER]), np.array([item])
    whole_k, *without_nk, nothing_k = found.logits["items"]
    assert np.array_equal(whole_k, state.pair_logits(*pair)[0])
    assert np.array_equal(whole_k, found.logits["users"][0])
    for other, logits_k in zip(found.items.tolist(), without_nk, strict=True):
        less = with_history({i: label for i, label in history.items() if i != other}).state()
        assert np.array_equal(logits_k, less.pair_logits(*pair)[0])
    nothing = with_history({item: history[item]} if item in history else {}).state()
    assert np.array_equal(nothing_k, nothing.pair_logits(*pair)[0])


def test_how_many_decoders_are_kept_changes_no_bit(monkeypatch):
    reference = with_history({0: 2, 1: 0, 2: 2, 4: 1})
    expected = everything(reference.state())
    monkeypatch.setattr(cold_start_bias, "DECODER_BYTES", 100)
    state = reference.state()
    for _ in range(2):
        for name, values in everything(state).items():
            assert np.array_equal(values, expected[name]), name


def test_certain_predictions_give_a_bias_within_its_bounds():
    reference = with_history({0: 2, 1: 0, 2: 2})
    for side in reference.parameters.sides.values():
        side["b"] *= 1e3
    state = reference.state()
    bias_k = state.own_bias(state.profile(STRANGER))
    assert np.isfinite(bias_k).all()
    assert np.abs(bias_k).max() <= cold_start_bias.LARGEST
