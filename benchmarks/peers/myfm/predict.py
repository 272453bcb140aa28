"""myFM: a Bayesian factorisation machine with ordered labels, sampled by Gibbs.

    python predict.py SPLIT --out DIR [--dates] [--rank 32] [--iterations 512] [--seed 0]

The features of a rating are its user and item, the items that the user has rated, the users who
have rated the item (SVD++ and its flipped form), and with --dates the day of the rating, also of
the one that is asked for. The label is one of K ordered classes: a normal variable around the
machine's score falls between two of K - 1 cut points (ordered probit). The prediction is the mean
of the labels, over all samples but the first five.

All settings are those that its authors publish, so there is nothing to choose and it learns from
train and validation set together; --train-only leaves the validation set out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from myfm import MyFMOrderedProbit, RelationBlock
from scipy.sparse import csr_matrix, diags, hstack, identity

BURN_IN = 5
DAY = 86_400


def main() -> None:
    """Learn from the training set, predict the pairs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("split", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dates", action="store_true", help="the day is a feature")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-only", action="store_true")
    given = parser.parse_args()
    sets = ["train"] if given.train_only else ["train", "valid"]
    learned = pl.concat([pl.read_parquet(given.split / f"{name}.parquet") for name in sets])
    asked = pl.read_parquet(given.split / "asked-rating.parquet")
    features = Features(learned, dates=given.dates)
    labels, classes = np.unique(learned["rating"].to_numpy(), return_inverse=True)
    model = MyFMOrderedProbit(given.rank, random_seed=given.seed)
    mean = MeanOfSamples(*features.of(asked))
    days, blocks = features.of(learned)
    model.fit(
        days,
        classes,
        X_rel=blocks,
        group_shapes=features.groups,
        n_iter=given.iterations,
        n_kept_samples=1,
        callback=mean,
    )
    predicted = asked.select("user", "item").with_columns(prediction=mean.probabilities_pk @ labels)
    predicted.write_parquet(given.out / "predicted-rating.parquet")


class Features:
    """The features of ratings: a block of days, and for each user and each item a row of its own.

    A row of a user is its indicator and its items, those divided by the root of their number, so
    that the row has the same length whatever that is; a row of an item likewise.
    """

    def __init__(self, learned: pl.DataFrame, *, dates: bool) -> None:
        self.users, self.items = Ids.of(learned["user"]), Ids.of(learned["item"])
        self.days = Ids.of(learned["timestamp"] // DAY if dates else [])
        ones = np.ones(learned.height)
        places = self.users.index(learned["user"]), self.items.index(learned["item"])
        rated_um = csr_matrix((ones, places), shape=(self.users.size, self.items.size))
        self.rows_u, self.rows_m = of_both(rated_um), of_both(rated_um.T.tocsr())
        # Each kind of feature has a prior of its own.
        each = [self.users.size, self.items.size]
        self.groups = [*filter(None, [self.days.size]), *each, *reversed(each)]

    def of(self, frame: pl.DataFrame) -> tuple[csr_matrix, list[RelationBlock]]:
        """(days, users and items) of the rows; an id without a rating has no features."""
        days = self.days.index(frame["timestamp"] // DAY if self.days.size else [])
        there = np.flatnonzero(days >= 0)
        shape = (frame.height, self.days.size)
        days_pd = csr_matrix((np.ones(there.size), (there, days[there])), shape=shape)
        blocks = [
            # The row behind the last, where -1 points, is empty.
            RelationBlock(ids.index(frame[role]) % (ids.size + 1), rows)
            for role, ids, rows in (
                ("user", self.users, self.rows_u),
                ("item", self.items, self.rows_m),
            )
        ]
        return days_pd, blocks


def of_both(rated: csr_matrix) -> csr_matrix:
    """Indicators beside normalised ratings, and an empty row for ids without a rating."""
    scale = 1 / np.sqrt(np.maximum(np.diff(rated.indptr), 1))
    rows = hstack([identity(rated.shape[0]), diags(scale) @ rated], format="csr")
    rows.resize(rows.shape[0] + 1, rows.shape[1])
    return rows


@dataclass(frozen=True)
class Ids:
    """Ids by number."""

    numbers: dict[int | str, int]

    @classmethod
    def of(cls, ids: Iterable[int | str]) -> Ids:
        return cls({name: number for number, name in enumerate(dict.fromkeys(ids))})

    @property
    def size(self) -> int:
        return len(self.numbers)

    def index(self, ids: Iterable[int | str]) -> np.ndarray:
        """-1 for an id that was not there."""
        return np.array([self.numbers.get(name, -1) for name in ids], dtype=np.int64)


class MeanOfSamples:
    """The mean of the distributions of each sample: keeping 512 samples would take gigabytes."""

    def __init__(self, days: csr_matrix, blocks: list[RelationBlock]) -> None:
        self.asked = days, blocks
        self.total_pk, self.samples = 0.0, 0

    def __call__(self, iteration: int, machine, *_: object) -> tuple[bool, str | None]:
        if iteration >= BURN_IN:
            self.total_pk = self.total_pk + machine.oprobit_predict_proba(*self.asked, 0)
            self.samples += 1
        return False, None

    @property
    def probabilities_pk(self) -> np.ndarray:
        return self.total_pk / self.samples


if __name__ == "__main__":
    main()
