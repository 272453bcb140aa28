"""The live state says what a fresh one says, and what the equations say."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cfuica.live import live_state
from cfuica.live.live_state import LiveState
from cfuica.model.network import softmax
from cfuica.ops.tables import SIDES
from tests.live.reference import (
    BOTH,
    CLOSE,
    N_ITEMS,
    N_LABELS,
    N_USERS,
    WITH_OWN_BIAS,
    LiveReference,
    assert_like_fresh,
    assert_same,
    assert_says,
    everything,
)
from tests.model.reference import matrix_of, predicted

SIDE_SETS = [BOTH, {"items": 3}, {"users": 9}]
ACTIVATIONS = ["tanh", "sigmoid", "relu"]
# Nothing kept, a row or two, everything.
CACHE_BYTES = [0, 80, 2**20]
anyone = st.integers(0, 99)  # modulo those who are there


def kind(old, new):
    """What a change of a label is called."""
    if old == new:
        return None
    return "added" if old is None else "removed" if new is None else "changed"


class AnySequence(RuleBasedStateMachine):
    """Whatever happens, in whatever order, with predictions in between."""

    @initialize(
        hidden=st.sampled_from(SIDE_SETS),
        activation=st.sampled_from(ACTIVATIONS),
        observed=st.integers(0, 15),
        cache_bytes=st.sampled_from(CACHE_BYTES),
        own_bias=st.booleans(),
        seed=st.integers(0, 999),
    )
    def make(self, hidden, activation, observed, cache_bytes, own_bias, seed):
        self.reference = LiveReference.random(
            hidden, activation=activation, observed=observed, own_bias=own_bias, seed=seed
        )
        if "users" not in hidden:  # without a table there is no row of cold-start users and items
            self.reference.shared_row["users"] = 0
        if "items" not in hidden:
            self.reference.shared_row["items"] = 0
        self.state = self.reference.state(cache_bytes=cache_bytes)

    def index(self, axis, number):
        return number % len(self.reference.rows[axis])

    @rule(user=anyone, item=anyone, label=st.integers(0, N_LABELS - 1))
    def rate(self, user, item, label):
        pair = self.index("users", user), self.index("items", item)
        assert self.state.change(*pair, label) == kind(self.reference.cells.get(pair), label)
        self.reference.cells[pair] = label

    @rule(user=anyone, item=anyone)
    def unrate(self, user, item):
        pair = self.index("users", user), self.index("items", item)
        assert self.state.change(*pair, None) == kind(self.reference.cells.pop(pair, None), None)

    @precondition(lambda self: self.reference.cells)
    @rule(which=anyone, label=st.one_of(st.none(), st.integers(0, N_LABELS - 1)))
    def change_what_is_there(self, which, label):
        pair = sorted(self.reference.cells)[which % len(self.reference.cells)]
        old = self.reference.cells.pop(pair)
        assert self.state.change(*pair, label) == kind(old, label)
        if label is not None:
            self.reference.cells[pair] = label

    @rule(axis=st.sampled_from(SIDES), count=st.integers(0, 3))
    def add(self, axis, count):
        own = self.reference.rows[axis]
        assert self.state.add(axis, count) == len(own)
        own += [self.reference.shared_row[axis]] * count

    @rule(axis=st.sampled_from(SIDES), number=anyone)
    def forget(self, axis, number):
        index = self.index(axis, number)
        before = len(self.reference.cells)
        self.reference.forget(axis, index)
        assert self.state.forget(axis, index) == before - len(self.reference.cells)

    @rule(user=anyone, item=anyone)
    def predict_a_pair(self, user, item):
        """Some sums are there when the next change comes, and some are not."""
        pair = self.index("users", user), self.index("items", item)
        logits_k = self.state.pair_logits(*(np.array([index]) for index in pair))[0]
        close = CLOSE if self.reference.values is None else WITH_OWN_BIAS
        np.testing.assert_allclose(logits_k, self.reference.pair(*pair), **close)

    @rule(user=anyone)
    def predict_all_items(self, user):
        user = self.index("users", user)
        self.state.item_logits([self.state.profile(user)])

    @rule()
    def says_what_the_equations_say(self):
        assert_says(self.state, self.reference)
        assert_like_fresh(self.state)

    @invariant()
    def knows_its_interactions(self):
        users, items, labels = self.state.collected().triplets()
        pairs = zip(users.tolist(), items.tolist(), strict=True)
        assert dict(zip(pairs, labels.tolist(), strict=True)) == self.reference.cells
        for axis in SIDES:
            assert self.state.rows(axis).tolist() == self.reference.rows[axis]

    def teardown(self):
        if hasattr(self, "state"):
            self.says_what_the_equations_say()


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_predictions_are_those_of_the_model():
    reference = LiveReference.random(cold_start=0)
    users_p, items_p = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
    expected_pk = predicted(
        reference.parameters.model(),
        matrix_of(reference.cells, N_USERS, N_ITEMS, N_LABELS),
        users_p,
        items_p,
    )
    found_pk = softmax(reference.state().pair_logits(users_p, items_p))
    np.testing.assert_allclose(found_pk, expected_pk, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", SIDE_SETS)
@pytest.mark.parametrize("own_bias", [False, True])
def test_bits_do_not_depend_on_what_else_is_asked(hidden, activation, own_bias, monkeypatch):
    state = LiveReference.random(hidden, activation=activation, own_bias=own_bias).state()
    at_once = everything(state)
    n_items = state.size("items")
    for user in range(state.size("users")):
        alone_mk = state.item_logits([state.profile(user)])[0]
        assert np.array_equal(alone_mk, at_once["items"][user])
        some = np.array([4, 0, 2])
        some_mk = state.item_logits([state.profile(user)], some)[0]
        assert np.array_equal(some_mk, alone_mk[some])
        for item in range(n_items):
            alone_k = state.pair_logits(np.array([user]), np.array([item]))[0]
            assert np.array_equal(alone_k, at_once["pairs"][user * n_items + item])
            if item not in state.history("users", user)[0]:
                assert np.array_equal(alone_k, alone_mk[item])
    monkeypatch.setattr(live_state, "PAIRS_PER_PASS", 7)
    monkeypatch.setattr(live_state, "ITEMS_PER_PASS", 2)
    for name, values in everything(state).items():
        assert np.array_equal(values, at_once[name]), name


@pytest.mark.parametrize("threads", ["1", "3"])
def test_bits_do_not_depend_on_threads(threads, monkeypatch):
    at_once = everything(LiveReference.random().state())
    monkeypatch.setenv("CFUICA_THREADS", threads)
    for name, values in everything(LiveReference.random().state()).items():
        assert np.array_equal(values, at_once[name]), name


def test_the_next_prediction_knows_a_new_rating_on_both_sides():
    state = LiveReference.random(observed=0).state()
    users_p, items_p = np.array([0, 1, 1]), np.array([1, 0, 1])
    before_pk = state.pair_logits(users_p, items_p)
    state.change(0, 0, 2)
    after_pk = state.pair_logits(users_p, items_p)
    assert not np.array_equal(before_pk[0], after_pk[0])  # another item of the same user
    assert not np.array_equal(before_pk[1], after_pk[1])  # another user of the same item
    assert np.array_equal(before_pk[2], after_pk[2])


def test_an_observed_pair_is_predicted_as_if_it_were_not():
    state = LiveReference.random(observed=0).state()
    state.change(1, 2, 0)
    pair = np.array([0]), np.array([2])
    before_pk = state.pair_logits(*pair)
    state.change(0, 2, 1)
    assert np.array_equal(state.pair_logits(*pair), before_pk)


@pytest.mark.parametrize("hidden", SIDE_SETS)
@pytest.mark.parametrize("axis", SIDES)
def test_forgetting_leaves_no_trace(axis, hidden):
    """As if a cold-start user or item without interactions had been there, in the parameters
    too."""
    reference = LiveReference.random(hidden, observed=20, cold_start=0)
    state = reference.state()
    everything(state)  # all sums are there
    index = 2
    assert state.forget(axis, index) > 0

    if axis in hidden:
        for letter in "WVb":
            table = reference.parameters.sides[axis][letter]
            table[index] = table[-1]
    else:
        reference.shared_row[axis] = 0
    reference.forget(axis, index)
    without = reference.state()
    assert_same(state, without)
    theirs = without.network.state_dict()
    for name, tensor in state.network.state_dict().items():
        assert np.array_equal(tensor.numpy(), theirs[name].numpy()), name


@pytest.mark.parametrize("observed", [0, 20])
def test_an_anonymous_users_bias_forgets_an_item_too(observed):
    """Also one on which nobody had done anything."""
    state = LiveReference.random(observed=observed, own_bias=True).state()
    history = np.array([0, 1]), np.array([0, 2])
    assert state.own_bias(state.anonymous(*history)).any()
    state.forget("items", 0)
    assert_like_fresh(state)


def test_forgetting_twice_and_forgetting_a_cold_start_change_no_parameter():
    state = LiveReference.random(cold_start=1).state()
    state.forget("users", 1)
    before = {name: tensor.clone() for name, tensor in state.network.state_dict().items()}
    assert state.forget("users", 1) == 0
    state.forget("items", N_ITEMS - 1)
    for name, tensor in state.network.state_dict().items():
        assert np.array_equal(tensor.numpy(), before[name].numpy()), name


@pytest.mark.parametrize("hidden", SIDE_SETS)
def test_an_anonymous_user_is_served_as_a_stored_cold_start_with_the_same_history(hidden):
    state = LiveReference.random(hidden).state()
    anonymous = state.anonymous(np.array([3, 0]), np.array([1, 2]))
    assert anonymous.user is None
    assert anonymous.items.tolist() == [0, 3]
    assert anonymous.labels.tolist() == [2, 1]
    user = state.add("users")
    others = [state.change(user, 3, 1), state.change(user, 0, 2)]
    assert others == ["added", "added"]
    profile = state.profile(user)
    assert np.array_equal(profile.sums_h, anonymous.sums_h)
    # The stored one also counts among the raters of items 3 and 0.
    said_bmk = state.item_logits([profile, anonymous])
    assert np.array_equal(said_bmk[0], said_bmk[1])


def test_an_anonymous_user_without_history_is_served():
    state = LiveReference.random().state()
    anonymous = state.anonymous(np.array([], np.int64), np.array([], np.int64))
    newcomer = state.profile(state.add("users"))
    said_bmk = state.item_logits([anonymous, newcomer])
    assert np.array_equal(said_bmk[0], said_bmk[1])


def test_a_person_stays_as_they_were():
    state = LiveReference.random().state()
    state.change(0, 0, 1)
    profile = state.profile(0)
    cached = copy.deepcopy(profile)
    state.change(0, 0, 2)
    state.change(0, 1, None)
    for name in ("items", "labels", "sums_h"):
        assert np.array_equal(getattr(profile, name), getattr(cached, name))


def test_nobody_and_no_pairs_are_answered():
    state = LiveReference.random().state()
    unknown_index = np.array([], np.int64)
    assert state.pair_logits(unknown_index, unknown_index).shape == (0, N_LABELS)
    assert state.item_logits([]).shape == (0, N_ITEMS, N_LABELS)
    assert state.profiles(unknown_index) == []


def test_what_is_given_and_handed_out_is_not_shared():
    reference = LiveReference.random()
    network = reference.parameters.model()
    matrix = matrix_of(reference.cells, N_USERS, N_ITEMS, N_LABELS)
    rows = {axis: np.array(reference.rows[axis], np.int32) for axis in SIDES}
    before = matrix.sha256()
    state = LiveState.of(network, matrix, rows)
    state.forget("users", 0)
    state.change(1, 1, 0)
    state.rows("users")[:] = 0
    state.support("items")[:] = 0
    assert matrix.sha256() == before
    assert rows["users"].tolist() == reference.rows["users"]
    assert_like_fresh(state)
    with pytest.raises(ValueError, match="read-only"):
        state.hidden("users")[0] = 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda state: state.change(N_USERS, 0, 0),
        lambda state: state.change(0, -1, 0),
        lambda state: state.change(0, 0, N_LABELS),
        lambda state: state.change(0, N_ITEMS, None),
        lambda state: state.forget("items", N_ITEMS),
        lambda state: state.history("users", -1),
        lambda state: state.profile(N_USERS),
        lambda state: state.anonymous(np.array([N_ITEMS]), np.array([0])),
        lambda state: state.anonymous(np.array([0]), np.array([N_LABELS])),
        lambda state: state.pair_logits(np.array([0]), np.array([-1])),
        lambda state: state.pair_logits(np.array([N_USERS]), np.array([0])),
    ],
)
def test_an_index_out_of_range_is_an_error_and_changes_nothing(ask):
    state = LiveReference.random().state()
    before = state.collected().sha256()
    with pytest.raises(IndexError, match="out of range"):
        ask(state)
    assert state.collected().sha256() == before


def test_an_anonymous_user_rates_an_item_once():
    state = LiveReference.random().state()
    with pytest.raises(ValueError, match="twice"):
        state.anonymous(np.array([1, 2, 1]), np.array([0, 1, 2]))
