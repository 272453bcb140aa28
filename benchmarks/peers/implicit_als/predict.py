"""implicit's ALS: factors of users and items by weighted least squares, all pairs observed.

    python predict.py SPLIT --out DIR [--tries 20] [--seed 0]

A pair with an interaction counts alpha times and should be 1, every other counts once and
should be 0. Of `--tries` settings NDCG@10 of the validation items chooses; the first are those
that a longer search found on MovieLens 1M. With these it learns again, from train and validation
set together. When it is asked, a user's factors are solved from all that may be read, given the
items' factors.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

Settings = dict[str, Any]

TOP = 100  # A list of so many tells every metric of the first 5, 10 and 20.
CUT_OFF = 10
PAIRS_AT_ONCE = 1_000_000
FIRST: Settings = {"factors": 64, "regularization": 1.2, "alpha": 3.7, "iterations": 30}


def main() -> None:
    """Choose settings, learn, answer what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("split", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    train = pl.read_parquet(given.split / "train.parquet")
    valid = pl.read_parquet(given.split / "valid.parquet")
    both = pl.concat([train, valid.select(train.columns)])
    ids = Ids.of(both)
    histories = ids.matrix(train)
    with threadpool_limits(1, "blas"):  # implicit has threads of its own
        random = np.random.default_rng(given.seed)
        best, chosen = 0.0, FIRST
        for settings in [FIRST, *(drawn(random) for _ in range(given.tries - 1))]:
            model = fitted(settings, histories, given.seed)
            found = ndcg(model, histories, *ids.pairs(valid))
            print(f"validation NDCG@{CUT_OFF} {found:.4f}: {settings}", file=sys.stderr)
            if found > best:
                best, chosen = found, settings
        print(f"Chosen: {chosen}", file=sys.stderr)
        model = fitted(chosen, ids.matrix(both), given.seed)
        for path in sorted(given.split.glob("asked-*.parquet")):
            protocol = path.stem.removeprefix("asked-")
            seen = ids.matrix(pl.read_parquet(given.split / f"seen-{protocol}.parquet"))
            answers = answer(pl.read_parquet(path), model, seen, ids)
            answers.write_parquet(given.out / f"predicted-{protocol}.parquet")


@dataclass(frozen=True)
class Ids:
    """The users and items that are learned from, by number: the rows of two tables."""

    users: pl.DataFrame
    items: pl.DataFrame

    @classmethod
    def of(cls, train: pl.DataFrame) -> Ids:
        users, items = (train.select(role).unique().sort(role) for role in ("user", "item"))
        return cls(users.with_row_index("row"), items.with_row_index("column"))

    def users_of(self, frame: pl.DataFrame) -> np.ndarray:
        """Of the rows whose user is in the train set."""
        return frame.join(self.users, on="user", maintain_order="left")["row"].to_numpy()

    def pairs(self, frame: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """(users, items) of the rows whose user and item are."""
        rows = frame.join(self.users, on="user", maintain_order="left")
        rows = rows.join(self.items, on="item", maintain_order="left")
        return rows["row"].to_numpy(), rows["column"].to_numpy()

    def matrix(self, frame: pl.DataFrame) -> csr_matrix:
        """(users, items), 1 where there is an interaction."""
        users, items = self.pairs(frame)
        shape = (self.users.height, self.items.height)
        return csr_matrix((np.ones(users.size, np.float32), (users, items)), shape=shape)

    def frame(self, users: np.ndarray, items: np.ndarray, scores: np.ndarray) -> pl.DataFrame:
        """Back in the ids of the data."""
        user, item = self.users["user"].gather(users), self.items["item"].gather(items)
        return pl.DataFrame({"user": user, "item": item, "score": scores})


def drawn(random: np.random.Generator) -> Settings:
    """Random settings, evenly in logarithms."""
    return {
        "factors": int(random.choice([32, 64, 128, 256])),
        "regularization": float(f"{10 ** random.uniform(-2, 2):.2g}"),
        "alpha": float(f"{40 ** random.uniform(0, 1):.2g}"),
        "iterations": int(random.choice([10, 20, 30])),
    }


def fitted(settings: Settings, histories: csr_matrix, seed: int) -> AlternatingLeastSquares:
    model = AlternatingLeastSquares(**settings, use_gpu=False, random_state=seed)
    model.fit(histories, show_progress=False)
    return model


def ndcg(
    model: AlternatingLeastSquares, histories: csr_matrix, users: np.ndarray, items: np.ndarray
) -> float:
    """Of these items, each among all that its user has not had."""
    best, _ = model.recommend(users, histories[users], N=CUT_OFF)
    return float(((best == items[:, None]) / np.log2(2 + np.arange(CUT_OFF))).sum(axis=1).mean())


def answer(
    asked: pl.DataFrame, model: AlternatingLeastSquares, seen: csr_matrix, ids: Ids
) -> pl.DataFrame:
    """Scores of the pairs that are asked for, or of each user's best unseen items."""
    if "item" in asked:
        factors = model.recalculate_user(np.arange(seen.shape[0]), seen)
        users, items = ids.pairs(asked)
        scores = np.empty(users.size, np.float32)
        for start in range(0, users.size, PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            scores[part] = (factors[users[part]] * model.item_factors[items[part]]).sum(axis=1)
        return ids.frame(users, items, scores)
    users = ids.users_of(asked)
    items, scores = model.recommend(users, seen[users], N=TOP, recalculate_user=True)
    # Where fewer items are unseen, seen ones with the lowest score of all fill the list.
    rows, places = np.nonzero(scores > np.finfo(np.float32).min)
    return ids.frame(users[rows], items[rows, places], scores[rows, places])


if __name__ == "__main__":
    main()
