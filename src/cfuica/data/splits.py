"""Splits into train, validation and test set, as row numbers; and the random numbers behind them.

`Split.random` is the paper's protocol (Table 1): ten folds of one random permutation of all
ratings, one of them the test set, and 5% of the rest for validation. `leave_one_out` tests each
user's last interaction, `by_date` everything after a date, and `cold_start` all interactions of
held-out users. A seed gives the same split on any machine and with any numpy.

`other_test_rows` finds the test interactions of the leave-one-out protocols of other papers, which
differ where timestamps are equal.

Random numbers (`hashes`, `permutation`, `uniforms`, `normals`) are computed from a key instead of
drawn from a stream. Number i of a key is splitmix64's i-th output (Steele, Lea & Flood 2014). It is
plain 64-bit integer arithmetic, so neither a numpy release nor the number of threads changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfuica.data.columns import date_of
from cfuica.data.table import Interactions
from cfuica.errors import SettingsError

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_PART = 1 << 20  # Hashes computed at a time.


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashes(n: int, *key: int, start: int = 0) -> NDArray[np.uint64]:
    """(n,) 64-bit words of `key` from number `start` on: distinct within one key, unrelated
    between keys."""
    # The key is mixed word by word, because neighbouring splitmix64 seeds give shifted copies of
    # one sequence.
    base = 0
    for word in key:
        step = np.array([(base ^ (word & _MASK)) + _GAMMA & _MASK], dtype=np.uint64)
        base = int(_mix(step)[0])
    words = np.empty(n, np.uint64)
    for at in range(0, n, _PART):  # the intermediate words of all at once would be many
        part = words[at : at + _PART]
        index = np.arange(start + at + 1, start + at + 1 + part.size, dtype=np.uint64)
        part[:] = _mix(index * np.uint64(_GAMMA) + np.uint64(base))
    return words


def permutation(n: int, *key: int) -> NDArray[np.int64]:
    """(n,) a permutation of range(n)."""
    return np.argsort(hashes(n, *key), kind="stable").astype(np.int64, copy=False)


def uniforms(n: int, *key: int) -> NDArray[np.float64]:
    """(n,) uniform numbers strictly inside (0, 1), 53 bits each."""
    bits = (hashes(n, *key) >> np.uint64(11)).astype(np.float64)
    return np.asarray((bits + 0.5) * 2.0**-53)


def normals(n: int, *key: int) -> NDArray[np.float64]:
    """(n,) standard normal numbers (Box-Muller)."""
    pairs = (n + 1) // 2
    u = uniforms(2 * pairs, *key)
    radius = np.sqrt(-2.0 * np.log(u[:pairs]))
    angle = 2.0 * np.pi * u[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]


# One word per purpose makes the samples independent: folds, validation set, cold-start users.
_FOLDS, _VALID, _COLD_START = 1, 2, 3

Rows = NDArray[np.int64]


def _check_folds(n: int, folds: int, fold: int) -> None:
    if folds < 2:
        raise SettingsError(f"folds is {folds}, but a split needs at least 2; try folds=10.")
    if n < folds:
        raise SettingsError(
            f"{n} ratings cannot be split into {folds} folds without an empty one; "
            f"use fewer folds or more ratings."
        )
    if not 0 <= fold < folds:
        raise SettingsError(
            f"fold is {fold}, but with {folds} folds it must be from 0 to {folds - 1}."
        )


def in_first_fold(
    n: int, *, folds: int = 10, seed: int = 0
) -> Callable[[int, int], NDArray[np.bool_]]:
    """Whether the rows `start` to `stop` are in the test set of fold 0, in memory for a part of it.

    The first fold are the rows of the smallest hashes. The largest of these is near its share of
    all 64-bit words.
    """
    size = -(-n // folds)
    most = np.uint64(_MASK if n < _PART else int((size / n + 0.01) * _MASK))
    parts = (hashes(min(_PART, n - at), seed, _FOLDS, start=at) for at in range(0, n, _PART))
    small = np.concatenate([part[part <= most] for part in parts])
    last = np.partition(small, size - 1)[size - 1]
    return lambda start, stop: hashes(stop - start, seed, _FOLDS, start=start) <= last


def time_of_the_last(share: float, times: NDArray[np.int64]) -> int:
    """The earliest time of the last floor(share * n), but at least one, of n times."""
    _check_test_share(share)
    place = times.size - max(int(share * times.size), 1)
    return int(np.partition(times, place)[place])


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the three sets, each ascending to keep the locality of the file."""

    train: Rows
    valid: Rows
    test: Rows

    @classmethod
    def random(
        cls, n: int, *, folds: int = 10, fold: int = 0, valid: float = 0.05, seed: int = 0
    ) -> Split:
        """Fold `fold` (from 0) is the test set; floor(valid * rest) rows are for validation."""
        _check_valid(valid)
        _check_seed(seed)
        _check_folds(n, folds, fold)
        # Folds are stretches of the permutation that sorts these words, which are distinct: so two
        # of the words bound a fold, and nothing has to be sorted.
        words = hashes(n, seed, _FOLDS)
        first = fold * (n // folds) + min(fold, n % folds)  # as `np.array_split` has it
        last = first + n // folds + (fold < n % folds) - 1
        ordered = np.partition(words, [first, last])
        is_test = (words >= ordered[first]) & (words <= ordered[last])
        del words, ordered
        test, rest = np.flatnonzero(is_test), np.flatnonzero(~is_test)
        return cls._with_validation(rest, test, hashes(n, seed, _VALID, fold)[rest], valid)

    @classmethod
    def without_test(cls, n: int, *, valid: float = 0.05, seed: int = 0) -> Split:
        """No test set; floor(valid * n) of all rows are for validation."""
        _check_valid(valid)
        _check_seed(seed)
        rest, nothing = np.arange(n, dtype=np.int64), np.empty(0, np.int64)
        return cls._with_validation(rest, nothing, hashes(n, seed, _VALID), valid)

    @classmethod
    def leave_one_out(
        cls,
        users: NDArray[np.int32],
        times: NDArray[np.int64] | None = None,
        *,
        also: Rows | None = None,
    ) -> Split:
        """The last interaction of each user is for the test, the one before it for validation.

        `users` (n,) from 0, `times` (n,). Among equal times the later row is later; without times
        the order of the rows is the temporal order. A user with two interactions has none for
        validation, a user with one has none for the test: each has one to train on.

        `also` are more rows for the test set, at any time; but not those of a user who would have
        nothing left to train on.
        """
        if times is None:
            times = np.zeros(users.size, np.int64)
        rest = np.arange(users.size, dtype=np.int64)
        count = np.bincount(users)
        test = _last_of_each(rest[count[users] >= 2], users, times)
        if test.size == 0:
            raise SettingsError(
                "No user has two interactions, so leave-one-out leaves nothing to test on; use "
                "another split."
            )
        if also is not None and also.size:
            both = np.union1d(test, also)
            left = count - np.bincount(users[both], minlength=count.size)
            test = np.union1d(test, also[left[users[also]] >= 1])
        rest = _without(rest, test)
        left = np.bincount(users[rest], minlength=count.size)
        valid = _last_of_each(rest[left[users[rest]] >= 2], users, times)
        return cls(train=_without(rest, valid), valid=valid, test=test)

    @classmethod
    def by_date(cls, times: NDArray[np.int64], *, test_from: int, valid: float = 0.05) -> Split:
        """Interactions at or after `test_from` are for the test, earlier ones for training.

        The last share `valid` of the rest, by time, is for validation. No two sets share a time:
        interactions of the same second as a border all go to the later set, which may make it
        larger than its share.
        """
        _check_valid(valid)
        is_test = times >= test_from
        test, rest = np.flatnonzero(is_test), np.flatnonzero(~is_test)
        if test.size == 0 or rest.size == 0:
            missing = "test" if test.size == 0 else "train"
            raise SettingsError(
                f"With a test set from {date_of(test_from)} on, nothing is left to {missing} on: "
                f"the interactions are from {date_of(times.min())} to {date_of(times.max())}; "
                f"choose a time in between."
            )
        if int(valid * rest.size) == 0:
            return cls(train=rest, valid=np.empty(0, np.int64), test=test)
        is_valid = times[rest] >= time_of_the_last(valid, times[rest])
        if is_valid.all():
            raise SettingsError(
                f"Validating on the last {valid:g} of the {rest.size:,} interactions before "
                f"{date_of(test_from)} leaves nothing to train on, because they share their time; "
                f"use valid=0 or a later border."
            )
        return cls(train=rest[~is_valid], valid=rest[is_valid], test=test)

    @classmethod
    def cold_start(
        cls,
        users: NDArray[np.int32],
        *,
        test_share: float = 0.1,
        valid: float = 0.05,
        seed: int = 0,
    ) -> Split:
        """All interactions of floor(test_share * users) random users are for the test.

        `users` (n,) from 0, without gaps. floor(valid * rest) random interactions of the other
        users are for validation: these users are warm, as the learning rate schedule needs.
        """
        _check_valid(valid)
        _check_test_share(test_share)
        _check_seed(seed)
        n_users = int(users.max()) + 1
        n_cold = int(test_share * n_users)
        if n_users == 1:
            raise SettingsError(
                "There is only 1 user, so none is left to be a cold-start user; use another split, "
                "or data with at least 2 users."
            )
        if n_cold == 0:
            raise SettingsError(
                f"test_share is {test_share:g}, which of {n_users} users is not a single one; "
                f"give at least {_share_of_one(n_users):g}, or use another split."
            )
        is_cold = np.zeros(n_users, np.bool_)
        is_cold[permutation(n_users, seed, _COLD_START)[:n_cold]] = True
        is_test = is_cold[users]
        test, rest = np.flatnonzero(is_test), np.flatnonzero(~is_test)
        return cls._with_validation(rest, test, hashes(users.size, seed, _VALID)[rest], valid)

    @classmethod
    def _with_validation(
        cls, rest: Rows, test: Rows, own: NDArray[np.uint64], valid: float
    ) -> Split:
        """The floor(valid * rest) rows with the smallest hashes, of which each has its own, are for
        validation."""
        n_valid = int(np.floor(valid * rest.size))
        if n_valid == 0:
            return cls(train=rest, valid=np.empty(0, np.int64), test=test)
        is_valid = own <= np.partition(own, n_valid - 1)[n_valid - 1]
        return cls(train=rest[~is_valid], valid=rest[is_valid], test=test)

    def sha256(self) -> str:
        """Hash of the three sets; a run records it to identify its split."""
        digest = hashlib.sha256()
        for name, part in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            digest.update(f"{name} {part.size}\n".encode())
            digest.update(np.ascontiguousarray(part, "<i8").data)
        return digest.hexdigest()


def _last_of_each(rows: Rows, users: NDArray[np.int32], times: NDArray[np.int64]) -> Rows:
    """Of these ascending rows, the last one in time of each user; ascending.

    Two passes instead of a sort by user and time, which would take ten times as long.
    """
    if rows.size == 0:
        return rows
    latest = np.full(int(users.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, users[rows], times[rows])
    candidates = rows[times[rows] == latest[users[rows]]]
    last = np.full(latest.size, -1, np.int64)
    # Where an index repeats, the value assigned last stays: the later row.
    last[users[candidates]] = candidates
    return np.sort(last[last >= 0])


def _without(rows: Rows, removed: Rows) -> Rows:
    """Ascending rows without some of them; a mask is ten times as fast as `np.setdiff1d`."""
    stays = np.ones(int(rows[-1]) + 1 if rows.size else 0, np.bool_)
    stays[removed] = False
    return rows[stays[rows]]


def _share_of_one(n: int) -> float:
    """The smallest share that is at least one of n, rounded up."""
    scale: int = 10 ** (len(str(n)) + 1)
    return -(-scale // n) / scale


def _check_valid(valid: float) -> None:
    if not 0.0 <= valid < 1.0:
        raise SettingsError(
            f"valid is {valid}, but it is the share of the remaining ratings used for "
            f"validation: give a number from 0 up to, but not including, 1."
        )


def _check_test_share(test_share: float) -> None:
    if not 0.0 < test_share < 1.0:
        raise SettingsError(
            f"test_share is {test_share}, but it is the share of the data to test on: give a "
            f"number between 0 and 1."
        )


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**64:
        raise SettingsError(f"seed is {seed}, but it must be from 0 to 2**64 - 1.")


FULL, PAPER, NCF = "full", "paper", "ncf"
# The protocols of leave-one-out; `test.parquet` has a column for each that a run supports.
LEAVE_ONE_OUT = (FULL, PAPER, NCF)
# Every other split with a test set has one protocol, of the same name.
DATE, RANDOM, USERS, GIVEN = "date", "random", "users", "given"

# Protocol to the split whose test set it needs.
SPLIT_OF = {
    **dict.fromkeys(LEAVE_ONE_OUT, "leave-one-out"),
    **{name: name for name in (DATE, RANDOM, USERS, GIVEN)},
}


def other_test_rows(table: Interactions) -> dict[str, Rows]:
    """Protocol to its test rows, for the protocols beside `full` that the table supports.

    `paper` needs timestamps; `ncf` needs MovieLens 1M and NCF's files.
    """
    if not table.has_times:
        return {}
    # Imported here, because most splits do not need it.
    from cfuica.data.movielens import find_ncf

    rows = {PAPER: paper_rows(table)}
    ncf = find_ncf()
    ncf_rows = None if ncf is None else ncf.rows_in(table)
    return rows if ncf_rows is None else {**rows, NCF: ncf_rows}


def paper_rows(table: Interactions) -> Rows:
    """The last interaction of each user by the argsort of the paper's authors, ascending.

    Among equal times it is not the last in file order; see `ops.introsort`.
    """
    from cfuica.ops.introsort import last_of_each
    from cfuica.ops.runtime import run_rows

    users = table.users.encode(table.frame["user"])
    in_file_order = np.argsort(users, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(users))]).astype(np.int64)
    times = table.frame["timestamp"].to_numpy()[in_file_order]
    last = np.empty(offsets.size - 1, np.int64)
    run_rows(last_of_each, last.size, offsets, times, last, work=offsets)
    return np.sort(in_file_order[last])
