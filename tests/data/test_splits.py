"""The random split: complete, and the same for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.splits import Split, random_folds
from cfuica.errors import SettingsError

# Recorded once. If one of these changes, every published result loses its split: repair the code,
# never the literal.
PINNED = {
    (100, 10, 0, 0.05, 0): "52968251c447bc732ed4e51130b3a0de1e02d1136783381cb7d9b326252b44d1",
    (100, 10, 1, 0.05, 0): "0475369028621c244049ccdd14bf326725c1e47f5a81720afda34f1696b55a1e",
    (100, 10, 0, 0.05, 1): "273fc228c12fdd3916a7b08f854c7372eaf6e563ef351c98920bf47c33c80fac",
    (1003, 5, 4, 0.2, 7): "519ab11e51f7a98f6064e8ae01aaf05510340a00c0201cb9f918bace9176e6cc",
    (1_000_209, 10, 1, 0.05, 0): "f8219eb499ad21b76c9b9139dfe2cff800460605340b394589254ce0a30ef899",
}


@pytest.mark.parametrize("case", PINNED)
def test_split_is_the_same_for_ever(case):
    n, folds, fold, valid, seed = case
    split = Split.random(n, folds=folds, fold=fold, valid=valid, seed=seed)
    assert split.sha256() == PINNED[case]


def test_folds_of_ten_are_these():
    assert [fold.tolist() for fold in random_folds(10, folds=3, seed=0)] == [
        [9, 0, 6, 7],
        [4, 3, 2],
        [1, 8, 5],
    ]


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(2, 300),
    folds=st.integers(2, 12),
    valid=st.floats(0, 0.9),
    seed=st.integers(0, 2**64 - 1),
)
def test_folds_partition_and_split_partitions(n, folds, valid, seed):
    folds = min(folds, n)
    parts = random_folds(n, folds=folds, seed=seed)
    assert [part.size for part in parts] == [p.size for p in np.array_split(np.arange(n), folds)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    for fold in range(folds):
        split = Split.random(n, folds=folds, fold=fold, valid=valid, seed=seed)
        assert np.array_equal(split.test, np.sort(parts[fold]))
        assert split.valid.size == int(np.floor(valid * (n - split.test.size)))
        whole = np.concatenate([split.train, split.valid, split.test])
        assert np.array_equal(np.sort(whole), np.arange(n))
        for part in (split.train, split.valid, split.test):
            assert part.dtype == np.int64
            assert np.all(np.diff(part) > 0)


def test_validation_is_spread_over_the_file():
    split = Split.random(100_000, valid=0.05)
    assert abs(split.valid.mean() - 50_000) < 5 * 100_000 / np.sqrt(12 * split.valid.size)


def test_seeds_and_folds_give_unrelated_splits():
    a, b = Split.random(10_000, seed=0), Split.random(10_000, seed=1)
    shared = np.intersect1d(a.test, b.test).size
    assert 50 < shared < 150  # 100 are expected by chance
    c = Split.random(10_000, seed=0, fold=1)
    overlap = np.intersect1d(a.valid, c.valid).size
    assert overlap < 60  # 450 * 450 / 10,000 = 20 by chance; the same draw would give about 400


def test_hash_tells_the_parts_apart():
    one, two = np.array([0]), np.array([1, 2])
    hashes = {
        Split(train=two, valid=one, test=one).sha256(),
        Split(train=one, valid=two, test=one).sha256(),
        Split(train=one, valid=one, test=two).sha256(),
    }
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"folds": 1}, "folds is 1"),
        ({"fold": 10}, "fold is 10, but with 10 folds it must be from 0 to 9"),
        ({"fold": -1}, "fold is -1"),
        ({"valid": 1.0}, "valid is 1.0"),
        ({"valid": -0.1}, "valid is -0.1"),
        ({"valid": float("nan")}, "valid is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"n": 9}, "9 ratings cannot be split into 10 folds"),
        ({"n": 0}, "0 ratings"),
    ],
)
def test_impossible_splits_are_refused(arguments, says):
    arguments = {"n": 100, **arguments}
    with pytest.raises(SettingsError, match=says):
        Split.random(arguments.pop("n"), **arguments)


def test_without_a_test_part_the_share_validates_and_the_rest_trains() -> None:
    split = Split.without_test(1000, valid=0.3, seed=4)
    assert (split.train.size, split.valid.size, split.test.size) == (700, 300, 0)
    assert np.array_equal(np.sort(np.concatenate((split.train, split.valid))), np.arange(1000))
    assert split.sha256() != Split.without_test(1000, valid=0.3, seed=5).sha256()
