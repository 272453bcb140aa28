"""Blocks with cold-start users and items: who is one, what stays, and what the shared rows learn
from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfuica.ops.tables import Pairs, with_cold
from cfuica.training.batches import (
    COLD_ITEM,
    COLD_USER,
    ColdStartMasking,
    PublishedEstimator,
    StrictEstimator,
)
from tests.model.reference import matrix_of, random_cells
from tests.training.blocks import same
from tests.training.cases import gradients_of, make_case, pair_rows, rating_loss_of

N_USERS, N_ITEMS = 60, 50
MATRIX = matrix_of(random_cells(N_USERS, N_ITEMS, 3, 1800, seed=0), N_USERS, N_ITEMS, 3)


def drawing(kind=PublishedEstimator, seed=5):
    estimator = kind(MATRIX, batch_users=20, batch_items=25, seed=seed)
    return ColdStartMasking(estimator, {"users": N_USERS, "items": N_ITEMS}, seed)


def cold(block):
    """(P, 2): whether each pair's user and item has the shared row."""
    return np.array(pair_rows(block)).reshape(-1, 2) == (N_USERS, N_ITEMS)


def test_every_pair_has_a_cold_start_and_the_kinds_have_their_shares():
    is_cold = np.concatenate([cold(drawing().draw(step)) for step in range(40)])
    assert is_cold.any(1).all()
    shares = {
        (True, False): COLD_USER,
        (False, True): COLD_ITEM,
        (True, True): 1 - COLD_USER - COLD_ITEM,
    }
    for kind, share in shares.items():
        found = (is_cold == kind).all(1).mean()
        assert found == pytest.approx(share, abs=4 * (share * (1 - share) / len(is_cold)) ** 0.5)


@pytest.mark.parametrize("kind", [PublishedEstimator, StrictEstimator])
def test_only_rows_change_contexts_labels_and_queries_stay(kind):
    for step in range(5):
        before, after = drawing(kind).estimator.draw(step), drawing(kind).draw(step)
        for own, shared in zip(pair_rows(before), pair_rows(after), strict=True):
            assert all(row in (mine, last) for row, mine, last in
                       zip(shared, own, (N_USERS, N_ITEMS), strict=True))  # fmt: skip
        assert same(replace(after, pairs=before.pairs), before)
        for side in ("users", "items"):
            one, other = before.pairs.seen_by(side), after.pairs.seen_by(side)
            assert np.array_equal(one.query_of_pair, other.query_of_pair)
            assert np.array_equal(one.by_query.order, other.by_query.order)
            assert np.array_equal(one.by_query.offsets, other.by_query.offsets)


def test_a_block_depends_on_seed_and_step_only():
    one, again = drawing(), drawing()
    again.draw(0)
    assert same(one.draw(7), again.draw(7))
    other = ColdStartMasking(one.estimator, one.shared_rows, seed=6)
    assert not np.array_equal(cold(one.draw(7)), cold(other.draw(7)))
    assert not same(one.draw(7), one.draw(8))


def test_the_shared_row_has_the_gradients_of_all_its_pairs_and_other_rows_none_of_them():
    """With one and the same row for all, its gradient is the sum of the gradients of all rows."""
    case = make_case(seed=4)
    for parameters in case.truth.sides.values():
        for letter in "Vb":
            parameters[letter][:] = parameters[letter][-1]
    pairs, every = case.block.pairs, np.ones(case.block.pairs.size, bool)
    shared = Pairs(with_cold(pairs.users, every, 5), with_cold(pairs.items, every, 6))
    losses, gradients = [], []
    for block in (case.block, replace(case.block, pairs=shared)):
        network = case.truth.model()
        losses.append(rating_loss_of(network, block))
        losses[-1].backward()
        gradients.append(gradients_of(network))
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-6)
    before, after = gradients
    for name in before:
        if name.split(".")[1] in "Vb":
            assert not before[name][-1].any()
            assert not after[name][:-1].any()
            np.testing.assert_allclose(after[name][-1], before[name].sum(0), atol=1e-5)
            assert np.abs(after[name][-1]).max() > 0.01
        else:
            np.testing.assert_allclose(after[name], before[name], atol=1e-6)
    for side in ("users", "items"):
        assert not after[f"{side}.W.values"][-1].any(), "no context holds a cold-start user or item"
