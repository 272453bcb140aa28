"""Synthetic tables: counts, long tails, distinct pairs, and the floor that they state."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data import shapes
from cfuica.data.shapes import SHAPES, Block, Shape, gini, synthetic_blocks, write_synthetic
from cfuica.data.splits import Split, in_first_fold
from cfuica.errors import SettingsError

SMALL = Shape(300, 200, 6_000, 0.45, 0.5, 1, 150, 250)


def _table(shape: Shape, seed: int = 0) -> Block:
    blocks = list(synthetic_blocks(shape, seed))
    names = ("user", "item", "rating", "timestamp", "expected")
    return Block(*(np.concatenate([getattr(block, name) for block in blocks]) for name in names))


@pytest.mark.parametrize(
    "shape",
    [
        SMALL,
        SHAPES["ml-1m"].resized(1_500, None, 240_000),
        SHAPES["netflix"].resized(8_000, 2_000, 190_000),
        SHAPES["shop"].resized(10_000, 10_000, 100_000),
    ],
    ids=["small", "ml-1m", "netflix", "shop"],
)
def test_counts_are_exact_pairs_distinct_and_the_long_tails_as_stated(shape: Shape) -> None:
    table = _table(shape)
    assert table.user.size == shape.interactions
    pairs = table.user.astype(np.int64) * (shape.items + 1) + table.item
    assert np.unique(pairs).size == shape.interactions
    per_user, per_item = np.bincount(table.user)[1:], np.bincount(table.item)[1:]
    assert (per_user.size, per_item.size) == (shape.users, shape.items)
    assert per_user.min() >= shape.least_per_user
    assert per_item.min() >= 1
    assert gini(per_user) == pytest.approx(shape.gini_users, abs=0.02)
    assert gini(per_item) == pytest.approx(shape.gini_items, abs=0.02)


def test_times_go_on_along_a_history_and_stay_in_the_span() -> None:
    table = _table(SMALL)
    same_user = np.diff(table.user) == 0
    assert (np.diff(table.timestamp)[same_user] >= 0).all()
    assert table.timestamp.min() >= SMALL.first_second
    assert table.timestamp.max() <= SMALL.first_second + 86_400 * SMALL.days


def test_ratings_have_the_stated_mean_and_noise() -> None:
    """Over many pairs, a rating differs from `expected` by nothing on average, whatever it is."""
    table = _table(SHAPES["ml-1m"].resized(2_000, 500, 100_000))
    error = table.rating - table.expected.astype(np.float64)
    for low in (1.0, 2.5, 3.0, 3.5, 4.0):
        part = error[(table.expected >= low) & (table.expected < low + 0.5)]
        assert abs(part.mean()) < 4 * part.std() / math.sqrt(part.size)


def test_the_floor_is_the_error_of_the_best_prediction_over_many_draws() -> None:
    """The variance of each rating, from its distribution by hand, gives the same floor."""
    table = _table(SMALL)
    error = (table.rating - table.expected.astype(np.float64)) ** 2
    # The centre of a pair by bisection from `expected`, then its variance.
    low, high = np.full(error.size, -10.0), np.full(error.size, 15.0)
    for _ in range(60):
        middle = (low + high) / 2
        below = _moments(middle, SMALL.noise)[0] < table.expected
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    variance = _moments(high, SMALL.noise)[1]
    assert error.mean() == pytest.approx(variance.mean(), abs=4 * error.std() / error.size**0.5)


def _moments(centre: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    edges = np.array([-np.inf, 1.5, 2.5, 3.5, 4.5, np.inf])
    below = 0.5 * (1 + np.vectorize(math.erf)((edges - centre[:, None]) / (noise * math.sqrt(2))))
    chance = np.diff(below, axis=1)
    stars = np.arange(1, 6)
    return chance @ stars, chance @ stars**2 - (chance @ stars) ** 2


def test_which_items_a_user_has_does_not_depend_on_the_noise() -> None:
    one, other = _table(SMALL), _table(replace(SMALL, noise=0.1))
    assert (one.item == other.item).all()
    assert (one.timestamp == other.timestamp).all()
    assert (one.rating != other.rating).any()


def test_a_seed_gives_the_same_table_whatever_the_blocks_and_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = _table(SMALL, seed=3)
    monkeypatch.setattr(shapes, "_ROWS", 500)
    monkeypatch.setenv("CFUICA_THREADS", "1")
    same, other = _table(SMALL, seed=3), _table(SMALL, seed=4)
    for name in ("user", "item", "rating", "timestamp", "expected"):
        assert (getattr(one, name) == getattr(same, name)).all()
    assert (one.item != other.item).any()


def test_the_file_states_the_floor_on_the_test_rows_of_the_default_split(tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    made = write_synthetic(path, SMALL)
    table, test = _table(SMALL), Split.random(SMALL.interactions).test
    error = (table.rating - table.expected.astype(np.float64))[test]
    assert made.floor == pytest.approx(math.sqrt((error**2).mean()))
    stored = pq.read_table(path)
    assert stored.column_names == ["user", "item", "rating", "timestamp"]
    assert (stored["item"].to_numpy() == table.item).all()
    about = json.loads(pq.ParquetFile(path).metadata.metadata[b"cfuica.synthetic"])
    assert about["floor"] == made.floor


def test_an_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_synthetic(tmp_path / "small.parquet", SMALL, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((100, 100, 10_001), "cannot have 10,001 interactions"),
        ((100, 100, 99), "cannot have 99 interactions"),
        ((100, 100, 9_999), "Gini coefficient"),
    ],
)
def test_impossible_counts_are_refused(counts: tuple[int, int, int], said: str) -> None:
    shape = replace(SMALL, most_per_user=200, most_per_item=300).resized(*counts)
    with pytest.raises(SettingsError, match=said):
        next(synthetic_blocks(shape, 0))


@settings(max_examples=20, deadline=None)
@given(n=st.integers(10, 3_000), folds=st.integers(2, 10), seed=st.integers(0, 5))
def test_the_first_fold_is_known_row_by_row(n: int, folds: int, seed: int) -> None:
    in_fold = in_first_fold(n, folds=folds, seed=seed)
    mask = np.concatenate([in_fold(0, n // 3), in_fold(n // 3, n)])
    assert (np.flatnonzero(mask) == Split.random(n, folds=folds, seed=seed).test).all()
