"""Prediction from all that is observed, against a second reading of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.training.rating_task import pair_contexts
from tests.model.reference import (
    Reference,
    matrix_of,
    own_rows,
    predicted,
    probabilities,
    random_cells,
    softmax,
)

N_USERS, N_ITEMS = 5, 6
SIDES = {"both": {"users": 3, "items": 5}, "users": {"users": 4}, "items": {"items": 1}}


def every_pair():
    users_p, items_p = (each.ravel() for each in np.indices((N_USERS, N_ITEMS)))
    return users_p.astype(np.int32), items_p.astype(np.int32)


@settings(max_examples=40, deadline=None)
@given(
    n_labels=st.sampled_from([1, 2, 3, 5]),
    sides=st.sampled_from(list(SIDES)),
    activation=st.sampled_from(["tanh", "sigmoid", "relu"]),
    share=st.booleans(),
    observed=st.integers(0, 24),
    powers=st.tuples(st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 1.0])),
    pairs=st.lists(
        st.tuples(st.integers(0, N_USERS - 1), st.integers(0, N_ITEMS - 1)), max_size=12
    ),
    seed=st.integers(0, 2**16),
)
def test_probabilities_are_conditioned_on_all_other_interactions(
    n_labels, sides, activation, share, observed, powers, pairs, seed
):
    """Pairs in any order, also twice, observed or not; users and items may have no interaction."""
    cells = random_cells(N_USERS, N_ITEMS, n_labels, observed, seed)
    truth = Reference.random(
        N_USERS, N_ITEMS, n_labels, SIDES[sides], activation=activation, share=share, seed=seed,
        length_norms={"users": (powers[0], 2.0), "items": (powers[1], 5.0)},
    )  # fmt: skip
    matrix = matrix_of(cells, N_USERS, N_ITEMS, n_labels)
    users_p = np.array([user for user, _ in pairs], np.int64)
    items_p = np.array([item for _, item in pairs], np.int64)
    p_pk = predicted(truth.model(), matrix, users_p, items_p)
    assert p_pk.shape == (len(pairs), n_labels)
    assert p_pk.dtype == np.float32
    np.testing.assert_allclose(p_pk.sum(1), 1, rtol=1e-5)
    for row, pair in zip(p_pk, pairs, strict=True):
        others = {cell: label for cell, label in cells.items() if cell != pair}
        np.testing.assert_allclose(row, truth.conditional(pair, others), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("sides", list(SIDES))
def test_cold_start_users_have_the_shared_row_and_their_own_histories(sides):
    truth = Reference.random(N_USERS, N_ITEMS, 3, SIDES[sides], seed=3)
    cells = random_cells(N_USERS, N_ITEMS, 3, 20, seed=3)
    users_p, items_p = every_pair()
    matrix = matrix_of(cells, N_USERS, N_ITEMS, 3)
    rows = own_rows(matrix)
    rows["users"][:] = N_USERS
    p_pk = probabilities(truth.model(), *pair_contexts(matrix, users_p, items_p, rows))
    for row, user, item in zip(p_pk, users_p.tolist(), items_p.tolist(), strict=True):
        others = {cell: label for cell, label in cells.items() if cell != (user, item)}
        uuc = {cell: label for cell, label in others.items() if cell[1] == item}
        iic = {cell: label for cell, label in others.items() if cell[0] == user}
        expected = softmax(truth.logits((N_USERS, item), uuc, iic))
        np.testing.assert_allclose(row, expected, rtol=1e-3, atol=1e-5)


def test_an_observed_pair_does_not_see_its_own_label():
    truth = Reference.random(N_USERS, N_ITEMS, 3, SIDES["both"], seed=1)
    cells = random_cells(N_USERS, N_ITEMS, 3, 20, seed=1)
    pair = next(iter(cells))
    users_p, items_p = every_pair()
    at = int(np.flatnonzero((users_p == pair[0]) & (items_p == pair[1]))[0])
    without = {cell: label for cell, label in cells.items() if cell != pair}
    rows = [
        predicted(
            truth.model(), matrix_of(some, N_USERS, N_ITEMS, 3), users_p, items_p
        )
        for some in (without, *({**cells, pair: label} for label in range(3)))
    ]  # fmt: skip
    for other in rows[1:]:
        np.testing.assert_allclose(other[at], rows[0][at], rtol=1e-6)
        assert np.abs(other - rows[0]).max() > 1e-3  # the same user's other pairs do see it


def test_an_empty_matrix_predicts_from_the_biases():
    truth = Reference.random(N_USERS, N_ITEMS, 3, SIDES["both"], seed=2)
    matrix = matrix_of({}, N_USERS, N_ITEMS, 3)
    users_p, items_p = every_pair()
    p_pk = predicted(truth.model(), matrix, users_p, items_p)
    for row, user, item in zip(p_pk, users_p, items_p, strict=True):
        np.testing.assert_allclose(row, truth.conditional((user, item), {}), rtol=1e-4)


def test_no_pairs_give_no_rows():
    truth = Reference.random(N_USERS, N_ITEMS, 4, SIDES["users"])
    nothing = np.zeros(0, np.int32)
    p_pk = predicted(truth.model(), matrix_of({}, N_USERS, N_ITEMS, 4), nothing, nothing)
    assert p_pk.shape == (0, 4)


def test_predictions_are_symmetric_in_users_and_items():
    """The transposed matrix with the sides swapped is the same model."""
    truth = Reference.random(N_USERS, N_ITEMS, 3, SIDES["both"], seed=5)
    cells = random_cells(N_USERS, N_ITEMS, 3, 15, seed=5)
    swapped = Reference({"users": truth.sides["items"], "items": truth.sides["users"]})
    transposed = {(item, user): label for (user, item), label in cells.items()}
    users_p, items_p = every_pair()
    matrix = matrix_of(cells, N_USERS, N_ITEMS, 3)
    flipped = matrix_of(transposed, N_ITEMS, N_USERS, 3)
    np.testing.assert_allclose(
        predicted(truth.model(), matrix, users_p, items_p),
        predicted(swapped.model(), flipped, items_p, users_p),
        rtol=1e-5,
    )
