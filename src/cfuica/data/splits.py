"""Which rating is for training, which for validation, which for the test.

The paper's protocol (Table 1): ten folds of one random permutation of all ratings; a fold is the
test set, and 5% of the remaining ratings are for validation. The same seed gives the same split
for ever, on any machine and with any numpy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfuica.data.keyed import hashes, permutation
from cfuica.errors import SettingsError

# One word per purpose keeps the draws unrelated: the order of the folds, the validation part.
_FOLDS, _VALID = 1, 2


def random_folds(n: int, *, folds: int, seed: int) -> list[NDArray[np.int64]]:
    """Split a random permutation of range(n) into `folds` parts, as `np.array_split` does."""
    _check_seed(seed)
    if folds < 2:
        raise SettingsError(f"folds is {folds}, but a split needs at least 2; try folds=10.")
    if n < folds:
        raise SettingsError(
            f"{n} ratings cannot be split into {folds} folds without an empty one; "
            f"use fewer folds or more ratings."
        )
    return list(np.array_split(permutation(n, seed, _FOLDS), folds))


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of a table, each part ascending: rows near in the file stay near in memory."""

    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    test: NDArray[np.int64]

    @classmethod
    def random(
        cls, n: int, *, folds: int = 10, fold: int = 0, valid: float = 0.05, seed: int = 0
    ) -> Split:
        """Fold `fold` (from 0) is the test part; floor(valid * rest) of the rest validates."""
        _check_share(valid)
        parts = random_folds(n, folds=folds, seed=seed)
        if not 0 <= fold < folds:
            raise SettingsError(
                f"fold is {fold}, but with {folds} folds it must be from 0 to {folds - 1}."
            )
        test = np.sort(parts[fold])
        rest = np.setdiff1d(np.arange(n, dtype=np.int64), test, assume_unique=True)
        return cls._with_validation(rest, test, hashes(n, seed, _VALID, fold), valid)

    @classmethod
    def without_test(cls, n: int, *, valid: float = 0.05, seed: int = 0) -> Split:
        """No test part; floor(valid * n) of all rows validate."""
        _check_share(valid)
        _check_seed(seed)
        rest, nothing = np.arange(n, dtype=np.int64), np.empty(0, np.int64)
        return cls._with_validation(rest, nothing, hashes(n, seed, _VALID), valid)

    @classmethod
    def _with_validation(
        cls,
        rest: NDArray[np.int64],
        test: NDArray[np.int64],
        hashes_n: NDArray[np.uint64],
        valid: float,
    ) -> Split:
        order = np.argsort(hashes_n[rest], kind="stable")
        n_valid = int(np.floor(valid * rest.size))
        return cls(
            train=np.sort(rest[order[n_valid:]]), valid=np.sort(rest[order[:n_valid]]), test=test
        )

    def sha256(self) -> str:
        """Hash of the three parts; recorded with a run to prove which split it saw."""
        digest = hashlib.sha256()
        for name, part in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            digest.update(f"{name} {part.size}\n".encode())
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()


def _check_share(valid: float) -> None:
    if not 0.0 <= valid < 1.0:
        raise SettingsError(
            f"valid is {valid}, but it is the share of the remaining ratings used for "
            f"validation: give a number from 0 up to, but not including, 1."
        )


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**64:
        raise SettingsError(f"seed is {seed}, but it must be from 0 to 2**64 - 1.")
