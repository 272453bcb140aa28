"""A block holds the interactions between its users and items, and what they are conditioned on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.training.batches import cut_block
from tests.model.reference import matrix_of, random_cells
from tests.training.blocks import cells_of, context_of

N_USERS, N_ITEMS = 6, 7


def cut(cells, n_labels, users, items, open_users, open_items, sides=("users", "items"), **options):
    masks = np.zeros(N_USERS, bool), np.zeros(N_ITEMS, bool)
    masks[0][list(open_users)] = True
    masks[1][list(open_items)] = True
    return cut_block(
        matrix_of(cells, N_USERS, N_ITEMS, n_labels),
        np.array(users, np.int32),
        np.array(items, np.int32),
        sides=sides,
        open_users=masks[0],
        open_items=masks[1],
        **{"keep_users": 1.0, "keep_items": 1.0, "key": 0, "scale": 1.0, **options},
    )


subsets = st.lists(st.integers(0, 5), unique=True)


@settings(max_examples=60, deadline=None)
@given(
    observed=st.integers(0, 30),
    n_labels=st.sampled_from([1, 3, 5]),
    users=subsets,
    items=subsets,
    open_users=subsets,
    open_items=subsets,
    seed=st.integers(0, 2**16),
)
def test_a_block_holds_its_interactions_and_the_open_contexts_of_both_sides(
    observed, n_labels, users, items, open_users, open_items, seed
):
    cells = random_cells(N_USERS, N_ITEMS, n_labels, observed, seed)
    block = cut(cells, n_labels, users, items, open_users, open_items)
    assert cells_of(block) == {
        (u, i): label for (u, i), label in cells.items() if u in users and i in items
    }
    assert context_of(block, "users", n_labels) == {
        item: {u: k for (u, i), k in cells.items() if i == item and u in open_users}
        for item in items
    }
    assert context_of(block, "items", n_labels) == {
        user: {i: k for (u, i), k in cells.items() if u == user and i in open_items}
        for user in users
    }
    for side, n in (("users", N_USERS), ("items", N_ITEMS)):
        bags = block.contexts[side]
        readers = bags.readers
        assert len(readers.offsets) == (n + 1) * n_labels + 1
        query_of_entry = np.repeat(np.arange(bags.n_rows), bags.sizes)
        listed = sorted(zip(bags.entries.tolist(), query_of_entry.tolist(), strict=True))
        entry = np.repeat(np.arange((n + 1) * n_labels), np.diff(readers.offsets))
        assert list(zip(entry.tolist(), readers.order.tolist(), strict=True)) == listed


@pytest.mark.parametrize("sides", [("users",), ("items",)])
def test_a_one_sided_model_needs_one_side_of_the_contexts(sides):
    cells = random_cells(N_USERS, N_ITEMS, 3, 30)
    both = cut(cells, 3, [0, 1], [2, 3], [4, 5], [5, 6])
    one = cut(cells, 3, [0, 1], [2, 3], [4, 5], [5, 6], sides=sides)
    assert tuple(one.contexts) == sides
    assert context_of(one, sides[0], 3) == context_of(both, sides[0], 3)
    assert cells_of(one) == cells_of(both)


def test_the_two_sides_toss_different_coins():
    """With all interactions in one row and one column, equal coins would show as equal contexts."""
    n = min(N_USERS, N_ITEMS)
    cells = {(u, i): 0 for u in range(n) for i in range(n)}
    kept = []
    for key in range(40):
        all_rows = [range(n)] * 4
        block = cut(cells, 1, *all_rows, keep_users=0.5, keep_items=0.5, key=key)
        kept.append([context_of(block, side, 1) for side in ("users", "items")])
    assert not any(users == items for users, items in kept)
