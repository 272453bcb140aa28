"""The conditional, against a second reading of the paper (`reference.py`) and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import Csr
from cfuica.model.network import Network
from cfuica.model.side import Side
from tests.model.reference import Reference, pairs_of, random_cells, softmax

SIDES = {
    "both": {"users": 3, "items": 5},
    "users": {"users": 4},
    "items": {"items": 1},
}


def test_the_reference_itself_by_hand():
    """One hidden unit, two labels, one interaction in each sum."""
    users = {
        "W": np.array([[[0.0], [0.0]], [[0.5], [2.0]]]),  # user 1 with label 1 (0-based) adds 2
        "c": np.array([-1.0]),
        "V": np.array([[[3.0], [-1.0]], [[9.0], [9.0]]]),
        "b": np.array([[0.1, 0.2], [9.0, 9.0]]),
    }
    items = {
        "W": np.array([[[0.0], [0.0]], [[-4.0], [7.0]]]),  # item 1 with label 0 adds -4
        "c": np.array([5.0]),
        "V": np.array([[[1.0], [2.0]], [[9.0], [9.0]]]),
        "b": np.array([[0.0, -0.3], [9.0, 9.0]]),
    }
    model = Reference({"users": users, "items": items}, activation="relu")
    # h^U = relu(-1 + 2) = 1, h^I = relu(5 - 4) = 1
    expected = np.array([3.0 + 0.1 + 1.0 + 0.0, -1.0 + 0.2 + 2.0 - 0.3])
    before = {(1, 0): 1, (0, 1): 0, (1, 1): 0}  # (1, 1) shares neither user nor item
    np.testing.assert_allclose(model.conditional((0, 0), before), softmax(expected))
    # With sharing, label 1 uses the sum of both stored columns: h^U = relu(-1 + 2.5) = 1.5.
    model.share = True
    expected = np.array([3 * 1.5 + 0.1 + 1.0, (3 - 1) * 1.5 + 0.3 + (1 + 2) - 0.3])
    np.testing.assert_allclose(model.conditional((0, 0), before), softmax(expected))


def bag_of(contexts, n_labels):
    """contexts: for each query a list of (member, label)."""
    offsets = np.cumsum([0, *map(len, contexts)]).astype(np.int64)
    entries = [member * n_labels + label for context in contexts for member, label in context]
    return Csr(offsets, np.array(entries, np.int32))


@settings(max_examples=40, deadline=None)
@given(
    n_labels=st.sampled_from([1, 2, 3, 5]),
    sides=st.sampled_from(list(SIDES)),
    activation=st.sampled_from(["tanh", "sigmoid", "relu"]),
    share=st.booleans(),
    observed=st.integers(0, 14),
    seed=st.integers(0, 2**16),
)
def test_logits_equal_a_second_reading_of_the_paper(
    n_labels, sides, activation, share, observed, seed
):
    n_users, n_items = 4, 5
    cells = random_cells(n_users, n_items, n_labels, observed, seed)
    truth = Reference.random(
        n_users, n_items, n_labels, SIDES[sides], activation=activation, share=share, seed=seed
    )
    every = [(user, item) for user in range(n_users) for item in range(n_items)]
    users_p, items_p = np.array(every, np.int32).T.copy()
    pairs = pairs_of(users_p, items_p)
    bags = {
        "users": bag_of(
            [[(u, k) for (u, i), k in cells.items() if i == item] for item in range(n_items)],
            n_labels,
        ),
        "items": bag_of(
            [[(i, k) for (u, i), k in cells.items() if u == user] for user in range(n_users)],
            n_labels,
        ),
    }
    model = truth.model()
    logits_pk = model.logits(pairs, model.hidden(bags)).numpy()
    expected = [
        truth.logits(
            (user, item),
            {cell: k for cell, k in cells.items() if cell[1] == item},
            {cell: k for cell, k in cells.items() if cell[0] == user},
        )
        for user, item in every
    ]
    np.testing.assert_allclose(logits_pk, expected, rtol=1e-4, atol=1e-4)
    assert model.n_labels == n_labels


def test_tensors_are_named_by_side():
    model = Network.initial(n_users=3, n_items=4, n_labels=2, hidden={"users": 5, "items": 6})
    assert {name: tuple(tensor.shape) for name, tensor in model.tensors().items()} == {
        "users.encoder_nkh": (4, 2, 5),
        "users.encoder_bias_h": (5,),
        "users.decoder_nkh": (4, 2, 5),
        "users.decoder_bias_nk": (4, 2),
        "items.encoder_nkh": (5, 2, 6),
        "items.encoder_bias_h": (6,),
        "items.decoder_nkh": (5, 2, 6),
        "items.decoder_bias_nk": (5, 2),
    }


def test_initial_values_follow_the_seed():
    sizes = {"n_users": 3, "n_items": 4, "n_labels": 2, "hidden": {"users": 5, "items": 5}}
    one, same, other = (Network.initial(**sizes, seed=seed) for seed in (7, 7, 8))
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, same.tensors()[name])
        if "bias" not in name:
            assert not torch.equal(tensor, other.tensors()[name])


@pytest.mark.parametrize("sides", [("users",), ("items",)])
def test_one_sided_models_hold_one_side_only(sides):
    model = Network.initial(n_users=3, n_items=4, n_labels=2, hidden=dict.fromkeys(sides, 5))
    assert tuple(model.sides) == sides
    assert isinstance(model.sides[sides[0]], Side)
    assert model.parameter_count() == sum(
        t.numel() for t in model.sides[sides[0]].tensors().values()
    )


def test_parameters_are_around_83_percent_of_cf_nades_on_ml_1m():
    """The paper: with the same total of hidden units. The published setting is 500 + 500."""

    def count(hidden):
        return Network.initial(
            n_users=6040, n_items=3952, n_labels=5, hidden=hidden
        ).parameter_count()

    def ours(units):
        return count({"users": units, "items": units})

    def item_based_cf_nade(units):
        return count({"users": 2 * units})

    assert 0.82 <= ours(20) / item_based_cf_nade(20) <= 0.84

    # Counts are straight lines in H: from two small models to the published size.
    def at(units, counted):
        grad = (counted(4) - counted(2)) / 2
        assert counted(3) == counted(2) + grad
        return counted(2) + (units - 2) * grad

    ratio = at(500, ours) / at(500, item_based_cf_nade)
    assert ratio == pytest.approx(0.8276, abs=1e-4)
