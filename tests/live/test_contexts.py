"""Running sums are exact, whatever was added and taken out before."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.live import contexts as contexts_module
from cfuica.live.contexts import ExactSums
from cfuica.live.interactions import GrowingArray, LiveRows
from cfuica.model.network import Side
from tests.live.reference import LiveReference, assert_like_fresh, assert_says
from tests.model.reference import matrix_of, random_cells

QUERIES, MEMBERS, LABELS, UNITS = 20, 30, 3, 8


def make(cells, side, **options) -> ExactSums:
    interactions = LiveRows(matrix_of(cells, QUERIES, MEMBERS, LABELS).by_user)
    rows = GrowingArray(np.arange(MEMBERS, dtype=np.int32))
    return ExactSums(side, interactions, rows, **options)


def make_side(seed=0, scale=0.5):
    side = Side(MEMBERS + 1, LABELS, UNITS)
    rng = np.random.default_rng(seed)
    # From tiny to large: such sums are exact on the grid only.
    scales = scale * 2.0 ** rng.integers(-40, 5, side.W.array.shape)
    side.W.array[:] = rng.normal(0, scales)
    side.c.detach().numpy()[:] = rng.normal(0, scale, UNITS)
    return side


def change(sums, query, member, new):
    """Change an interaction as the state does."""
    interactions = sums.interactions
    old = interactions.take(query, member) if new is None else interactions.put(query, member, new)
    if old != new:
        sums.change(query, member, old, new)


def test_a_hundred_thousand_changes_leave_the_bits_of_a_fresh_sum():
    rng = np.random.default_rng(1)
    side = make_side()
    sums = make(random_cells(QUERIES, MEMBERS, LABELS, 300), side)
    all_rows = np.arange(QUERIES)
    sums.sums(all_rows)
    places = zip(
        rng.integers(QUERIES, size=100_000).tolist(),
        rng.integers(MEMBERS, size=100_000).tolist(),
        rng.integers(-1, LABELS, size=100_000).tolist(),
        strict=True,
    )
    for query, member, label in places:
        change(sums, query, member, None if label < 0 else label)
    fresh = ExactSums(side, LiveRows(sums.interactions.compressed()), sums.member_rows)
    assert np.array_equal(sums.sums(all_rows), fresh.sums(all_rows))
    assert np.array_equal(sums.hidden_between(0, QUERIES), fresh.hidden_between(0, QUERIES))


def test_a_sum_is_that_of_whole_numbers_of_steps():
    side = make_side(scale=1e-4)
    cells = random_cells(QUERIES, MEMBERS, LABELS, 300)
    found_qh = make(cells, side).sums(np.arange(QUERIES))

    def steps(weight) -> int:
        return round(float(weight) * 2**32)

    for query in range(QUERIES):
        for h in range(UNITS):
            total = sum(
                steps(side.W.array[member, label, h])
                for (q, member), label in cells.items()
                if q == query
            )
            assert found_qh[query, h] * 2**32 == total


@pytest.mark.parametrize("weight", [1e7, -3e20, 1e38])
def test_weights_too_large_for_exact_sums_are_summed_anew(weight):
    reference = LiveReference.random(observed=15, seed=3)
    for side in reference.parameters.sides.values():
        side["W"][1, :, 0] = np.float32(weight)
    state = reference.state()
    rng = np.random.default_rng(0)
    for _ in range(60):
        pair = int(rng.integers(6)), int(rng.integers(5))
        label = int(rng.integers(-1, 3))
        if label < 0:
            state.change(*pair, None)
            reference.cells.pop(pair, None)
        else:
            state.change(*pair, label)
            reference.cells[pair] = label
        state.item_logits([state.profile(pair[0])])
    assert_like_fresh(state)
    for user in range(6):  # nothing huge is left in any sum
        state.change(user, 1, None)
    for item in range(5):
        state.change(1, item, None)
    reference.cells = {pair: k for pair, k in reference.cells.items() if 1 not in pair}
    assert_like_fresh(state)
    assert_says(state, reference)


@pytest.mark.parametrize("others", [0, 8])
def test_taking_a_huge_weight_out_brings_back_what_it_drowned(others):
    side = make_side()
    side.W.array[0] = 3e9
    cells = {(0, 0): 0, **{(0, 1 + member): 1 for member in range(others)}}
    sums = make(cells, side)
    zero = np.array([0])
    sums.sums(zero)
    change(sums, 0, 0, None)
    del cells[0, 0]
    assert np.array_equal(sums.sums(zero), make(cells, side).sums(zero))


@pytest.mark.parametrize("cached", [0, 1, 7])
def test_queries_beyond_the_budget_get_the_same_bits(cached):
    side = make_side()
    cells = random_cells(QUERIES, MEMBERS, LABELS, 300)
    bounded, unbounded = make(cells, side, cache_bytes=cached * UNITS * 12), make(cells, side)
    for sums in (bounded, unbounded):
        sums.interactions.extend(4)
        sums.extend(4)
        change(sums, QUERIES + 1, 5, 2)
    queries = np.random.default_rng(0).permutation(QUERIES + 4)
    left_out = np.full(len(queries), -1)
    left_out[::3] = 5
    assert np.array_equal(bounded.sums(queries), unbounded.sums(queries))
    assert np.array_equal(bounded.hidden(queries, left_out), unbounded.hidden(queries, left_out))
    for part in ((0, QUERIES + 4), (2, 5), (cached, cached + 2)):
        assert np.array_equal(bounded.hidden_between(*part), unbounded.hidden_between(*part))
    assert len(bounded._sums_qh.values) == len(bounded._hidden_qh.values) == cached


def test_only_changed_rows_are_made_anew(monkeypatch):
    made: list[tuple[str, int]] = []
    run_rows = contexts_module.run_rows

    def spy(kernel, rows, *args, **options):
        made.append((kernel.__name__, rows))
        run_rows(kernel, rows, *args, **options)

    monkeypatch.setattr(contexts_module, "run_rows", spy)
    sums = make(random_cells(QUERIES, MEMBERS, LABELS, 300), make_side())
    sums.hidden_between(0, QUERIES)
    assert made == [("fill", QUERIES), ("read", QUERIES)]
    made.clear()
    sums.hidden_between(0, QUERIES)
    assert made == []
    sums.interactions.extend(1)
    sums.extend(1)
    change(sums, 3, 4, 1)
    change(sums, 3, 4, 2)
    sums.hidden_between(0, QUERIES + 1)
    assert made == [("fill", 1), ("read", 2)]  # the newcomer; and the changed one
