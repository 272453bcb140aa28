"""Splits: complete, honest about time, and the same for ever."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data import splits
from cfuica.data.splits import Split, permutation, time_of_the_last
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
    folds = [Split.random(10, folds=3, fold=fold, seed=0).test.tolist() for fold in range(3)]
    assert folds == [[0, 6, 7, 9], [2, 3, 4], [1, 5, 8]]


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(2, 300),
    folds=st.integers(2, 12),
    valid=st.floats(0, 0.9),
    seed=st.integers(0, 2**64 - 1),
)
def test_folds_partition_and_split_partitions(n, folds, valid, seed):
    folds = min(folds, n)
    parts = np.array_split(permutation(n, seed, 1), folds)
    for fold in range(folds):
        split = Split.random(n, folds=folds, fold=fold, valid=valid, seed=seed)
        assert np.array_equal(split.test, np.sort(parts[fold]))
        assert split.valid.size == int(np.floor(valid * (n - split.test.size)))
        whole = np.concatenate([split.train, split.valid, split.test])
        assert np.array_equal(np.sort(whole), np.arange(n))
        for part in (split.train, split.valid, split.test):
            assert part.dtype == np.int64
            assert np.all(np.diff(part) > 0)


def test_a_split_takes_few_bytes_for_each_row(monkeypatch):
    monkeypatch.setattr(splits, "_PART", 1 << 14)
    n = 200_000
    tracemalloc.start()
    try:
        Split.random(n).sha256()
        assert tracemalloc.get_traced_memory()[1] < 30 * n
    finally:
        tracemalloc.stop()


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


def test_hash_distinguishes_the_sets():
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


def test_without_a_test_set_the_share_validates_and_the_rest_trains() -> None:
    split = Split.without_test(1000, valid=0.3, seed=4)
    assert (split.train.size, split.valid.size, split.test.size) == (700, 300, 0)
    assert np.array_equal(np.sort(np.concatenate((split.train, split.valid))), np.arange(1000))
    assert split.sha256() != Split.without_test(1000, valid=0.3, seed=5).sha256()


# 40 interactions of 8 users at 4 times; made by arithmetic, so that no generator can change them.
PLACES = np.arange(40)
USERS = (PLACES * 3 // 5 % 8).astype(np.int32)
TIMES = PLACES * PLACES % 7
SPLITS = {
    "leave-one-out": Split.leave_one_out(USERS, TIMES),
    "date": Split.by_date(TIMES, test_from=4, valid=0.2),
    "users": Split.cold_start(USERS, test_share=0.3, valid=0.3, seed=1),
}
PINNED_SPLITS = {
    "leave-one-out": "0dd9286a6d8148162345d6926fe12ef3d4695ac93fe04730aa1464c3e041b22f",
    "date": "bdee8bb8eb2b1c41580ea40e71085ba05d6c80a58e25f121f253de4c297db827",
    "users": "36653c34b54627c9b3bc927a2d8e05fd006e99dc0a1e0701001059d863b48419",
}


@pytest.mark.parametrize("kind", SPLITS)
def test_the_other_splits_are_the_same_for_ever_too(kind):
    assert SPLITS[kind].sha256() == PINNED_SPLITS[kind]


def timed_tables():
    """(users, times): users numbered without a gap; few distinct times, so that many are equal."""

    def arrays(rows):
        users, times = np.array(rows, np.int64).T
        _, users = np.unique(users, return_inverse=True)
        return users.astype(np.int32), times

    row = st.tuples(st.integers(0, 6), st.integers(-4, 4))
    return st.lists(row, min_size=2, max_size=40).map(arrays)


def assert_deals_every_row_once(split, n):
    whole = np.concatenate([split.train, split.valid, split.test])
    assert np.array_equal(np.sort(whole), np.arange(n))
    for part in (split.train, split.valid, split.test):
        assert part.dtype == np.int64
        assert np.all(np.diff(part) > 0)


@settings(max_examples=200, deadline=None)
@given(timed_tables())
def test_leave_one_out_takes_the_last_two_of_each_user(table):
    users, times = table
    counts = np.bincount(users)
    if counts.max() < 2:
        with pytest.raises(SettingsError, match="No user has two interactions"):
            Split.leave_one_out(users, times)
        return
    split = Split.leave_one_out(users, times)
    assert_deals_every_row_once(split, users.size)
    # Written down a second time, user by user.
    test, valid = [], []
    for user in range(counts.size):
        mine = sorted(np.flatnonzero(users == user), key=lambda row: (times[row], row))
        test += mine[-1:] if len(mine) >= 2 else []
        valid += mine[-2:-1] if len(mine) >= 3 else []
    assert split.test.tolist() == sorted(test)
    assert split.valid.tolist() == sorted(valid)
    assert set(users) == set(users[split.train])


def test_among_equal_times_the_later_row_is_later():
    users = np.zeros(4, np.int32)
    split = Split.leave_one_out(users, np.array([5, 5, 5, 4]))
    assert (split.test.tolist(), split.valid.tolist()) == ([2], [1])


def test_without_times_the_later_row_is_later():
    split = Split.leave_one_out(np.array([0, 1, 0, 0, 1, 1], np.int32))
    assert (split.test.tolist(), split.valid.tolist()) == ([3, 5], [2, 4])


@settings(max_examples=200, deadline=None)
@given(timed_tables(), st.floats(0.01, 0.99), st.floats(0, 0.9))
def test_a_date_leaves_nothing_later_behind_and_separates_no_second(table, share, valid):
    _, times = table
    border = time_of_the_last(share, times)
    assert np.sum(times >= border) >= max(int(share * times.size), 1) > np.sum(times > border)
    before = np.sort(times[times < border])
    n_valid = int(valid * before.size)
    if before.size == 0 or (n_valid and before[-n_valid] == before[0]):
        with pytest.raises(SettingsError, match=r"nothing (is left )?to train on"):
            Split.by_date(times, test_from=border, valid=valid)
        return
    split = Split.by_date(times, test_from=border, valid=valid)
    assert_deals_every_row_once(split, times.size)
    assert np.array_equal(split.test, np.flatnonzero(times >= border))
    for earlier, later in ((split.train, split.valid), (split.train, split.test)):
        if later.size:
            assert times[earlier].max() < times[later].min()
    assert bool(split.valid.size) == bool(n_valid)
    if n_valid:
        assert times[split.valid].max() < border
        assert times[split.valid].min() == before[-n_valid]


@given(st.integers(2, 5000))
def test_the_share_of_users_that_is_advised_is_enough(n_users):
    users = np.arange(n_users, dtype=np.int32)
    with pytest.raises(SettingsError, match="is not a single one; give at least ") as caught:
        Split.cold_start(users, test_share=1e-9)
    advised = str(caught.value).split("at least ")[1].split(",")[0]
    assert Split.cold_start(users, test_share=float(advised)).test.size >= 1


def test_one_user_alone_has_no_cold_start():
    with pytest.raises(SettingsError, match=r"only 1 user, .* use another split"):
        Split.cold_start(np.zeros(5, np.int32), test_share=0.99)


@settings(max_examples=100, deadline=None)
@given(timed_tables(), st.floats(0.01, 0.99), st.floats(0, 0.9), st.integers(0, 2**64 - 1))
def test_cold_start_users_are_held_out_whole(table, share, valid, seed):
    users, _ = table
    n_users = users.max() + 1
    if int(share * n_users) == 0:
        with pytest.raises(SettingsError, match=r"not a single one|only 1 user"):
            Split.cold_start(users, test_share=share, valid=valid, seed=seed)
        return
    split = Split.cold_start(users, test_share=share, valid=valid, seed=seed)
    assert_deals_every_row_once(split, users.size)
    cold_start = set(users[split.test])
    assert len(cold_start) == int(share * n_users)
    assert cold_start.isdisjoint(users[split.train])
    assert cold_start.isdisjoint(users[split.valid])
    assert split.valid.size == int(np.floor(valid * (users.size - split.test.size)))


@settings(max_examples=100, deadline=None)
@given(timed_tables(), st.randoms(use_true_random=False))
def test_the_order_of_the_file_decides_nothing_but_ties_and_random_rows(table, random):
    users, times = table
    order = np.arange(users.size)
    random.shuffle(order)

    def attempt(split, *arrays, **options):
        try:
            return split(*arrays, **options)
        except SettingsError as error:
            return str(error)

    def same(one, other, parts):
        """Whether the parts hold the same rows, whose numbers the shuffle has changed."""
        if isinstance(one, str):
            return one == other
        return all(
            np.array_equal(getattr(one, part), np.sort(order[getattr(other, part)]))
            for part in parts
        )

    border = int(np.median(times))
    straight = attempt(Split.by_date, times, test_from=border, valid=0.3)
    shuffled = attempt(Split.by_date, times[order], test_from=border, valid=0.3)
    assert same(straight, shuffled, ("train", "valid", "test"))
    straight = attempt(Split.cold_start, users, test_share=0.5, valid=0.3)
    shuffled = attempt(Split.cold_start, users[order], test_share=0.5, valid=0.3)
    assert same(straight, shuffled, ("test",))
    distinct = times * users.size + np.arange(users.size)  # no ties
    straight = attempt(Split.leave_one_out, users, distinct)
    shuffled = attempt(Split.leave_one_out, users[order], distinct[order])
    assert same(straight, shuffled, ("train", "valid", "test"))
    # With ties, which row it is may change, but neither whose it is nor when it was.
    straight = attempt(Split.leave_one_out, users, times)
    shuffled = attempt(Split.leave_one_out, users[order], times[order])
    if isinstance(straight, Split):
        for part in ("valid", "test"):
            one, other = getattr(straight, part), order[getattr(shuffled, part)]
            by_user, other = one[np.argsort(users[one])], other[np.argsort(users[other])]
            assert np.array_equal(users[by_user], users[other])
            assert np.array_equal(times[by_user], times[other])


def test_seeds_choose_other_cold_start():
    users = np.repeat(np.arange(1000), 2).astype(np.int32)
    one, other = (set(users[Split.cold_start(users, seed=seed).test]) for seed in (0, 1))
    assert len(one & other) < 30  # 10 are expected by chance


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"test_from": 100}, "nothing is left to test on: the interactions are from 1970-01-01T00"),
        ({"test_from": 0}, "nothing is left to train on: the interactions are from"),
        ({"test_from": 2, "valid": 0.5}, "leaves nothing to train on, because they share"),
        ({"test_from": 2, "valid": 1.0}, r"valid is 1\.0"),
    ],
)
def test_dates_that_leave_an_empty_set_are_refused(arguments, says):
    with pytest.raises(SettingsError, match=says):
        Split.by_date(np.array([1, 1, 1, 2, 3]), **arguments)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_to_test_on_is_between_0_and_1(share):
    with pytest.raises(SettingsError, match="test_share is"):
        time_of_the_last(share, np.arange(10))
    with pytest.raises(SettingsError, match="test_share is"):
        Split.cold_start(np.arange(10, dtype=np.int32), test_share=share)


def test_leave_one_out_sets_other_rows_aside_as_well():
    users = np.array([0, 0, 0, 0, 1, 1, 1], np.int32)
    split = Split.leave_one_out(users, also=np.array([1, 3, 4]))
    assert split.test.tolist() == [1, 3, 4, 6]
    assert split.valid.tolist() == [2]  # user 1 has but one left
    assert split.train.tolist() == [0, 5]


def test_rows_set_aside_leave_everybody_one_to_train_on():
    users = np.array([0, 0, 1, 1, 1, 2], np.int32)
    split = Split.leave_one_out(users, also=np.array([0, 2, 5]))
    assert split.test.tolist() == [1, 2, 4]
    assert split.train.tolist() == [0, 3, 5]
