"""Many changes at once, against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.live.interactions import Changes, Observed, merged
from tests.model.reference import matrix_of

N_USERS, N_ITEMS, N_LABELS = 5, 4, 3
cells = st.tuples(st.integers(0, N_USERS - 1), st.integers(0, N_ITEMS - 1))
labels = st.integers(0, N_LABELS - 1)


def changes_of(changes: dict[tuple[int, int], int | None]) -> Changes:
    return Changes(
        np.array([user for user, _ in changes], np.int32),
        np.array([item for _, item in changes], np.int32),
        np.array([label or 0 for label in changes.values()], np.uint8),
        np.array([label is not None for label in changes.values()], np.bool_),
    )


@settings(max_examples=100, deadline=None)
@given(
    old=st.dictionaries(cells, labels, max_size=15),
    changes=st.dictionaries(cells, st.one_of(labels, st.none()), max_size=10),
)
def test_merging_is_updating_a_dictionary(old, changes):
    new = {**old, **changes}
    matrix, made = merged(matrix_of(old, N_USERS, N_ITEMS, N_LABELS), changes_of(changes))
    cached = {cell: label for cell, label in new.items() if label is not None}
    assert matrix.sha256() == matrix_of(cached, N_USERS, N_ITEMS, N_LABELS).sha256()
    given_ = {cell: label for cell, label in changes.items() if label is not None}
    assert made == Observed(
        added=sum(cell not in old for cell in given_),
        changed=sum(cell in old and old[cell] != label for cell, label in given_.items()),
        removed=sum(cell in old for cell in changes if cell not in given_),
    )


@given(changes=st.dictionaries(cells, st.one_of(labels, st.none()), max_size=10))
def test_rows_are_the_changes_in_their_order(changes):
    assert list(changes_of(changes).rows()) == [
        (*cell, label, None, 0) for cell, label in changes.items()
    ]
