"""The authors' variant, and what prefetching and resuming may not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.errors import SettingsError
from cfuica.settings import RatingSettings
from cfuica.training import batches as module
from cfuica.training.batches import Prefetcher, PublishedEstimator, StrictEstimator, make_estimator
from tests.model.reference import matrix_of, random_cells
from tests.training.blocks import cells_of, context_of, same

ESTIMATORS = [PublishedEstimator, StrictEstimator]


def make(kind=PublishedEstimator, n_users=20, n_items=30, observed=200, batch=(6, 7), seed=0):
    cells = random_cells(n_users, n_items, 5, observed, seed=1)
    matrix = matrix_of(cells, n_users, n_items, 5)
    return kind(matrix, batch_users=batch[0], batch_items=batch[1], seed=seed), cells


def record_cuts(monkeypatch):
    """A list of what `cut_block` is asked for from now on."""
    asked = []

    def cut(matrix, users, items, **options):
        asked.append({"users": users, "items": items, **options})
        return original(matrix, users, items, **options)

    original = module.cut_block
    monkeypatch.setattr(module, "cut_block", cut)
    return asked


@pytest.fixture
def cuts(monkeypatch):
    return record_cuts(monkeypatch)


@pytest.mark.parametrize("kind", ESTIMATORS)
@settings(max_examples=60, deadline=None)
@given(
    n_users=st.integers(2, 30),
    n_items=st.integers(2, 30),
    batch=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 2**63),
    step=st.integers(0, 10**6),
)
def test_a_block_never_sees_its_own_interactions(kind, n_users, n_items, batch, seed, step):
    estimator, cells = make(kind, n_users, n_items, 300, batch, seed)
    block = estimator.draw(step)
    users, items = (
        block.pairs.users.rows.tolist(),
        block.pairs.items.rows.tolist(),
    )
    assert 1 <= len(set(users)) == len(users) <= min(batch[0], n_users)
    assert 1 <= len(set(items)) == len(items) <= min(batch[1], n_items)
    inside = {(u, i): k for (u, i), k in cells.items() if u in users and i in items}
    assert cells_of(block) == inside
    for item, context in context_of(block, "users", 5).items():
        assert not set(context) & set(users)
        assert all(cells[user, item] == label for user, label in context.items())
    for user, context in context_of(block, "items", 5).items():
        assert not set(context) & set(items)
        assert all(cells[user, item] == label for item, label in context.items())
    assert block.scale == pytest.approx(n_users * n_items / (len(users) * len(items)))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(2, 200), st.integers(2, 200)),
    batches=st.tuples(st.integers(1, 250), st.integers(1, 250)),
    smallest=st.sampled_from([0.2, 0.0, 0.5, 0.99]),
    seed=st.integers(0, 2**32),
)
def test_context_chance_and_batch_size_belong_together(sizes, batches, smallest, seed):
    """The context has its smallest share of the members at least (in the published experiments a
    fifth); the batch takes what remains at most."""
    estimator = PublishedEstimator(
        matrix_of({(0, 0): 0}, *sizes, 1), batch_users=batches[0], batch_items=batches[1],
        seed=seed, smallest_context=smallest,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        cuts = record_cuts(patch)
        estimator.draw(0)
    for axis, size, batch in zip(("users", "items"), sizes, batches, strict=True):
        chosen, is_open = cuts[0][axis], cuts[0][f"open_{axis}"]
        keep = cuts[0][f"keep_{axis}"]
        assert 1 <= len(chosen) <= min(batch, size)
        assert chosen.dtype == np.int32
        assert len(np.unique(chosen)) == len(chosen)
        assert not is_open[chosen].any()
        assert is_open.sum() == size - len(chosen)
        assert 0 <= keep <= 1
        context = keep * (size - len(chosen))
        assert context == pytest.approx(round(context), abs=1e-6)
        assert int(smallest * size) <= round(context) <= size - 1
        assert len(chosen) == max(1, min(batch, size - round(context)))


def test_the_published_experiments_smallest_context_is_a_fifth():
    matrix = matrix_of({(0, 0): 0}, 5, 5, 1)
    assert RatingSettings().smallest_context == 0.2
    assert make_estimator(matrix, RatingSettings()).smallest_context == 0.2
    assert make_estimator(matrix, RatingSettings(smallest_context=0.4)).smallest_context == 0.4


def test_context_shares_cover_a_fifth_to_all_and_are_independent_of_each_other(cuts):
    """On a matrix much larger than its batches every block has the full batch."""
    estimator, _ = make(n_users=1000, n_items=800, observed=10, batch=(100, 100))
    for step in range(600):
        estimator.draw(step)
    keep = np.array([(asked["keep_users"], asked["keep_items"]) for asked in cuts])
    assert {(len(asked["users"]), len(asked["items"])) for asked in cuts} == {(100, 100)}
    # A context of a fifth to all but the batch, of what is outside the batch.
    for column, size in zip(keep.T, (1000, 800), strict=True):
        low, high = 0.2 * size / (size - 100), 1.0
        assert low <= column.min() < low + 0.02
        assert high - 0.02 < column.max() <= high
        assert column.mean() == pytest.approx((low + high) / 2, abs=0.04)
    assert abs(np.corrcoef(keep.T)[0, 1]) < 4 / 600**0.5


def test_contexts_are_kept_with_the_chance_drawn(cuts):
    estimator, _ = make(n_users=60, n_items=60, observed=3600, batch=(10, 10))
    kept, expected, spread = 0, 0.0, 0.0
    for step in range(60):
        block = estimator.draw(step)
        for side, queries, keep in (
            ("users", len(cuts[-1]["items"]), cuts[-1]["keep_users"]),
            ("items", len(cuts[-1]["users"]), cuts[-1]["keep_items"]),
        ):
            mask = cuts[-1][f"open_{side}"]
            outside = queries * int(mask.sum())
            kept += len(block.contexts[side].entries)
            expected += keep * outside
            spread += keep * (1 - keep) * outside
    assert abs(kept - expected) < 4 * spread**0.5


def test_every_user_and_item_has_its_turn():
    estimator, _ = make(n_users=12, n_items=9, batch=(3, 3))
    users, items = np.zeros(12), np.zeros(9)
    for step in range(600):
        block = estimator.draw(step)
        users[block.pairs.users.rows] += 1
        items[block.pairs.items.rows] += 1
    assert users.min() > 0.7 * users.mean()
    assert items.min() > 0.7 * items.mean()


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_a_side_of_one_is_refused_with_a_sentence(shape):
    estimator, _ = make(n_users=shape[0], n_items=shape[1], observed=5)
    with pytest.raises(SettingsError, match="at least 2 users and 2 items"):
        estimator.draw(0)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_block_depends_on_seed_and_step_alone(kind):
    one, _ = make(kind, seed=3)
    blocks = [one.draw(step) for step in range(6)]
    again, _ = make(kind, seed=3)
    assert all(same(again.draw(step), blocks[step]) for step in (5, 0, 3, 3, 1))
    assert not any(same(blocks[a], blocks[b]) for a in range(6) for b in range(a))
    other, _ = make(kind, seed=4)
    assert not any(same(other.draw(step), blocks[step]) for step in range(6))
    # Neighbouring keys are no shifted copies of each other.
    assert not same(other.draw(2), blocks[3])


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_prefetching_and_resuming_change_no_block(kind):
    estimator, _ = make(kind)
    expected = [estimator.draw(step) for step in range(12)]
    blocks = Prefetcher(estimator)
    try:
        # In order, back again, further on: as a resumed run would ask.
        for step in (0, 1, 2, 3, 2, 2, 7, 8, 0, 11):
            assert same(blocks.take(step), expected[step])
    finally:
        blocks.close()


def test_a_failure_while_drawing_ahead_is_raised_where_the_block_is_taken():
    class Breaks:
        def draw(self, step):
            if step == 2:
                raise ValueError("block 2 is broken")
            return step

    blocks = Prefetcher(Breaks())
    try:
        assert (blocks.take(0), blocks.take(1)) == (0, 1)
        with pytest.raises(ValueError, match="block 2 is broken"):
            blocks.take(2)
    finally:
        blocks.close()


def test_long_contexts_are_thinned_to_about_the_limit():
    """Users 0 and 1 have 400 and 6 interactions; items have one or two."""
    cells = {(0, item): item % 5 for item in range(400)}
    cells |= {(1, item): 0 for item in range(6)}
    matrix = matrix_of(cells, 2, 400, 5)
    estimator = PublishedEstimator(matrix, batch_users=2, batch_items=1, max_context=20)
    sizes = {0: [], 1: []}
    for step in range(300):
        for user, context in context_of(estimator.draw(step), "items", 5).items():
            assert all(cells[user, item] == label for item, label in context.items())
            sizes[user].append(len(context))
    # The chance to be kept is at most 20 / 400, of 399 or 400 that are not in the block.
    assert np.mean(sizes[0]) == pytest.approx(20, abs=1.5)
    # Of a short one it is the share that is drawn for each block.
    assert 2.5 < np.mean(sizes[1]) < 4.5


def test_a_limit_of_contexts_needs_normalised_sums_of_the_published_estimator():
    usable = RatingSettings(max_context=9, length_normalisation=1)
    for change in ({"length_normalisation": 0}, {"estimator": "strict"}):
        with pytest.raises(SettingsError, match="max_context=9 needs estimator=published and a"):
            usable.replaced(**change)
