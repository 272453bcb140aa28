"""Pairs as both sides see them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops.tables import Pairs, with_cold
from tests.model.reference import pairs_of


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_both_sides_see_every_pair_with_its_own_row_and_query(pairs_of_ids):
    users_p = np.array([user for user, _ in pairs_of_ids], np.int32)
    items_p = np.array([item for _, item in pairs_of_ids], np.int32)
    pairs = pairs_of(users_p, items_p)
    assert pairs.size == len(pairs_of_ids)
    users, items = np.unique(users_p), np.unique(items_p)
    # The users side has rows of users and encodes items; the items side the other way round.
    for seen, own, other, indices, queries in (
        (pairs.seen_by("users"), users_p, items_p, users, items),
        (pairs.seen_by("items"), items_p, users_p, items, users),
    ):
        assert seen.rows.tolist() == indices.tolist()
        assert seen.row_of_pair.tolist() == own.tolist()
        assert queries[seen.query_of_pair].tolist() == other.tolist()
        for grouping, keys, wanted in (
            (seen.by_row, own, indices),
            (seen.by_query, other, queries),
        ):
            groups = np.split(grouping.order, grouping.offsets[1:-1]) if len(wanted) else []
            assert [group.tolist() for group in groups] == [
                np.flatnonzero(keys == key).tolist() for key in wanted
            ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()),
        max_size=20,
        unique_by=lambda pair: pair[:2],
    )
)
def test_the_shared_row_replaces_that_of_cold_pairs_and_nothing_else_changes(described):
    users_p, items_p = (np.array([pair[at] for pair in described], np.int32) for at in (0, 1))
    is_cold_p = np.array([pair[2] for pair in described], bool)
    pairs = pairs_of(users_p, items_p)
    for side, own in (("users", users_p), ("items", items_p)):
        seen = pairs.seen_by(side)
        found = with_cold(seen, is_cold_p, 10)
        rows = np.where(is_cold_p, 10, own)
        assert found.row_of_pair.tolist() == rows.tolist()
        assert found.rows.tolist() == [*seen.rows.tolist(), 10]
        assert {found.rows.dtype, found.row_of_pair.dtype} == {np.dtype(np.int32)}
        groups = np.split(found.by_row.order, found.by_row.offsets[1:-1])
        assert [group.tolist() for group in groups] == [
            np.flatnonzero(rows == row).tolist() for row in found.rows
        ]
        assert found.query_of_pair is seen.query_of_pair
        assert found.by_query is seen.by_query
        assert seen.row_of_pair.tolist() == own.tolist()


@settings(deadline=None)
@given(users=st.integers(0, 5), items=st.integers(0, 6), seed=st.integers(0, 99))
def test_a_grid_has_every_user_with_every_item(users, items, seed):
    """As `between` would list them, user by user."""
    rng = np.random.default_rng(seed)
    user_rows, item_rows = (rng.integers(0, 9, n).astype(np.int32) for n in (users, items))
    user_p, item_p = (each.ravel().astype(np.int32) for each in np.indices((users, items)))
    found, expected = (
        Pairs.grid(user_rows, item_rows),
        Pairs.between(user_rows, item_rows, user_p, item_p),
    )
    for side in ("users", "items"):
        one, other = found.seen_by(side), expected.seen_by(side)
        for name in ("rows", "query_of_pair", "row_of_pair"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for grouping in ("by_row", "by_query"):
            for array, wanted in zip(getattr(one, grouping), getattr(other, grouping), strict=True):
                np.testing.assert_array_equal(array, wanted)
