"""Runs of a ranking model that was never trained: a folder as training leaves it, and a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

from cfuica.data.datasets import resolve
from cfuica.data.matrix import Csr
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.run_folder import RunFolder
from tests.conftest import find_data
from tests.evaluation.given_scores import GivenScores


def tied_table(users: int = 12, items: int = 30, seed: int = 0) -> Interactions:
    """20 to 24 interactions of each user at 4 times; ids from 1; 3 more items that nobody did."""
    random = np.random.default_rng(seed)
    rows = [
        (user + 1, int(item) + 1, 1.0, int(random.integers(0, 4)))
        for user in range(users)
        for item in random.permutation(items)[: random.integers(20, 25)]
    ]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "timestamp"], orient="row")
    return Interactions(frame, item_space=pl.Series("item", range(1, items + 4)))


@cache
def movielens_parts() -> DataSplit:
    """MovieLens 1M split for every protocol; skips the test where it or NCF's files are absent."""
    find_data("ml-1m/ml-1m.zip")
    find_data("ml-1m-ncf/ml-1m.test.rating")
    return DataSplit.leave_one_out(resolve("ml-1m"), protocols=True)


@dataclass
class StandInRanker:
    """What `load` gives for a ranking model: random scores, and what it was conditioned on."""

    users: Vocabulary
    items: Vocabulary
    seen: Csr
    seed: int = 0
    predicts_ratings: ClassVar[bool] = False
    extra: Interactions | None = None

    def scorer(self, extra: Interactions | None) -> GivenScores:
        self.extra = extra
        random = np.random.default_rng(self.seed)
        return GivenScores(random.random((self.users.size, self.items.size)))


def finished_run(path: Path, data_split: DataSplit, *, task: str = "ranking") -> RunFolder:
    """A run folder with a record, a test set, and ids and interactions in its model folder."""
    folder = RunFolder.create(path)
    folder.write_record({"status": "finished", "task": task, "split": data_split.description})
    if data_split.test is not None:
        folder.write_test(data_split.test)
    model = ranker_of(data_split)
    folder.model.mkdir()
    pl.DataFrame({"user": model.users.ids}).write_parquet(folder.model / "users.parquet")
    pl.DataFrame({"item": model.items.ids}).write_parquet(folder.model / "items.parquet")
    interactions = {"user": model.seen.row_of_entry(), "item": model.seen.indices}
    pl.DataFrame(interactions).write_parquet(folder.model / "interactions.parquet")
    return folder


def ranker_of(data_split: DataSplit, seed: int = 0) -> StandInRanker:
    """A model that knows the training and validation sets."""
    users, items = data_split.whole.users, data_split.whole.item_ids
    tables = [table for table in (data_split.train, data_split.valid) if table is not None]
    known = pl.concat([table.frame.select("user", "item") for table in tables])
    seen = Csr.of_pairs(users.encode(known["user"]), items.encode(known["item"]), users.size)
    return StandInRanker(users, items, seen, seed)
