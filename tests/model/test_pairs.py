"""Pairs as both sides see them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.pairs import Pairs


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_both_sides_see_every_pair_with_its_own_member_and_query(pairs_of_ids):
    users_p = np.array([user for user, _ in pairs_of_ids], np.int32)
    items_p = np.array([item for _, item in pairs_of_ids], np.int32)
    pairs = Pairs.of(users_p, items_p)
    assert pairs.size == len(pairs_of_ids)
    users, items = np.unique(users_p), np.unique(items_p)
    # The users side has users as members and encodes items; the items side the other way round.
    for seen, own, other, members, queries in (
        (pairs.seen_by("users"), users_p, items_p, users, items),
        (pairs.seen_by("items"), items_p, users_p, items, users),
    ):
        assert seen.members.tolist() == members.tolist()
        assert seen.member_of_pair.tolist() == own.tolist()
        assert queries[seen.query_of_pair].tolist() == other.tolist()
        for grouping, keys, wanted in (
            (seen.by_member, own, members),
            (seen.by_query, other, queries),
        ):
            groups = np.split(grouping.order, grouping.offsets[1:-1]) if len(wanted) else []
            assert [group.tolist() for group in groups] == [
                np.flatnonzero(keys == key).tolist() for key in wanted
            ]
